"""The cost of one private step, side by side: `python -m tests.benchmarks.step [options] [models…]`.

Every variant takes the physical batch size that suits it best. Times are medians of interleaved rounds; a
ratio is that of medians, to plain SGD. Peak memory is that of one step at the size that suits dpexp best,
above a warm process.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import torch

from dpexp.allocator import keep_freed_memory
from tests.benchmarks.models import MODELS
from tests.benchmarks.variants import COMPILED, VARIANTS

OUTPUT = Path("outputs/benchmarks/step.json")
SIZES = {"mlp": (600, 300), "cnn": (600, 100), "resnet": (256, 64, 32), "transformer": (32, 16, 8)}
ROUNDS = {"mlp": 101, "cnn": 25, "resnet": 9, "transformer": 5}


def seconds(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def shortest(step):
    """Of two tries, or of as many as half a second holds."""
    times = [seconds(step), seconds(step)]
    while sum(times) < 0.5:
        times.append(seconds(step))
    return min(times)


def prepare(name, variant, rows, variants):
    """The step at the size that suits it best, or the reason why it cannot run."""
    trials = []
    for size in sorted({min(size, rows) for size in SIZES[name]}):
        torch.manual_seed(0)
        model, inputs, targets = MODELS[name]()
        try:
            step = variants[variant](model, inputs[:rows], targets[:rows], size)
            step()
            trials.append((shortest(step), size, step))
        except Exception as error:  # noqa: BLE001
            return None, None, f"{type(error).__name__}: {error}"
    _, size, step = min(trials, key=lambda trial: trial[0])
    return step, size, None


def measure(name, quick, variants):
    rows = 8 if quick else max(SIZES[name])
    prepared = {variant: prepare(name, variant, rows, variants) for variant in variants}
    times = {variant: [] for variant, (step, _, _) in prepared.items() if step}
    for _ in range(1 if quick else ROUNDS[name]):
        for variant in times:
            times[variant].append(seconds(prepared[variant][0]))
    medians = {variant: 1000 * statistics.median(values) for variant, values in times.items()}
    size = prepared["dpexp"][1]
    return {
        variant: result(medians.get(variant), medians["sgd"], own_size, reason)
        | {"peak_mb": peak(name, variant, size) if variant in medians else None}
        for variant, (_, own_size, reason) in prepared.items()
    }


def result(median, reference, size, reason):
    if median is None:
        return {"median_ms": None, "ratio": None, "reason": reason}
    return {
        "median_ms": round(median, 3),
        "ratio": round(median / reference, 3),
        "physical_batch_size": size,
    }


def peak(name, variant, size):
    command = [sys.executable, "-m", "tests.benchmarks.peak", name, variant, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return round(float(done.stdout.split()[-1]), 1) if done.returncode == 0 else None


def table(results):
    lines = ["| model | variant | batch | median ms | ratio | peak MB |", "|---|---|---|---|---|---|"]
    for name, variants in results.items():
        for variant, found in variants.items():
            if found["median_ms"] is None:
                lines.append(f"| {name} | {variant} | | {found['reason'][:60]} | | |")
                continue
            size, milliseconds, ratio = (found[k] for k in ("physical_batch_size", "median_ms", "ratio"))
            lines.append(
                f"| {name} | {variant} | {size} | {milliseconds:.2f} | {ratio:.2f} | {found['peak_mb']} |"
            )
    return "\n".join(lines)


def machine():
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{date.today()}, {platform.machine()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, load {load:.1f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--quick", action="store_true", help="few rows, one round: a smoke test")
    parser.add_argument("--compiled", action="store_true", help="also compile=inductor, minutes to compile")
    parser.add_argument("--threads", type=int, help="threads of torch; the default is its own")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as in every run; it quickens all variants
    print(machine())
    variants = VARIANTS | COMPILED if arguments.compiled else VARIANTS
    results = {name: measure(name, arguments.quick, variants) for name in arguments.models or MODELS}
    print(table(results))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
