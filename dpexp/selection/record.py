"""The secret record of a selection: how many trials, on which points, and what they came to."""

import dataclasses
import json
import secrets
from dataclasses import dataclass, replace
from typing import Self, final

from dpexp.selection.law import Law, draw

__all__ = ["Record", "Trial"]

_TIE_BITS = 128


@final
@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial.

    Attributes:
        point: Number of its point.
        tie: Random; decides between equal scores.
        state: `waiting`, `begun`, `failed` or `scored`.
        score: More is better; None unless it is scored.
    """

    point: int
    tie: int
    state: str = "waiting"
    score: float | None = None

    @property
    def rank(self) -> tuple[float, int]:
        """Orders scored trials."""
        assert self.score is not None
        return self.score, self.tie


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """All trials, drawn once; K is their number.

    Attributes:
        terms: Hash of all that was declared.
        experiment: Name of the experiment.
        trials: In the order in which they are made.
        run_id: The MLflow run of the release, once it is begun.
        released: Nothing is left to do.
    """

    terms: str
    experiment: str
    trials: tuple[Trial, ...]
    run_id: str | None = None
    released: bool = False

    @classmethod
    def drawn(cls, law: Law, points: int, *, terms: str, experiment: str) -> Self:
        """Draws K, and a point for each trial, uniformly, with replacement; all from secret entropy."""
        trials = (
            Trial(point=secrets.randbelow(points), tie=secrets.randbits(_TIE_BITS)) for _ in range(draw(law))
        )
        return cls(terms=terms, experiment=experiment, trials=tuple(trials))

    @classmethod
    def read(cls, text: str) -> Self:
        """The record that `text` wrote."""
        values = json.loads(text)
        return cls(**{**values, "trials": tuple(Trial(**trial) for trial in values["trials"])})

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @property
    def waiting(self) -> list[int]:
        """Numbers of the trials that have not begun."""
        return [number for number, trial in enumerate(self.trials) if trial.state == "waiting"]

    @property
    def best(self) -> int | None:
        """Number of the best trial so far; None where none has a score."""
        scored = [number for number, trial in enumerate(self.trials) if trial.score is not None]
        return max(scored, key=lambda number: self.trials[number].rank, default=None)

    def begun(self, number: int) -> Self:
        """With a trial begun: it will never be waiting again."""
        return self._with(number, replace(self.trials[number], state="begun"))

    def ended(self, number: int, score: float | None) -> Self:
        """With a trial that came to a score, or to none and so failed."""
        state = "failed" if score is None else "scored"
        return self._with(number, replace(self.trials[number], state=state, score=score))

    def interrupted(self) -> Self:
        """With every trial failed that began and did not end."""
        ended = (replace(t, state="failed") if t.state == "begun" else t for t in self.trials)
        return replace(self, trials=tuple(ended))

    def _with(self, number: int, trial: Trial) -> Self:
        return replace(self, trials=(*self.trials[:number], trial, *self.trials[number + 1 :]))
