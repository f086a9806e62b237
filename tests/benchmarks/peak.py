"""Peak memory of one step, in a process of its own: `python -m tests.benchmarks.peak MODEL VARIANT SIZE`."""

import resource
import sys
from pathlib import Path

import torch

from tests.benchmarks.models import MODELS
from tests.benchmarks.variants import COMPILED, VARIANTS

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_mb(field):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def peak_mb(name, variant, size):
    """How far one step on one physical batch rises above a process that has warmed up on two rows."""
    torch.manual_seed(0)
    model, inputs, targets = MODELS[name]()
    make = (VARIANTS | COMPILED)[variant]
    step = make(model, inputs[:2], targets[:2], 2)
    step()
    if not RESET.exists():  # not Linux: the peak of the process
        make(model, inputs[:size], targets[:size], size)()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    del step
    model, inputs, targets = MODELS[name]()
    inputs, targets = inputs[:size].clone(), targets[:size].clone()
    step = make(model, inputs, targets, size)
    RESET.write_text("5")  # sets VmHWM back to VmRSS
    before = resident_mb("VmRSS")
    step()
    return resident_mb("VmHWM") - before


if __name__ == "__main__":
    print(peak_mb(sys.argv[1], sys.argv[2], int(sys.argv[3])))
