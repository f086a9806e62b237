"""What durability costs: `python -m tests.benchmarks.ledger` (prints, writes outputs/benchmarks/ledger.json).

The main job's lots, model and noise on random rows, with the ledger in memory and with the ledger on disk
and checkpoints at their default rate. Both variants take turns in short runs within one process, so that
other jobs on the machine slow both alike. The lowest tenth of the turns is what the machine does when
nothing else runs.
"""

import contextlib
import json
import os
import statistics
import tempfile
from datetime import date
from functools import partial
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytorch_lightning as pl
import torch

from dpexp.checkpoint import CheckpointFolder
from dpexp.checkpointing import Checkpoints
from dpexp.data import Examples
from dpexp.data.reading import Tensors
from dpexp.datamodule import Lots, _as_they_are
from dpexp.ledger import Journal, Ledger, Terms
from dpexp.lots import LotSource
from dpexp.models import MLP
from dpexp.module import DPModule
from dpexp.noise import GaussianNoise
from dpexp.schedules import Constant
from dpexp.streams import Stream
from dpexp.trainer import fit, make_trainer
from tests.plans import private_plan

ROWS, VALUES = 60_000, 60
TURNS, STEPS = 12, 400
EVERY_SECONDS = 30.0
OUTPUT = Path("outputs/benchmarks/ledger.json")


class Source(pl.LightningDataModule):
    """Lots of random rows."""

    def __init__(self, plan, stream):
        super().__init__()
        rng = np.random.default_rng(0)
        inputs = rng.random((ROWS, VALUES), dtype=np.float32)
        rows = Tensors(Examples(inputs=inputs, targets=rng.integers(10, size=ROWS)), lambda values: values)
        self._lots = Lots(plan, LotSource(plan.sampling, stream, ROWS), rows, _as_they_are)

    def train_dataloader(self):
        return self._lots


def one_run(plan, folder, *, durable):
    """Seconds per lot, and seconds that one checkpoint takes; 0 without."""
    stream, ledger = Stream.secret(), Ledger(plan)
    module = DPModule(
        model=MLP(VALUES, [1000], 10),
        plan=plan,
        ledger=ledger,
        noise=GaussianNoise(stream.child("noise")),
        optimizer=partial(torch.optim.SGD, lr=0.1),
        learning_rate=Constant(0.1),
        physical_batch_size=None,
    )
    source, callbacks, written = Source(plan, stream.child("lots")), [], 0.0
    with contextlib.ExitStack() as stack:
        if durable:
            terms = Terms.of(plan, {}).hash
            journal = Journal.create(folder / "run.ledger", run_id="benchmark", terms=terms, releases=0)
            ledger.keep(stack.enter_context(journal))
            checkpoints = Checkpoints(
                CheckpointFolder(folder / "checkpoints", keep=2),
                run_id="benchmark",
                terms=terms.hex(),
                every_seconds=EVERY_SECONDS,
                noted=lambda head: None,
            )
            # The one before the first lot and the one after the last come once in a run, and are timed apart.
            callbacks = [SkipEnds(checkpoints)]
        trainer = make_trainer(
            partial(pl.Trainer, accelerator="cpu", devices=1, val_check_interval=10**6),
            plan=plan,
            callbacks=callbacks,
            folder=folder,
        )
        began = perf_counter()
        fit(trainer, module, source)
        seconds = (perf_counter() - began) / plan.steps
        if durable:
            began = perf_counter()
            checkpoints._write(module)
            written = perf_counter() - began
    return SimpleNamespace(seconds=seconds, written=written)


class SkipEnds(pl.Callback):
    """Only what comes between lots."""

    def __init__(self, checkpoints):
        self._checkpoints = checkpoints

    def on_train_batch_end(self, *arguments):
        """As it is."""
        self._checkpoints.on_train_batch_end(*arguments)


def main() -> None:
    """Measures, prints, writes."""
    plan = private_plan(steps=STEPS, epsilon=None)
    times = {"memory": [], "durable": []}
    written = []
    for _ in range(TURNS):
        for name in times:
            with tempfile.TemporaryDirectory(dir=".") as folder:
                found = one_run(plan, Path(folder), durable=name == "durable")
            times[name].append(found.seconds)
            written += [found.written] if found.written else []
    lowest = {name: sorted(values)[len(values) // 10] for name, values in times.items()}
    checkpoint = statistics.median(written)
    result = {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "median_ms_per_lot": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "lowest_tenth_ms_per_lot": {name: 1e3 * value for name, value in lowest.items()},
        "ledger_share": lowest["durable"] / lowest["memory"] - 1,
        "checkpoint_ms": 1e3 * checkpoint,
        "checkpoint_share": checkpoint / EVERY_SECONDS,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
