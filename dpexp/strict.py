"""Strict mode: nothing leaves a run but what its guarantee covers, or what was public before it."""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from dpexp.tracking import Recording

__all__ = ["ARTIFACTS", "METRICS", "PARAMS", "TAGS", "CoveredRun", "covered", "covered_tags", "silence"]

# What is on these lists is public, or made from released values. Anything else is dropped, whatever it is
# called: a new metric is not covered until somebody has thought about it.
METRICS = (
    r"privacy/(epsilon|delta|delta_at_budget|epsilon_\w+|clip_norm_\w+|realized_loss)",
    r"budget/(epsilon_total|spent_fraction|realized_loss)",
    r"(estimate|asymptotic|heuristic|lower)/epsilon_\w+",
    r"(val|test)/(accuracy|loss)",  # of splits declared public: others are nonprivate/…
    r"sweep/(epsilon_best|delta)",  # of a private selection
    r"final/(accuracy|epsilon|delta|steps|charged_lots|forfeited_lots)",
)
PARAMS = r"plan\.(steps|sampling_probability|noise_multiplier)"  # and the configuration's own keys
TAGS = (
    r"dpexp\.(kind|private|experiment|version|python|torch|numpy|epsilon_kind|accountant|strict|seed|ledger_head"
    r"|plan_hash|budget|budget_id|command|overrides|sweep|job|figure|panel|value|selection|released)"
    r"|mlflow\.parentRunId"
)
ARTIFACTS = ("config.yaml", "plan.json", "privacy_statement.txt", "selection.json", "model.pt", "model")

_METRICS, _PARAMS = re.compile("|".join(METRICS)), re.compile(PARAMS)
_TAGS = re.compile(rf"{TAGS}|mlflow\.source\.name")


@final
class CoveredRun:
    """An MLflow run that takes what is covered and drops the rest.

    Metrics carry the time at which the run began: when each was made would tell how long the lots took,
    and so how large they were.

    Args:
        run: The run.
        config: The flattened configuration, whose keys and values are public.
    """

    def __init__(self, run: Recording, config: Mapping[str, Any]) -> None:
        self._run, self._config = run, frozenset(config)
        self._began = int(time.time() * 1000)
        self.run_id, self.experiment_id = run.run_id, run.experiment_id

    def record(self, step: int, metrics: Mapping[str, float], *, timestamp: int | None = None) -> None:
        """Passes covered metrics on, all at one time, whatever `timestamp` says."""
        kept = {key: value for key, value in metrics.items() if _METRICS.fullmatch(key)}
        if kept:
            self._run.record(step, kept, timestamp=self._began)

    def tag_soon(self, key: str, value: str) -> None:
        """Passes on what `set_tags` would."""
        if _TAGS.fullmatch(key):
            self._run.tag_soon(key, value)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Passes on the configuration, and what the plan solved from it."""
        kept = {key: value for key, value in params.items() if key in self._config or _PARAMS.fullmatch(key)}
        self._run.log_params(kept)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Passes on tags about the configuration and the software."""
        self._run.set_tags(covered_tags(tags))

    def log_text(self, text: str, name: str) -> None:
        """Passes on the configuration, the plan and the statement."""
        if name in ARTIFACTS:
            self._run.log_text(text, name)

    def log_artifact(self, path: Path) -> None:
        """Passes on the trained model, which is what the guarantee is about."""
        if path.name in ARTIFACTS:
            self._run.log_artifact(path)

    def log_model(self, folder: Path, *, step: int) -> None:
        """Passes on the trained model, in MLflow's format."""
        if folder.name in ARTIFACTS:
            self._run.log_model(folder, step=step)

    def save_view(self, *, accuracy: str | None) -> None:
        """Passes on which charts the UI shows: names of metrics only."""
        self._run.save_view(accuracy=accuracy)

    def log_dataset(self, **facts: Any) -> None:
        """Drops the data set's digest: under a key that leaked, it would confirm a guess of all rows."""


def covered_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Those of them that are covered."""
    return {key: value for key, value in tags.items() if _TAGS.fullmatch(key)}


def covered(run: Recording, config: Mapping[str, Any], *, strict: bool) -> Recording:
    """The run as it is, or what strict mode lets through to it."""
    return CoveredRun(run, config) if strict else run


@contextmanager
def silence(*, strict: bool) -> Iterator[None]:
    """In strict mode, drops what the logger `dpexp.nonprivate` says of private rows, everywhere."""
    logger = logging.getLogger("dpexp.nonprivate")
    before = logger.disabled
    logger.disabled = strict or before
    try:
        yield
    finally:
        logger.disabled = before
