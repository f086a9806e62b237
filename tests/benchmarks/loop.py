"""The training loop beside the bare step: `python -m tests.benchmarks.loop [--lots N] [--threads N]`.

One run of the paper's MLP (60-1000-10, N = 60,000, L = 600, σ = 4, C = 4) as users run it: Lightning, Poisson
lots, ledger, noise, ε, logging to MLflow at the default rate. After each of its lots a bare step of another
model is taken and timed, and its time is left out of the loop's: in turns a step of Algorithm 1 (clipped
sums, noise, ÷ L, descend) and one without its noise. All are medians over stretches of lots, so that other
jobs on the machine slow all alike.
"""

import argparse
import json
import statistics
import tempfile
from itertools import count, cycle
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
from dpexp.gradients import grouped_clipped_sum
from dpexp.ledger import Ledger
from dpexp.models import MLP
from dpexp.module import DPModule, classification_loss
from dpexp.noise import GaussianNoise
from dpexp.sanitizer import Sanitizer
from dpexp.schedules import Constant
from dpexp.streams import Stream
from dpexp.tracking import MLflowTracking
from dpexp.trainer import fit, make_trainer
from tests.benchmarks.models import MODELS
from tests.benchmarks.step import machine, seconds
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
    """Takes one of the bare steps after each lot, and tells its time from the loop's."""

    def __init__(self, steps):
        self.times = {name: [] for name in ("loop", *steps)}
        self._turns = cycle(steps.items())
        self._mark = None

    def on_train_batch_end(self, trainer, pl_module, *_):
        if self._mark is not None:
            self.times["loop"].append(perf_counter() - self._mark)
        name, step = next(self._turns)
        self.times[name].append(seconds(step))
        self._mark = perf_counter()


def algorithm_1(plan):
    """Clip, sum, add noise, divide by L, descend: on the same 600 rows each time."""
    model, inputs, targets = MODELS["mlp"]()
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1)
    sanitizer = Sanitizer(plan.assign(list(parameters)), GaussianNoise(Stream.secret()))
    indices = count()

    def step():
        now = plan.step(next(indices) % plan.steps)
        found = grouped_clipped_sum(model, classification_loss, inputs, targets, sanitizer.clips(now, {}))
        for name, gradient in sanitizer.release(found.sums, now).items():
            parameters[name].grad = gradient
        optimizer.step()

    return step


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
    without_noise = VARIANTS["dpexp"](*MODELS["mlp"](), 600)
    beside = Beside({"without_noise": without_noise, "algorithm_1": algorithm_1(plan)})
    with tempfile.TemporaryDirectory() as folder:
        tracking = MLflowTracking(uri=None, experiment=None, outputs=folder, every=10)
        with tracking.run(name="loop", run_name="loop") as record:
            callbacks = [Trajectory(record, every=10, validation="val"), beside]
            trainer = make_trainer(pl.Trainer, plan=plan, callbacks=callbacks, folder=Path(folder))
            fit(trainer, module, datamodule)
    return beside.times


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
    found = {name: medians(times) for name, times in run(arguments.lots).items()}
    ratios = {f"loop_to_{name}": found["loop"] / found[name] for name in found if name != "loop"}
    result = {f"{name}_ms": round(value, 3) for name, value in found.items()}
    result |= {name: round(ratio, 3) for name, ratio in ratios.items()}
    print(*(f"{name} {value}" for name, value in result.items()), sep="\n")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
