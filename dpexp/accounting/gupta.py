"""Appendix D of Abadi et al. (2016): the price of hyperparameters by Gupta et al., as a calculator.

Theorem D.1 there (Gupta et al. 2010, Theorem 10.2): if every run M is ε-DP, a search over K settings, of
which a share p = 1/K is good, that repeats runs at random and scores them privately with parameter ε' is
max(ε, 8ε')-DP; its score falls short of the best by at most (4/ε')·log(1/(ε'δp)), except with probability δ,
after (1/(ε'δp))²·log(1/(ε'δp)) runs.
"""

import math
from dataclasses import dataclass
from typing import final

from dpexp import _validate
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Relation

__all__ = ["GuptaSearch"]


@final
@dataclass(frozen=True, kw_only=True)
class GuptaSearch:
    """What the theorem promises for one search. A calculator, never the price this package charges.

    Attributes:
        score_epsilon: ε' > 0 of the private comparison of scores; 0.5 in the paper.
        failure: δ in (0, 1), the probability that the search misses its accuracy; 0.05 in the paper.
        settings: K >= 1, one of which is good.
    """

    score_epsilon: float
    failure: float
    settings: int

    def __post_init__(self) -> None:
        number = _validate.number("score_epsilon", self.score_epsilon, above=0)
        object.__setattr__(self, "score_epsilon", number)
        object.__setattr__(self, "failure", _validate.fraction("failure", self.failure))
        object.__setattr__(self, "settings", _validate.integer("settings", self.settings, at_least=1))

    def epsilon(self, run_epsilon: float, relation: Relation) -> PrivacyBound:
        """max(ε, 8ε'), for ε-DP runs; heuristic, since DP-SGD is not ε-DP at δ = 0.

        Args:
            run_epsilon: ε >= 0 of one run.
            relation: The neighboring relation of the run.
        """
        run = _validate.number("run_epsilon", run_epsilon, at_least=0)
        return PrivacyBound(
            max(run, 8 * self.score_epsilon),
            kind=Kind.HEURISTIC,
            accountant="gupta",
            relation=relation,
            delta=0.0,
        )

    @property
    def score_loss(self) -> float:
        """By how many validation examples the chosen setting may fall short of the best."""
        return 4 / self.score_epsilon * self._log

    @property
    def runs(self) -> float:
        """How many training runs the search makes."""
        return self._inverse**2 * self._log

    @property
    def warning(self) -> str:
        """Why this figure must not be quoted as the price of a search."""
        return (
            f"The theorem is for ε-DP runs; DP-SGD is (ε, δ)-DP. It takes {self.runs:.1e} training runs for "
            f"{self.settings} settings. Quote the price of selection.py instead."
        )

    @classmethod
    def largest(cls, *, score_epsilon: float, failure: float, score_loss: float) -> "GuptaSearch":
        """The search over the most settings that falls short by at most `score_loss` > 0 examples.

        Raises:
            UserError: Not even one setting does.
        """
        one = cls(score_epsilon=score_epsilon, failure=failure, settings=1)
        loss = _validate.number("score_loss", score_loss, at_least=one.score_loss, below=1e4 / score_epsilon)
        settings = math.exp(loss * one.score_epsilon / 4 - one._log) if loss > one.score_loss else 1
        return cls(score_epsilon=score_epsilon, failure=failure, settings=max(math.floor(settings), 1))

    @property
    def _inverse(self) -> float:
        return self.settings / (self.score_epsilon * self.failure)

    @property
    def _log(self) -> float:
        return math.log(max(self._inverse, 1.0))
