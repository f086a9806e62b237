"""What logging costs: `python -m tests.benchmarks.logging` (prints, writes outputs/benchmarks/logging.json).

One run of the main job's lots, model, noise and accountant on random rows, in stretches of lots that take
turns: one is recorded at the default rate, in a SQLite store on disk, the next is not. Other jobs on the
machine slow both alike. A recorded stretch ends when the store has all of it, so that nothing is left for its
neighbor; in a run the thread that writes has a core of its own where there is one. What a run stores at its
beginning and end is timed apart: it comes once.
"""

import json
import os
import statistics
import tempfile
from datetime import date
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import pytorch_lightning as pl
import torch

from dpexp.callbacks import Trajectory
from dpexp.ledger import Ledger
from dpexp.models import MLP
from dpexp.module import DPModule
from dpexp.noise import GaussianNoise
from dpexp.schedules import Constant
from dpexp.streams import Stream
from dpexp.tracking import MLflowTracking
from dpexp.trainer import fit, make_trainer
from tests.benchmarks.ledger import VALUES, Source
from tests.plans import PCA, PER_LAYER, private_plan

PAIRS, STRETCH, EVERY = 24, 160, 10  # about two seconds a stretch, after which a run stores what it has
OUTPUT = Path("outputs/benchmarks/logging.json")


class Alternately(pl.Callback):
    """Records every second stretch, and times all: seconds by the clock, and of all cores."""

    def __init__(self, run):
        self._run, self._trajectory = run, Trajectory(run, every=EVERY, validation="val")
        self._lots, self._marks = 0, (perf_counter(), process_time())
        self.stretches = {"bare": [], "recorded": []}

    def on_train_batch_end(self, *arguments):
        stretch, lot = divmod(self._lots, STRETCH)
        name = "recorded" if stretch % 2 else "bare"
        self._lots += 1
        if name == "recorded":
            self._trajectory.on_train_batch_end(*arguments)
        if lot == STRETCH - 1:
            if name == "recorded":
                self._run.flush()
            before, self._marks = self._marks, (perf_counter(), process_time())
            self.stretches[name].append([now - then for now, then in zip(self._marks, before, strict=True)])


def trained(run, folder):
    """The stretches of one training."""
    plan = private_plan(steps=2 * STRETCH * PAIRS, epsilon=2, layers=PER_LAYER, releases=[PCA])
    stream, alternately = Stream.secret(), Alternately(run)
    module = DPModule(
        model=MLP(VALUES, [1000], 10),
        plan=plan,
        ledger=Ledger(plan),
        noise=GaussianNoise(stream.child("noise")),
        optimizer=partial(torch.optim.SGD, lr=0.1),
        learning_rate=Constant(0.1),
        physical_batch_size=None,
    )
    trainer = make_trainer(
        partial(pl.Trainer, accelerator="cpu", devices=1, val_check_interval=10**6),
        plan=plan,
        callbacks=[alternately],
        folder=folder,
    )
    fit(trainer, module, Source(plan, stream.child("lots")))
    return alternately.stretches


def share(stretches, figure):
    """How much more a recorded stretch takes than the bare one before it: the median, as a share."""
    pairs = zip(stretches["recorded"], stretches["bare"], strict=True)
    ratios = [recorded[figure] / bare[figure] for recorded, bare in pairs]
    return statistics.median(ratios[1:]) - 1  # the first pair warms up


def main() -> None:
    """Measures, prints, writes."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).absolute()
        tracking = MLflowTracking(uri=None, experiment=None, outputs=str(folder), every=EVERY)
        with tracking.run(name="logging", run_name="makes the store"):
            pass
        began = perf_counter()
        with tracking.run(name="logging", run_name="one") as run:
            opened = perf_counter() - began
            stretches = trained(run, folder)
            run.save_view(accuracy="final/accuracy")
            began = perf_counter()
        closed = perf_counter() - began
    result = {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "bare_ms_per_lot": 1e3 * statistics.median(clock for clock, _ in stretches["bare"]) / STRETCH,
        "share_by_the_clock": share(stretches, 0),
        "share_of_cores": share(stretches, 1),
        "open_and_close_s": opened + closed,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
