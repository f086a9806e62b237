"""How ε and accuracy went along training, for a few settings: read from the store, thinned for drawing."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar, final

from dpexp.report.comparison import Comparison, Point, Series
from dpexp.report.store import Store
from dpexp.report.stored import StoredRun

__all__ = [
    "MOST_COURSES",
    "MOST_SEEDS",
    "Accounted",
    "Course",
    "Reached",
    "Share",
    "chosen_points",
    "read_course",
    "thinned",
]

MOST_COURSES = 6  # settings whose trajectories are drawn
MOST_SEEDS = 5  # runs of each that are read for the spread
_MOST_POINTS = 500  # of a line
_EPSILON = re.compile(r"(privacy|estimate|asymptotic|heuristic|lower)/epsilon(?:_(\w+))?")
_T = TypeVar("_T")


@final
@dataclass(frozen=True)
class Reached:
    """Validation accuracy at one ε: mean, least and greatest over the seeds."""

    epsilon: float
    mean: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Accounted:
    """ε by the number of lots under one accountant.

    Attributes:
        accountant: Its name.
        kind: certified, estimate, asymptotic, heuristic or lower.
        configured: It is the one that the run was held to.
        points: (lots, ε), finite; only the last lot where the figure is known at the end alone.
    """

    accountant: str
    kind: str
    configured: bool
    points: tuple[tuple[int, float], ...]

    @property
    def label(self) -> str:
        """Name and kind."""
        return f"{self.accountant} ({self.kind}{', configured' if self.configured else ''})"


@final
@dataclass(frozen=True)
class Share:
    """ε that one part of a run would cost alone."""

    name: str
    epsilon: float
    kind: str


@final
@dataclass(frozen=True, kw_only=True)
class Course:
    """One setting along training.

    Attributes:
        letter: Of its series.
        point: The setting.
        caveats: What its figures are not.
        validation_covered: The validation split is public.
        reached: Accuracy along ε, thinned.
        accounted: ε of its first run under every accountant on record, the configured one first.
        shares: ε of each part of its first run alone; empty where the plan on record lacks them.
        statement: The privacy statement of its first run; None where there is none.
    """

    letter: str
    point: Point
    caveats: tuple[str, ...]
    validation_covered: bool
    reached: tuple[Reached, ...]
    accounted: tuple[Accounted, ...]
    shares: tuple[Share, ...]
    statement: str | None


def chosen_points(comparison: Comparison) -> list[tuple[Series, Point]]:
    """At most six settings: those on a front first, spread evenly over ε."""
    fronts = [(series, point) for series in comparison.series for point in series.front]
    others = [(series, p) for series in comparison.series for p in series.points if p not in series.front]
    chosen = thinned(fronts, MOST_COURSES)
    return [*chosen, *thinned(others, MOST_COURSES - len(chosen))]


def read_course(store: Store, series: Series, point: Point) -> Course:
    """Reads what one setting left in the store."""
    first = point.runs[0]
    uncovered = "nonprivate/val/accuracy"
    metric = uncovered if uncovered in first.metrics else "val/accuracy"
    runs = _comparable(point.runs)[:MOST_SEEDS]
    spent = [_spent(store, run) for run in runs]
    measured = [store.history(run, metric) for run in runs]
    return Course(
        letter=series.letter,
        point=point,
        caveats=tuple(series.terms.caveats),
        validation_covered=metric != uncovered,
        reached=tuple(thinned(_reached(spent, measured), _MOST_POINTS)),
        accounted=tuple(_accounted(store, first, _spent(store, first))),
        shares=() if first.is_selection else _shares(store.text(first, "plan.json")),
        statement=store.text(first, "privacy_statement.txt"),
    )


def _comparable(runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """Those without lost lots, else one: after an interruption no two runs are at the same lots any more."""
    whole = [run for run in runs if not run.metrics.get("final/forfeited_lots")]
    return whole or runs[:1]


def _spent(store: Store, run: StoredRun) -> Mapping[int, float]:
    """ε by lots; a private selection releases no trajectories, and its ε is not that of one plan."""
    return {} if run.is_selection else store.history(run, "privacy/epsilon")


def thinned(values: Sequence[_T], most: int) -> list[_T]:
    """At most so many of them, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[:most])
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def _reached(spent: Sequence[Mapping[int, float]], measured: Sequence[Mapping[int, float]]) -> list[Reached]:
    """Where every run has both figures; ε is the greatest of theirs."""
    everywhere = set.intersection(*({*e} & {*a} for e, a in zip(spent, measured, strict=True)))
    found = []
    for lots in sorted(everywhere):
        epsilon, accuracies = max(e[lots] for e in spent), [a[lots] for a in measured]
        if _drawable(epsilon) and all(map(math.isfinite, accuracies)):
            found.append(Reached(epsilon, fmean(accuracies), min(accuracies), max(accuracies)))
    return found


def _accounted(store: Store, run: StoredRun, configured: Mapping[int, float]) -> list[Accounted]:
    found = []
    for metric in sorted(run.metrics):
        match = _EPSILON.fullmatch(metric)
        if match is None:
            continue
        kind = "certified" if match[1] == "privacy" else match[1]
        if match[2] is None:
            kind = run.tags.get("dpexp.epsilon_kind", "certified")
        name = match[2] or run.tags.get("dpexp.accountant", "configured accountant")
        history = configured if metric == "privacy/epsilon" else store.history(run, metric)
        points = [(lots, epsilon) for lots, epsilon in history.items() if _drawable(epsilon)]
        if points:
            found.append(Accounted(name, kind, match[2] is None, tuple(thinned(points, _MOST_POINTS))))
    return sorted(found, key=lambda each: not each.configured)


def _drawable(epsilon: float) -> bool:
    return 0 <= epsilon < 1e300


def _shares(plan: str | None) -> tuple[Share, ...]:
    try:
        listed: Any = json.loads(plan or "{}").get("shares", [])
        found = [Share(str(each["name"]), float(each["value"]), str(each["kind"])) for each in listed]
    except (ValueError, TypeError, KeyError, AttributeError):  # of whoever wrote to the store
        return ()
    return tuple(share for share in found if _drawable(share.epsilon))
