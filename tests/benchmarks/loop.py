"""The training loop beside the bare step: `python -m tests.benchmarks.loop [--lots N] [--threads N]`.

One run of the paper's MLP (60-1000-10, N = 60,000, L = 600, σ = 4, C = 4) as users run it: Lightning, Poisson
lots, ledger, noise, ε, logging to MLflow at the default rate. After each of its lots the bare step (clipped
sums, ÷ L, descend; no noise, no lots) of another model is taken and timed, and its time is left out of the
loop's. Both are medians over stretches of 50 lots, so that other jobs on the machine slow both alike.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pytorch_lightning as pl
import torch

from dpexp.allocator import keep_freed_memory
from dpexp.callbacks import Trajectory
from dpexp.data import Dataset, Examples, Splits
from dpexp.datamodule import LotDataModule
from dpexp.features import NoFeatures
from dpexp.ledger import Ledger
from dpexp.models import MLP
from dpexp.module import DPModule
from dpexp.noise import GaussianNoise
from dpexp.schedules import Constant
from dpexp.streams import Stream
from dpexp.tracking import MLflowTracking
from dpexp.trainer import fit, make_trainer
from tests.benchmarks.models import MODELS
from tests.benchmarks.step import machine
from tests.benchmarks.variants import VARIANTS
from tests.plans import private_plan

OUTPUT = Path("outputs/benchmarks/loop.json")
STRETCH = 50


class Synthetic(Dataset):
    """60,000 rows of 60 features."""

    def load(self):
        rng = np.random.default_rng(0)
        test = examples(rng, 1000)
        return Splits(train=examples(rng, 60_000), validation=test, test=test, validation_is_test=True)


def examples(rng, rows):
    return Examples(
        inputs=rng.standard_normal((rows, 60), dtype=np.float32), targets=rng.integers(10, size=rows)
    )


class Beside(pl.Callback):
    """Takes the bare step after each lot, and tells its time from the loop's."""

    def __init__(self, step):
        self.step, self.loop, self.bare = step, [], []
        self._mark = None

    def on_train_batch_end(self, trainer, pl_module, *_):
        now = perf_counter()
        if self._mark is not None:
            self.loop.append(now - self._mark)
        self.step()
        self._mark = perf_counter()
        self.bare.append(self._mark - now)


def run(lots):
    torch.manual_seed(0)
    plan = private_plan(steps=lots, epsilon=None)
    ledger, stream = Ledger(plan), Stream.secret()
    module = DPModule(
        model=MLP(in_features=60, hidden_units=[1000], out_features=10),
        plan=plan,
        ledger=ledger,
        noise=GaussianNoise(stream.child("noise")),
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1),
        learning_rate=Constant(0.1),
        physical_batch_size=None,
    )
    data = Synthetic(
        name="synthetic",
        num_examples=60_000,
        num_classes=10,
        dimensions=60,
        validation_split="public",
        test_split="public",
    )
    datamodule = LotDataModule(
        plan=plan,
        data=data,
        features=NoFeatures(inputs=60, dimensions=60),
        ledger=ledger,
        lots=stream.child("lots"),
        noise=GaussianNoise(stream.child("features")),
    )
    beside = Beside(VARIANTS["dpexp"](*MODELS["mlp"](), 600))
    with tempfile.TemporaryDirectory() as folder:
        tracking = MLflowTracking(uri=None, experiment=None, outputs=folder, every=10)
        with tracking.run(name="loop", run_name="loop") as record:
            callbacks = [Trajectory(record, every=10, validation="val"), beside]
            trainer = make_trainer(pl.Trainer, plan=plan, callbacks=callbacks, folder=Path(folder))
            fit(trainer, module, datamodule)
    return beside


def medians(times):
    """Median over stretches of the mean of each: every tenth lot logs, so single lots are not alike."""
    stretches = [times[start : start + STRETCH] for start in range(STRETCH, len(times), STRETCH)]
    return 1000 * statistics.median(statistics.fmean(stretch) for stretch in stretches)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lots", type=int, default=1500)
    parser.add_argument("--threads", type=int, help="threads of torch; the default is its own")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as in every run; it quickens both
    print(machine())
    beside = run(arguments.lots)
    loop, bare = medians(beside.loop), medians(beside.bare)
    print(f"bare step {bare:.2f} ms, whole loop {loop:.2f} ms a lot, ratio {loop / bare:.2f}")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    result = {"bare_ms": round(bare, 3), "loop_ms": round(loop, 3), "ratio": round(loop / bare, 3)}
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
