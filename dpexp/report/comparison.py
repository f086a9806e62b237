"""Which runs may stand on one curve: series of equal terms, settings over seeds, lines without privacy."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from string import ascii_uppercase
from typing import Self, TypeVar, final

from dpexp.report.front import front
from dpexp.report.settings import Settings, setting_of
from dpexp.report.stored import StoredRun
from dpexp.report.terms import Terms, differing

__all__ = ["Baseline", "Comparison", "Point", "Series", "Undrawn"]

_T = TypeVar("_T")


@final
@dataclass(frozen=True)
class Point:
    """One setting: finished runs that differ only in seed.

    Attributes:
        name: What tells the setting apart within its series.
        runs: At least one, the oldest first; each has an accuracy.
    """

    name: str
    runs: tuple[StoredRun, ...]

    @cached_property
    def accuracies(self) -> tuple[float, ...]:
        """In [0, 1], one of each run."""
        return tuple(run.accuracy for run in self.runs if run.accuracy is not None)

    @cached_property
    def mean(self) -> float:
        """Of the accuracies; within them also where rounding would put it outside."""
        return min(max(fmean(self.accuracies), min(self.accuracies)), max(self.accuracies))

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """The ε of each run alone; empty without privacy."""
        return tuple(run.epsilon for run in self.runs if run.epsilon is not None)

    @cached_property
    def epsilon(self) -> float:
        """The greatest of them: what each of the runs keeps."""
        return max(self.epsilons)


@final
@dataclass(frozen=True)
class Series:
    """Settings whose ε hold under the same terms, and whose accuracies are of the same data.

    Attributes:
        letter: Its name in the report.
        terms: The terms.
        points: By ε.
    """

    letter: str
    terms: Terms
    points: tuple[Point, ...]

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """The points that no other one of the series beats in both ε and mean accuracy; by ε."""
        found = front([(point.epsilon, point.mean) for point in self.points])
        return tuple(point for index, point in enumerate(self.points) if index in found)

    @property
    def runs(self) -> list[StoredRun]:
        """All its runs."""
        return [run for point in self.points for run in point.runs]


@final
@dataclass(frozen=True)
class Baseline:
    """A setting without privacy, which has no ε.

    Attributes:
        experiment: The dpexp experiment.
        covered: Its accuracy is of a public test split.
        point: Its runs.
    """

    experiment: str
    covered: bool
    point: Point


@final
@dataclass(frozen=True)
class Undrawn:
    """A run that is listed and not drawn, and why."""

    run: StoredRun
    reason: str


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every run in exactly one place: a series, a baseline, or undrawn."""

    series: tuple[Series, ...]
    baselines: tuple[Baseline, ...]
    undrawn: tuple[Undrawn, ...]

    @classmethod
    def of(cls, runs: Iterable[StoredRun]) -> Self:
        """Sorts runs by what they can be compared with."""
        runs = sorted(runs, key=lambda run: (run.started, run.run_id))
        reasons = [(run, _why_not_drawn(run)) for run in runs]
        drawn = [run for run, reason in reasons if not reason]
        private = [run for run in drawn if run.epsilon is not None]
        by_terms = _grouped(private, Terms.of)
        series = [
            Series(_letter(number), terms, tuple(sorted(_points(of_terms), key=lambda point: point.epsilon)))
            for number, (terms, of_terms) in enumerate(by_terms.items())
        ]
        plain = [run for run in drawn if run.epsilon is None]
        baselines = [
            Baseline(experiment, not prefix, point)
            for (experiment, _, prefix), alike in _grouped(plain, _measured_on).items()
            for point in _points(alike)
        ]
        undrawn = [Undrawn(run, reason) for run, reason in reasons if reason]
        return cls(series=tuple(series), baselines=tuple(baselines), undrawn=tuple(undrawn))

    @cached_property
    def differences(self) -> list[str]:
        """In which terms the series differ."""
        return differing([series.terms for series in self.series])

    def label(self, series: Series) -> str:
        """What tells a series from the others."""
        words = series.terms.in_words(self.differences)
        return f"{series.letter}: {words or series.terms.experiment}"

    @property
    def runs(self) -> list[StoredRun]:
        """All of them."""
        drawn = [run for series in self.series for run in series.runs]
        plain = [run for baseline in self.baselines for run in baseline.point.runs]
        return [*drawn, *plain, *(undrawn.run for undrawn in self.undrawn)]


def _why_not_drawn(run: StoredRun) -> str:
    """Empty where it is drawn."""
    if not run.finished:
        return f"{run.status}: it did not come to its end" if run.status != "RUNNING" else "RUNNING"
    if run.accuracy is None:
        return "no test accuracy on record"
    if not (run.is_private or run.is_selection):
        return ""
    if run.epsilon is None:
        return "no final ε on record"
    return "ε = ∞: no accountant found a bound" if math.isinf(run.epsilon) else ""


def _measured_on(run: StoredRun) -> tuple[str, str, str]:
    data = f"{run.params.get('data.name')} {run.params.get('data.num_examples')}"
    return run.experiment, data, run.split_prefix


def _points(runs: Sequence[StoredRun]) -> list[Point]:
    settings = Settings(runs)
    return [Point(settings.name(alike[0]), tuple(alike)) for alike in _grouped(runs, setting_of).values()]


def _grouped(runs: Iterable[StoredRun], key: Callable[[StoredRun], _T]) -> dict[_T, list[StoredRun]]:
    """In the order in which the keys come."""
    found: dict[_T, list[StoredRun]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


def _letter(number: int) -> str:
    """A, B, …, Z, AA, AB and so on."""
    rest, last = divmod(number, len(ascii_uppercase))
    return (_letter(rest - 1) if rest else "") + ascii_uppercase[last]
