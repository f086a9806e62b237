"""What drawing a lot costs, beside the step of the paper's MLP: `python -m tests.benchmarks.lots`.

For N = 60,000 and 10⁸ rows and lots of 600: microseconds a lot, an epoch's order shared by its lots.
"""

import statistics
from time import perf_counter

import torch
from torch.nn.functional import cross_entropy

from dpexp.gradients import clipped_sum
from dpexp.lots import LotSource, LotStep
from dpexp.models import MLP
from dpexp.streams import Stream
from tests.lots.drawing import SAMPLINGS

SIZE = 600
ROWS = (60_000, 99_999_600)  # multiples of the lot
LOTS = 2000


def main() -> None:
    """Prints the table."""
    step = step_microseconds()
    print(f"step of the MLP 60-1000-10 with clipping, lot of {SIZE}: {step:,.0f} µs\n")
    print(f"{'sampler':15} {'rows':>12} {'µs a lot':>10} {'of a step':>10} {'order of an epoch':>18}")
    for num_rows in ROWS:
        for sampling in SAMPLINGS:
            lot, epoch = lot_microseconds(sampling, num_rows)
            per_lot = lot + epoch * SIZE / num_rows
            print(
                f"{sampling.name:15} {num_rows:12,} {per_lot:10.1f} {per_lot / step:10.2%} "
                f"{epoch / 1e6:16.3f} s"
            )


def lot_microseconds(sampling, num_rows: int) -> tuple[float, float]:
    """Median time of one lot, and what the first lot of an epoch takes above that."""
    source = LotSource(sampling, Stream.keyed_by(0), num_rows)
    step = [LotStep(name="common", size=SIZE, sampling_probability=SIZE / num_rows)]
    epoch = max(num_rows // SIZE, 1) if sampling.by_epoch else LOTS
    first, rest = [], []
    for index in range(min(LOTS, 20 * epoch)):
        start = perf_counter()
        source.draw(index, step)
        (rest if index % epoch else first).append(1e6 * (perf_counter() - start))
    lot = statistics.median(rest)
    return lot, max(statistics.median(first) - lot, 0.0) if sampling.by_epoch else 0.0


def step_microseconds() -> float:
    """Median time of the clipped sum of one lot."""
    torch.manual_seed(0)
    model, inputs, targets = MLP(60, [1000], 10), torch.rand(SIZE, 60), torch.randint(10, (SIZE,))
    times = []
    for _ in range(60):
        start = perf_counter()
        clipped_sum(
            model, lambda out, y: cross_entropy(out, y, reduction="none"), inputs, targets, clip_norm=1.0
        )
        times.append(1e6 * (perf_counter() - start))
    return statistics.median(times[10:])


if __name__ == "__main__":
    main()
