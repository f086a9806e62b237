"""A report over 200 runs: `python -m tests.benchmarks.report` (also in outputs/benchmarks/report.json).

The runs are written by `log_batch` into a store of their own: 40 settings of five seeds, each with 1,000
points of ε and accuracy, and 100 of ε by each of two more accountants. The bar is 20 s, the imports of a
fresh process included; on a machine that others use, read the processor's seconds. Writing takes minutes.
"""

import json
import math
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

from tests.report.stores import Recorded, write

SIGMAS, SEEDS, POINTS = 40, 5, 1000
OUTPUT = Path("outputs/benchmarks/report.json")
STATEMENT = "ε = {epsilon} at δ = 1e-05: a proven upper bound.\n\n" + "Not covered: much. " * 60


def recorded(sigma, seed):
    """One run of 1,000 lots."""
    epsilons = [math.sqrt(lots / 500) / sigma for lots in range(1, POINTS + 1)]
    accuracies = [0.9 - 0.5 / math.sqrt(1 + lots / 20) - 0.02 * sigma for lots in range(1, POINTS + 1)]
    final = {"final/epsilon": epsilons[-1], "final/accuracy": accuracies[-1] + 0.01 * seed}
    return Recorded(
        name=f"σ={sigma:.2f} seed={seed}",
        seed=seed,
        params={"privacy.noise_multiplier": f"{sigma:.2f}"},
        tags={"dpexp.command": f"python -m dpexp +experiment=smoke privacy.noise_multiplier={sigma:.2f}"},
        metrics=final,
        series={
            "privacy/epsilon": epsilons,
            "privacy/epsilon_pld": [0.8 * epsilon for epsilon in epsilons[::10]],
            "privacy/epsilon_moments": [1.2 * epsilon for epsilon in epsilons[::10]],
            "val/accuracy": accuracies,
        },
        artifacts={"privacy_statement.txt": STATEMENT.format(epsilon=epsilons[-1])},
    )


def main():
    """Makes the store, times the command, and says how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder)
        started = perf_counter()
        write(
            outputs, [recorded(0.5 + number / 10, seed) for number in range(SIGMAS) for seed in range(SEEDS)]
        )
        print(f"{SIGMAS * SEEDS} runs of {POINTS} points written in {perf_counter() - started:.0f} s")
        command = [sys.executable, "-m", "dpexp", "task=report", f"tracking.outputs={outputs}"]
        started, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
        subprocess.run([*command, f"hydra.run.dir={folder}"], check=True, stdout=subprocess.DEVNULL)
        seconds, after = perf_counter() - started, getrusage(RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = (outputs / "reports" / "smoke" / "report.html").stat().st_size
    found = {"date": str(date.today()), "runs": SIGMAS * SEEDS, "seconds": round(seconds, 1)}
    found |= {"processor_seconds": round(processor, 1), "page_bytes": size}
    print(json.dumps(found, indent=2))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
