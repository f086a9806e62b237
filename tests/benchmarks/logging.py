"""What logging costs: `python -m tests.benchmarks.logging` (prints, writes outputs/benchmarks/logging.json).

One run of the main job's lots, model, noise and accountant on random rows, in stretches of lots that take
turns: one is recorded at the default rate, in a SQLite store on disk, the next is not, so that other jobs
on the machine slow both alike. Two answers: how much longer recorded lots take by the clock, while another
thread writes; and the seconds of a processor core spent in recording and writing, over those of the bare
lots, which hardly depend on what else runs. What a run stores at its beginning and end is timed apart.
"""

import json
import os
import statistics
import tempfile
from datetime import date
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, thread_time

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

PAIRS, STRETCH, EVERY = 10, 480, 10  # a stretch is several times the two seconds after which a run stores
OUTPUT = Path("outputs/benchmarks/logging.json")


class Timed:
    """A function, and the seconds of a core that calls of it have taken."""

    def __init__(self, function):
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments, **keywords):
        began = thread_time()
        try:
            return self._function(*arguments, **keywords)
        finally:
            self.seconds += thread_time() - began


class Alternately(pl.Callback):
    """Records every second stretch, and times all: seconds by the clock, and of all cores."""

    def __init__(self, run):
        trajectory = Trajectory(run, every=EVERY, validation="val")
        self.recording = Timed(trajectory.on_train_batch_end)
        self.writing = run.client.log_batch = Timed(run.client.log_batch)
        self.stretches = {"bare": [], "recorded": []}
        self._run, self._lots, self._marks = run, 0, (perf_counter(), process_time())

    def on_train_batch_end(self, *arguments):
        stretch, lot = divmod(self._lots, STRETCH)
        name = "recorded" if stretch % 2 else "bare"
        self._lots += 1
        if name == "recorded":
            self.recording(*arguments)
        if lot == STRETCH - 1:
            now = perf_counter(), process_time()
            self.stretches[name].append(
                [after - before for after, before in zip(now, self._marks, strict=True)]
            )
            self._run.flush()  # what is left of a recorded stretch is not its neighbor's to write
            self._marks = perf_counter(), process_time()


def trained(run, folder):
    """One training, timed."""
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
    return alternately


def longer(stretches):
    """How much longer a recorded stretch takes than the bare one before it: the median, as a share."""
    pairs = zip(stretches["recorded"], stretches["bare"], strict=True)
    ratios = [recorded / bare for (recorded, _), (bare, _) in pairs]
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
            timed = trained(run, folder)
            run.save_view(accuracy="final/accuracy")
            began = perf_counter()
        closed = perf_counter() - began
    bare_clock, bare_cores = zip(*timed.stretches["bare"], strict=True)
    result = {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "bare_ms_per_lot": 1e3 * statistics.median(bare_clock) / STRETCH,
        "longer_by_the_clock": longer(timed.stretches),
        "recording_of_cores": timed.recording.seconds / sum(bare_cores),
        "writing_of_cores": timed.writing.seconds / sum(bare_cores),
        "open_and_close_s": opened + closed,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
