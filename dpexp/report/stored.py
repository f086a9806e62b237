"""One run as the MLflow store holds it, read for what it says of privacy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, final

from dpexp.tracking.tags import COMMAND_TAG, KIND_TAG

__all__ = ["StoredRun", "in_one_line"]

_INFINITE = 1e300  # MLflow keeps ∞ as the greatest float


@final
@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a report knows of a run. All text in it comes from a store that others write to.

    Attributes:
        run_id: The MLflow run.
        name: Its name in MLflow.
        status: RUNNING, FINISHED, FAILED, KILLED or SCHEDULED.
        started: ms since 1970.
        seconds: From its start to its end; None while it has none.
        params: The flattened configuration, as text.
        tags: Its tags.
        metrics: The last value of each metric.
    """

    run_id: str
    name: str
    status: str
    started: int
    seconds: float | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]

    @classmethod
    def of(cls, run: Any) -> Self:
        """The run, from MLflow's own object."""
        info, data = run.info, run.data
        return cls(
            run_id=info.run_id,
            name=in_one_line(info.run_name or info.run_id),
            status=info.status,
            started=info.start_time or 0,
            seconds=None if info.end_time is None else (info.end_time - (info.start_time or 0)) / 1000,
            params=dict(data.params),
            tags=dict(data.tags),
            metrics=dict(data.metrics),
        )

    @property
    def finished(self) -> bool:
        """It came to its end."""
        return self.status == "FINISHED"

    @property
    def is_sweep(self) -> bool:
        """It is the parent of a sweep."""
        return self.tags.get(KIND_TAG) == "sweep"

    @property
    def is_selection(self) -> bool:
        """It is the one result of a private selection, whose trials are secret."""
        return self.tags.get("dpexp.selection") == "true"

    @property
    def is_private(self) -> bool:
        """It claims an ε."""
        said = self.tags.get("dpexp.private")
        return self.params.get("privacy._target_", "").endswith("DPSGD") if said is None else said == "true"

    @property
    def is_deterministic(self) -> bool:
        """Lots and noise were keyed by the seed: its ε is arithmetic, not a guarantee."""
        told = self.tags.get("dpexp.deterministic"), self.params.get("privacy.deterministic")
        return "true" in (str(value).lower() for value in told)

    @property
    def experiment(self) -> str:
        """The dpexp experiment."""
        return self.tags.get("dpexp.experiment", "unnamed")

    @property
    def seed(self) -> str:
        """The seed of initialisation, as text; empty where none is recorded."""
        return self.tags.get("dpexp.seed", self.params.get("seed", ""))

    @property
    def command(self) -> str | None:
        """The exact command line."""
        return self.tags.get(COMMAND_TAG)

    @property
    def epsilon(self) -> float | None:
        """ε of the whole run, ∞ where no bound was found; None before its end, and without privacy."""
        return self.epsilon_in("final/epsilon")

    @property
    def spent(self) -> float | None:
        """The last ε that is on record, whatever became of the run; None without privacy."""
        return self.epsilon if self.epsilon is not None else self.epsilon_in("privacy/epsilon")

    @property
    def delta(self) -> float | None:
        """δ of the ε; None without privacy."""
        recorded = self.metrics.get("final/delta", self.metrics.get("privacy/delta"))
        return _number(self.params.get("privacy.delta")) if recorded is None else recorded

    @cached_property
    def split_prefix(self) -> str:
        """`nonprivate/` where the test split is private, and its figures are not covered by ε."""
        if "final/accuracy" in self.metrics:
            return ""
        declared = self.params.get("data.test_split")
        uncovered = declared == "private" or "nonprivate/final/accuracy" in self.metrics
        return "nonprivate/" if uncovered else ""

    @property
    def accuracy(self) -> float | None:
        """On the test split, of the last parameters; None where none is on record."""
        found = self.metrics.get(f"{self.split_prefix}final/accuracy")
        return found if found is not None and math.isfinite(found) else None

    @property
    def steps(self) -> int | None:
        """Optimizer steps taken."""
        found = self.metrics.get("final/steps")
        return None if found is None or not math.isfinite(found) else int(found)

    def epsilon_in(self, metric: str) -> float | None:
        """The ε in a metric, with ∞ told from a number and NaN taken for no bound."""
        found = self.metrics.get(metric)
        if found is None or not (self.is_private or self.is_sweep):
            return None
        return math.inf if math.isnan(found) or found >= _INFINITE else found


def in_one_line(text: str) -> str:
    """The text without what ends lines, moves a cursor, colours a terminal or turns writing around."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
