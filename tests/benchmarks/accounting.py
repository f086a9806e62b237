"""Speed of the accountants side by side with their peers: python -m tests.benchmarks.accounting.

Every repetition asks a question of its own (another σ, another ε), so that no cache answers it. All run in
one process. Prints a table and writes outputs/benchmarks/accounting.json.
"""

import importlib.util
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dpexp import accounting

OUTPUT = Path(__file__).parents[2] / "outputs" / "benchmarks" / "accounting.json"
Q, SIGMA, STEPS, DELTA = 0.01, 4.0, 10_000, 1e-5  # Fig. 2 of Abadi et al. (2016) at 100 epochs
ADD = accounting.Relation.ADD_OR_REMOVE_ONE


@dataclass(frozen=True)
class Row:
    """One measurement: a task, who does it, and how long one answer takes."""

    task: str
    who: str
    milliseconds: float | None
    answer: float | None
    note: str = ""


Question = Callable[[int], float]
Case = tuple[str, str, Question, int, str, float]


def main() -> None:
    """Measures everything, prints the table, writes the JSON."""
    warnings.simplefilter("ignore")
    cases = (*queries(), *trajectories(), *tight(), *microsoft(), *calibrations())
    rows = [measure(*case) for case in cases]
    if not microsoft():
        rows.append(Row("tight ε", "prv-accountant", None, None, 'not installed: pip install -e ".[bench]"'))
    print(table(rows))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def measure(task: str, who: str, question: Question, repetitions: int, note: str, scale: float) -> Row:
    """The median of several answers after one to warm up, times `scale`."""
    times = []
    answer = question(0)
    for turn in range(1, repetitions + 1):
        start = time.perf_counter()
        answer = question(turn)
        times.append(time.perf_counter() - start)
    return Row(task, who, scale * 1e3 * statistics.median(times), answer, note)


def table(rows: list[Row]) -> str:
    """Markdown, with the ratio to the first row of each task."""
    lines = ["| task | who | median | ratio | answer | note |", "|---|---|---|---|---|---|"]
    for row in rows:
        first = next(other for other in rows if other.task == row.task)
        if row.milliseconds is None or first.milliseconds is None:
            lines.append(f"| {row.task} | {row.who} | - | - | - | {row.note} |")
            continue
        ratio = row.milliseconds / first.milliseconds
        lines.append(
            f"| {row.task} | {row.who} | {row.milliseconds:.4g} ms | {ratio:.3g} "
            f"| {row.answer:.6g} | {row.note} |"
        )
    return "\n".join(lines)


def queries() -> list[Case]:
    """ε from moments that are already there."""
    from dp_accounting import rdp
    from opacus.accountants.analysis import rdp as opacus

    task = "ε from cached moments"
    cases: list[Case] = []
    for name in ("moments", "rdp"):
        accountant = accounting.as_accountant(name)
        cost = STEPS * accountant.price(step(SIGMA), ADD)
        cases.append(
            (task, f"dpexp {name}", lambda _, a=accountant, c=cost: a.epsilon(c, DELTA, ADD), 2000, "", 1.0)
        )
    orders = opacus_orders()
    curve = opacus.compute_rdp(q=Q, noise_multiplier=SIGMA, steps=STEPS, orders=orders)
    ask = lambda _: opacus.get_privacy_spent(orders=orders, rdp=curve, delta=DELTA)[0]  # noqa: E731
    google = rdp.RdpAccountant()
    google.compose(dp_event(SIGMA), STEPS)
    return [
        *cases,
        (task, "opacus rdp", ask, 500, "", 1.0),
        (task, "dp-accounting rdp", lambda _: google.get_epsilon(DELTA), 500, "", 1.0),
    ]


def trajectories() -> list[Case]:
    """ε after each of 20,000 steps."""
    from opacus.accountants.analysis import rdp as opacus

    task, steps, sample = "ε of 20,000 steps", 20_000, 100

    def ours(name: str) -> Question:
        run = {"sampling_probability": Q, "steps": steps, "delta": DELTA, "accountant": name}
        return lambda turn: float(accounting.epsilons(noise_multiplier=SIGMA + 1e-6 * turn, **run)[-1])

    def theirs(turn: int) -> float:
        orders = opacus_orders()
        one = np.asarray(opacus.compute_rdp(q=Q, noise_multiplier=SIGMA, steps=1, orders=orders))
        counts = np.linspace(1, steps, sample)
        return [opacus.get_privacy_spent(orders=orders, rdp=t * one, delta=DELTA)[0] for t in counts][-1]

    return [
        (task, "dpexp rdp", ours("rdp"), 20, "", 1.0),
        (task, "dpexp moments", ours("moments"), 20, "", 1.0),
        (
            task,
            "opacus rdp",
            theirs,
            5,
            f"from {sample} of the 20,000 steps",
            steps / sample,
        ),
    ]


