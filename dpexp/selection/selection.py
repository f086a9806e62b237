"""`Selection`: everything that is declared before anything is drawn."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

from dpexp.accounting import Relation
from dpexp.accounting.selection import RenyiCurve
from dpexp.experiment import Experiment
from dpexp.ledger import Terms
from dpexp.selection.candidate import Candidate, Score, Space
from dpexp.selection.cost import Cost, trial_curve
from dpexp.selection.law import Law

__all__ = ["Selection"]


@final
@dataclass(frozen=True, kw_only=True)
class Selection:
    """The best of a secret number of trials on random points of a declared space.

    Papernot and Steinke (2022), "Hyperparameter Tuning with Rényi Differential Privacy", arXiv 2110.03620.

    Attributes:
        space: The search space.
        candidates: Its points in order, each as an experiment.
        laws: How the number of trials may be drawn; of several, the one that costs least is taken. They are
            compared before anything is drawn, so the choice itself costs nothing.
        score: What the trials are compared by.
        command: The command line, for the record.
    """

    space: Space
    candidates: tuple[Candidate, ...]
    laws: tuple[Law, ...]
    score: Score
    command: str = ""

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            candidate.check_like(self.candidates[0])
        self.score.check_public(self.experiment)

    @classmethod
    def of(
        cls,
        space: Space,
        experiments: Sequence[Experiment],
        *,
        laws: Sequence[Law],
        score: Score,
        command: str = "",
    ) -> Self:
        """The selection among the experiments at the points of the space, in order.

        Raises:
            UserError: A point cannot be planned or priced, or cannot be compared with the others.
        """
        points = zip(space.points, experiments, strict=True)
        candidates = tuple(Candidate.of(overrides, experiment) for overrides, experiment in points)
        return cls(space=space, candidates=candidates, laws=tuple(laws), score=score, command=command)

    @property
    def experiment(self) -> Experiment:
        """That of the first point, for what all points share."""
        return self.candidates[0].experiment

    @property
    def name(self) -> str:
        """Of the experiment."""
        return self.experiment.name

    @property
    def delta(self) -> float:
        """δ, the same at all points."""
        guarantee = self.candidates[0].plan.guarantee
        assert guarantee is not None
        return guarantee.budget.delta

    @property
    def relation(self) -> Relation:
        """The neighboring relation, the same at all points."""
        return self.trial.relation

    @cached_property
    def trial(self) -> RenyiCurve:
        """A bound on one trial, whichever its point."""
        return trial_curve(self.candidates)

    @cached_property
    def law(self) -> Law:
        """How the number of trials is drawn."""
        return min(self.laws, key=lambda law: float(law.price(self.trial).epsilon(self.delta)))

    @cached_property
    def cost(self) -> Cost:
        """What it costs."""
        return Cost.of(self.trial, self.law, self.delta)

    @cached_property
    def terms(self) -> str:
        """A hash of everything declared: a selection goes on only under the same."""
        plans = [Terms.of(candidate.plan, candidate.experiment.config).text for candidate in self.candidates]
        points = [candidate.overrides for candidate in self.candidates]
        declared = [self.name, repr(self.law), self.score.metric, points, plans]
        return hashlib.sha256(json.dumps(declared).encode()).hexdigest()
