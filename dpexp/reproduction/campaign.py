"""The runs that a figure needs: composed, trained where they are missing, collected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from rich.console import Console

from dpexp import _validate
from dpexp.experiment import Experiment
from dpexp.plan import PrivacyPlan
from dpexp.price import Charged
from dpexp.reproduction.archive import FIGURE_TAG, Archive, StoredRun, agrees

__all__ = ["Campaign", "Outcome", "Point"]


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a figure.

    Attributes:
        panel: The part of the figure.
        value: Where in it: the x of Figure 5, 0 in others.
        experiment: What is trained.
        plan: Its privacy arithmetic.
        overrides: What, added to the figure's command, makes the same run.
    """

    panel: str
    value: float
    experiment: Experiment
    plan: PrivacyPlan
    overrides: tuple[str, ...]

    def is_of(self, run: StoredRun) -> bool:
        """Whether the stored run is of this configuration."""
        varied = {override.lstrip("+").split("=")[0] for override in self.overrides}
        return agrees(run.params, self.experiment.config, varied)


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A point and the run that it came to."""

    point: Point
    run: StoredRun

    @property
    def accuracy(self) -> float:
        """On the test split, of the last parameters."""
        return self.run.metrics["final/accuracy"]


@final
class Campaign:
    """All runs of a figure. Finished ones are found in the store by their configuration and not repeated.

    Args:
        figure: Name of the figure, of the MLflow experiment and of the files.
        experiment: The one that the command line asks for; the overrides given there hold for every run.

    Raises:
        UserError: The command line also chooses an experiment, or it was not composed from files.
    """

    def __init__(self, figure: str, experiment: Experiment) -> None:
        if experiment.name != "adhoc":
            hint = f"The runs of task={figure} are listed in conf/task/{figure}.yaml; leave +experiment out."
            raise _validate.refuse("experiment", experiment.name, "none", hint)
        name = experiment.tracking.experiment or figure
        self._figure = figure
        self._vary = _composer(experiment)
        self._tracking = replace(experiment.tracking, experiment=name)
        self.archive = Archive(self._tracking, figure)
        self.folder = experiment.tracking.folder / "figures"

    def point(self, panel: str, value: float, overrides: Sequence[str], seed: int) -> Point:
        """The run with these overrides and this seed; its plan is made, so what cannot be is refused now."""
        asked = (*overrides, f"seed={seed}")
        varied = self._vary(asked)
        if "private" in (varied.data.test_privacy, varied.data.validation_privacy):
            found = {"test": varied.data.test_privacy, "validation": varied.data.validation_privacy}
            raise _validate.refuse("data splits", found, "public ones: a figure shows the accuracy on both")
        tags = {FIGURE_TAG: self._figure, "dpexp.panel": panel, "dpexp.value": f"{value:g}"}
        recorded = replace(varied, tracking=self._tracking, tags=tags)
        return Point(panel=panel, value=value, experiment=recorded, plan=varied.plan(), overrides=asked)

    def complete(self, points: Sequence[Point], console: Console) -> None:
        """Trains the points that have no finished run, one after another, the shortest first."""
        from dpexp.training import train  # imports torch and Lightning

        runs = self.archive.runs()
        missing = [point for point in points if _finished(point, runs) is None]
        missing.sort(key=lambda point: point.plan.steps)
        console.print(f"{self._figure}: {len(points) - len(missing)} of {len(points)} runs are in the store")
        for number, point in enumerate(missing, start=1):
            if _finished(point, self.archive.runs()) is not None:
                continue  # the reference belongs to several panels, and is trained once
            console.rule(f"{self._figure}, run {number} of {len(missing)}: {' '.join(point.overrides)}")
            train(point.experiment)

    def collect(self, points: Sequence[Point]) -> list[Outcome]:
        """The finished runs of the points, in their order; points without one are left out."""
        runs = self.archive.runs()
        found = [(point, _finished(point, runs)) for point in points]
        return [Outcome(point=point, run=run) for point, run in found if run is not None]

    def charged(self, points: Sequence[Point]) -> list[Charged]:
        """All runs at these points, each whole: also those that did not finish."""
        owners = [(run, next((p for p in points if p.is_of(run)), None)) for run in self.archive.runs()]
        return [Charged.whole(point.plan) for _, point in owners if point is not None]


def _finished(point: Point, runs: Sequence[StoredRun]) -> StoredRun | None:
    return next((run for run in runs if run.finished and point.is_of(run)), None)


def _composer(experiment: Experiment) -> Callable[[Sequence[str]], Experiment]:
    if experiment.vary is None:
        raise _validate.refuse(
            "Experiment.vary", None, "a function that makes an experiment from overrides, as the CLI gives"
        )
    return experiment.vary