def tight() -> list[Case]:
    """The tight ε."""
    from dp_accounting import pld

    task = "tight ε"
    run = {"sampling_probability": Q, "steps": STEPS, "delta": DELTA}
    cases: list[Case] = []
    for name, kind in (("exact", "estimate"), ("pld", "certified")):
        if available(name):
            ask = lambda turn, n=name: float(  # noqa: E731
                accounting.epsilon(noise_multiplier=SIGMA + 1e-6 * turn, accountant=n, **run)
            )
            cases.append((task, f"dpexp {name}", ask, 7, kind, 1.0))

    def google(turn: int) -> float:
        accountant = pld.PLDAccountant()
        accountant.compose(dp_event(SIGMA + 1e-6 * turn), STEPS)
        return accountant.get_epsilon(DELTA)

    return [*cases, (task, "dp-accounting pld", google, 5, "certified, interval 1e-4", 1.0)]


def calibrations() -> list[Case]:
    """σ for ε = 1."""
    import dp_accounting
    from dp_accounting import pld, rdp
    from opacus.accountants.utils import get_noise_multiplier

    task = "σ for ε = 1"
    run = {"sampling_probability": Q, "steps": STEPS, "delta": DELTA}

    def ours(name: str) -> Question:
        return lambda turn: float(
            accounting.noise_multiplier(epsilon=1 + 1e-5 * turn, accountant=name, **run)
        )

    def opacus(turn: int) -> float:
        return get_noise_multiplier(
            target_epsilon=1 + 1e-5 * turn, target_delta=DELTA, sample_rate=Q, steps=STEPS, accountant="rdp"
        )

    def google(fresh: Callable[[], dp_accounting.PrivacyAccountant]) -> Question:
        def make(sigma: float) -> dp_accounting.DpEvent:
            return dp_accounting.SelfComposedDpEvent(dp_event(sigma), STEPS)

        bracket = dp_accounting.LowerEndpointAndGuess(0.5, 4.0)
        return lambda turn: dp_accounting.calibrate_dp_mechanism(
            fresh, make, 1 + 1e-5 * turn, DELTA, bracket, tol=1e-5
        )

    names = [name for name in ("rdp", "moments", "pld", "exact") if available(name)]
    return [
        *[(task, f"dpexp {name}", ours(name), 5, "within 1e-5", 1.0) for name in names],
        (task, "opacus rdp", opacus, 5, "ε within 0.01", 1.0),
        (task, "dp-accounting rdp", google(rdp.RdpAccountant), 3, "within 1e-5", 1.0),
        (task, "dp-accounting pld", google(pld.PLDAccountant), 1, "within 1e-5", 1.0),
    ]


def microsoft() -> list[Case]:
    """The tight ε by prv-accountant (extra `bench`); it offers no calibration."""
    if not importlib.util.find_spec("prv_accountant"):
        return []
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    def ask(turn: int) -> float:
        release = PoissonSubsampledGaussianMechanism(
            sampling_probability=Q, noise_multiplier=SIGMA + 1e-6 * turn
        )
        accountant = PRVAccountant(
            prvs=[release], max_self_compositions=[STEPS], eps_error=0.01, delta_error=DELTA / 1000
        )
        return accountant.compute_epsilon(delta=DELTA, num_self_compositions=[STEPS])[2]

    return [("tight ε", "prv-accountant", ask, 3, "upper end, ε within 0.01", 1.0)]


def available(name: str) -> bool:
    """Whether this accountant is part of the build."""
    module = accounting.accountants_by_name[name].rpartition(".")[0]
    return importlib.util.find_spec(module) is not None


def opacus_orders() -> list[float]:
    """The orders Opacus uses unless told otherwise."""
    return [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))


def step(sigma: float) -> accounting.PoissonSampled:
    """One step in our words."""
    return accounting.PoissonSampled(
        gaussian=accounting.Gaussian(noise_multiplier=sigma), sampling_probability=Q
    )


def dp_event(sigma: float) -> object:
    """One step in dp-accounting's words."""
    from dp_accounting import dp_event as event

    return event.PoissonSampledDpEvent(Q, event.GaussianDpEvent(sigma))


if __name__ == "__main__":
    main()
