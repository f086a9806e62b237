"""The points that trials are drawn from, and what may be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self, final

from dpexp import _validate
from dpexp.accounting import Composed, Event, Repeated
from dpexp.budgets import FIXED
from dpexp.experiment import Experiment
from dpexp.plan import PrivacyPlan

__all__ = ["Candidate", "Score", "Space"]

_METRICS = ("val/accuracy", "val/loss", "test/accuracy", "test/loss")
_SAME = ("data", "tracking", "budget")  # groups of the configuration


@final
@dataclass(frozen=True)
class Space:
    """A declared search space: a finite list for each key, from which points are drawn uniformly.

    Attributes:
        choices: For each key, its values as on the command line.
    """

    choices: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        if not self.choices:
            hint = "Give lists: hydra.sweeper.params, or optimizer.lr=0.1,0.5 on the command line."
            raise _validate.refuse("hydra.sweeper.params", {}, "at least one key with its values", hint)
        for key, values in self.choices.items():
            if len(set(values)) != len(values):
                hint = (
                    "Points are drawn uniformly, and a value that stands twice would be drawn twice as often."
                )
                raise _validate.refuse(f"hydra.sweeper.params.{key}", list(values), "different values", hint)

    @property
    def points(self) -> tuple[tuple[str, ...], ...]:
        """All points in order, each as overrides."""
        lists = ([f"{key}={value}" for value in values] for key, values in self.choices.items())
        return tuple(product(*lists))


@final
@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point of the space, as the experiment that it makes; its plan is made with it.

    Attributes:
        overrides: The point, as on the command line.
        experiment: What a trial on this point trains.
        plan: Its privacy arithmetic.
    """

    overrides: tuple[str, ...]
    experiment: Experiment
    plan: PrivacyPlan

    @classmethod
    def of(cls, overrides: Sequence[str], experiment: Experiment) -> Self:
        """The candidate, if a selection can price it.

        Raises:
            UserError: It cannot be planned, or it releases or charges something beside itself.
        """
        try:
            _check_alone(experiment)
            return cls(overrides=tuple(overrides), experiment=experiment, plan=_private_plan(experiment))
        except _validate.UserError as error:
            raise _validate.UserError(
                f"At the point {' '.join(overrides) or '(only one)'}: {error}"
            ) from error

    @property
    def event(self) -> Event:
        """All that one trial releases."""
        assert self.plan.guarantee is not None
        releases = (release.event for release in self.plan.guarantee.releases)
        lots = (Repeated(phase.event, phase.charges) for phase in self.plan.phases(self.plan.steps))
        return Composed((*releases, *lots))

    def check_like(self, first: "Candidate") -> None:
        """Refuses what cannot be compared with the first one under one guarantee.

        Raises:
            UserError: The relation, δ, or one of the groups that must be shared differ.
        """
        ours, theirs = self.plan.guarantee, first.plan.guarantee
        assert ours is not None
        assert theirs is not None
        pairs = {group: (self._group(group), first._group(group)) for group in _SAME}
        pairs["privacy.delta"] = (ours.budget.delta, theirs.budget.delta)
        pairs["privacy.relation"] = (ours.relation, theirs.relation)
        pairs["experiment"] = (self.experiment.name, first.experiment.name)
        for key, (found, wanted) in pairs.items():
            if found != wanted:
                hint = "All points of a private selection share it: take it out of the search space."
                raise _validate.refuse(key, found, f"{wanted!r}, as at {' '.join(first.overrides)}", hint)

    def _group(self, name: str) -> object:
        return self.experiment.config.get(name)


@final
@dataclass(frozen=True)
class Score:
    """What trials are compared by: the last value of a metric of rows declared public.

    Attributes:
        metric: `val/accuracy`, `val/loss`, `test/accuracy` or `test/loss`.
    """

    metric: str

    def __post_init__(self) -> None:
        _validate.one_of("hydra.sweeper.score", self.metric, _METRICS)

    def of(self, metrics: Mapping[str, float]) -> float | None:
        """The score, more is better; None where the metric is missing or NaN."""
        value = metrics.get(self.metric)
        if value is None or value != value:
            return None
        return -value if self.metric.endswith("loss") else value

    def check_public(self, experiment: Experiment) -> None:
        """Refuses to compare by private rows.

        Raises:
            UserError: The split is not declared public.
        """
        data = experiment.data
        validates = self.metric.startswith("val/")
        privacy = data.validation_privacy if validates else data.test_privacy
        if privacy != "public":
            key = "data.validation_split" if validates and data.validation else "data.test_split"
            hint = (
                f"Trials are compared by {self.metric}. A score of private rows is a release of its own in "
                "every trial, and is not charged here: declare the split public if it is, or choose another "
                "hydra.sweeper.score."
            )
            raise _validate.refuse(key, privacy, "public", hint)


def _private_plan(experiment: Experiment) -> PrivacyPlan:
    plan = experiment.plan()
    if plan.guarantee is None:
        hint = "Without privacy there is nothing to price: sweep with -m alone."
        raise _validate.refuse("privacy", "none", "dp_sgd", hint)
    if plan.deterministic:
        hint = "The number of trials and their points are secret: lots and noise that a seed repeats are not."
        raise _validate.refuse("privacy.deterministic", True, "false", hint)
    return plan


def _check_alone(experiment: Experiment) -> None:
    """Nothing beside the trial itself may tell that there was one."""
    if experiment.budget != FIXED:
        hint = (
            "Every trial would reserve from a budget that others see, or might be prolonged. Fix T and take "
            "budget=run; to spend from a shared budget, train single runs."
        )
        raise _validate.refuse("budget", type(experiment.budget).__name__, "RunBudget (budget=run)", hint)
