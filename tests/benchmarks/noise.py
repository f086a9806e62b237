"""What noise costs: `python -m tests.benchmarks.noise` (prints, writes outputs/benchmarks/noise.json).

Two questions. How long does one draw of the paper's MLP (71,010 values) take? And how much longer is a
training step of that MLP with it? Variants take turns within one run, so that other
jobs on the machine slow all of them alike. Medians say what this machine did; the lowest tenth says what it
does when nothing else runs, which is what shares of the step are taken from.
"""

import json
import os
import platform
import statistics
from collections.abc import Callable
from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import nn

from dpexp.allocator import keep_freed_memory
from dpexp.noise import GaussianNoise, Noise, SecureGaussianNoise
from dpexp.streams import Stream

SIZE = 71_010  # 60·1000 + 1000 + 1000·10 + 10: Abadi et al. (2016), section 5.1
LOT = 600
TURNS = 200
WARM_UP = 20
THREADS = (1, os.cpu_count() or 1)
OUTPUT = Path("outputs/benchmarks/noise.json")

Times = dict[str, list[float]]


def main() -> None:
    """Measures, prints, writes."""
    keep_freed_memory()  # as in every run
    draws = take_turns(draw_variants())
    step = {}
    for threads in THREADS:
        torch.set_num_threads(threads)
        steps, waits = step_variants()
        step[f"torch_threads={threads}"] = summarize(take_turns(steps), waits)
    result = {
        "machine": {
            "date": date.today().isoformat(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "versions": {"numpy": np.__version__, "torch": torch.__version__},
        },
        "size": SIZE,
        "draw": {name: milliseconds(times) for name, times in draws.items()},
        "step": step,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


def milliseconds(times: list[float]) -> dict[str, float]:
    """Median, and the border of the lowest tenth."""
    lowest = statistics.quantiles(times, n=10)[0]
    return {"median_ms": round(1e3 * statistics.median(times), 4), "low_ms": round(1e3 * lowest, 4)}


def take_turns(variants: dict[str, Callable[[int], object]]) -> Times:
    """Seconds of each variant at each turn, all variants once per turn."""
    times: Times = {name: [] for name in variants}
    for turn in range(WARM_UP + TURNS):
        for name, variant in variants.items():
            start = perf_counter()
            variant(turn)
            if turn >= WARM_UP:
                times[name].append(perf_counter() - start)
    return times


def draw_variants() -> dict[str, Callable[[int], object]]:
    """One draw of SIZE values, in every way that was considered."""
    default, secure = GaussianNoise(Stream.keyed_by(0)), SecureGaussianNoise(Stream.keyed_by(0))
    variants: dict[str, Callable[[int], object]] = {
        "dpexp default": lambda turn: default.standard_normal(turn, SIZE),
        "dpexp secure": lambda turn: secure.standard_normal(turn, SIZE),
        "torch float32 (cut at 5.77σ)": lambda _: torch.randn(SIZE),
        "torch float64": lambda _: torch.randn(SIZE, dtype=torch.float64),
    }
    for bits in (np.random.SFC64, np.random.PCG64DXSM, np.random.Philox):
        generator = np.random.Generator(bits(0))
        variants[f"numpy float64 {bits.__name__}"] = lambda _, g=generator: g.standard_normal(SIZE)
    fast = np.random.Generator(np.random.SFC64(0))
    variants["numpy 2 × float32 SFC64, /√2"] = lambda _: two_floats(fast)
    return variants


def two_floats(generator: np.random.Generator) -> np.ndarray:
    total = generator.standard_normal(SIZE, dtype=np.float32)
    total += generator.standard_normal(SIZE, dtype=np.float32)
    total *= np.float32(0.5**0.5)
    return total


class Step:
    """Plain SGD on the paper's MLP, with a noise of one's choice added to the gradients."""

    def __init__(self, noise: Noise | None) -> None:
        self.noise, self.waits = noise, list[float]()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(60, 1000), nn.ReLU(), nn.Linear(1000, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.inputs, self.targets = torch.rand(LOT, 60), torch.randint(10, (LOT,))

    def __call__(self, turn: int) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.inputs), self.targets).backward()
        if self.noise is not None:
            self.add(self.noise, turn)
        self.optimizer.step()

    def add(self, noise: Noise, turn: int) -> None:
        start = perf_counter()
        draws = torch.from_numpy(noise.standard_normal(turn, SIZE))
        if turn >= WARM_UP:
            self.waits.append(perf_counter() - start)
        parameters = list(self.model.parameters())
        parts = draws.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad.add_(part.view_as(parameter).to(parameter.dtype), alpha=1e-3)


class Ready:
    """Draws that cost nothing: what is left is adding them."""

    def __init__(self) -> None:
        self.draws = np.random.default_rng(0).standard_normal(SIZE)

    def standard_normal(self, position: int, size: int) -> np.ndarray:
        return self.draws


def step_variants() -> tuple[dict[str, Callable[[int], object]], Times]:
    """Steps by name, and the time each waited for its draws."""
    default, secure = GaussianNoise(Stream.keyed_by(0)), SecureGaussianNoise(Stream.keyed_by(0))
    noises: dict[str, Noise | None] = {
        "no noise": None,
        "free draws": Ready(),
        "default": default,
        "secure": secure,
    }
    steps = {name: Step(noise) for name, noise in noises.items()}
    return dict(steps), {name: step.waits for name, step in steps.items()}


def summarize(stepped: Times, waits: Times) -> dict[str, dict[str, float]]:
    """Step, wait for draws on the critical path, and what drawing adds to a step whose draws are free."""
    steps = {name: milliseconds(times) for name, times in stepped.items()}
    bare, free = steps["no noise"]["low_ms"], steps["free draws"]["low_ms"]
    summary = {}
    for name, step in steps.items():
        waited = milliseconds(waits[name])["low_ms"] if waits[name] else 0.0
        added = 0.0 if name == "no noise" else step["low_ms"] - free
        summary[name] = step | {
            "wait_low_ms": waited,
            "wait_share": round(waited / bare, 3),
            "added_share": round(added / bare, 3),
        }
    return summary


def show(result: dict) -> None:
    print(f"{SIZE} draws, {TURNS} turns, load {result['machine']['load']:.1f}\n")
    print(f"{'one draw':30} {'median':>11} {'low':>11}")
    for name, row in result["draw"].items():
        print(f"{name:30} {row['median_ms']:8.3f} ms {row['low_ms']:8.3f} ms")
    for threads, rows in result["step"].items():
        print(f"\n{'MLP step, ' + threads:30} {'median':>11} {'low':>11} {'wait':>15} {'adds':>6}")
        for name, row in rows.items():
            cells = f"{row['median_ms']:8.3f} ms {row['low_ms']:8.3f} ms {row['wait_low_ms']:8.3f} ms"
            print(f"{name:30} {cells} {100 * row['wait_share']:2.0f} % {100 * row['added_share']:4.0f} %")
    print(f"\nwritten to {OUTPUT}")


if __name__ == "__main__":
    main()
