"""The runs of a figure, found again in the MLflow store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpexp.tracking import MLflowTracking, all_pages, connect, flatten

__all__ = ["FIGURE_TAG", "Archive", "StoredRun", "agrees"]

FIGURE_TAG = "dpexp.figure"
# Where and how a run is computed and shown; what it releases, and so its result, does not depend on it.
_BESIDE = ("task.", "tracking.", "trainer.", "data.root", "data.mirrors", "physical_batch_size", "memory_mb")
_LONGEST_PARAM = 6000


@final
@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What the store holds of a run.

    Attributes:
        run_id: The MLflow run.
        finished: It came to its end.
        params: The flattened configuration, as text.
        metrics: The last value of each metric.
        seconds: From its start to its end; 0 where it has none.
    """

    run_id: str
    finished: bool
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    seconds: float


@final
class Archive:
    """The runs of one figure.

    Args:
        tracking: The store, and the MLflow experiment that holds the runs.
        figure: The value of their tag `dpexp.figure`.
    """

    def __init__(self, tracking: MLflowTracking, figure: str) -> None:
        self._client = connect(tracking.resolved_uri, tracking.folder)
        self._experiment, self._figure = tracking.experiment or figure, figure

    def runs(self) -> list[StoredRun]:
        """All of them, the oldest first, whatever became of them."""
        found = self._client.get_experiment_by_name(self._experiment)
        if found is None:
            return []
        tagged = f"tags.`{FIGURE_TAG}` = '{self._figure}'"
        oldest = ["attributes.start_time ASC"]
        runs = all_pages(self._client.search_runs, [found.experiment_id], tagged, order_by=oldest)
        return list(map(_stored, runs))

    def history(self, run: StoredRun, metric: str) -> dict[int, float]:
        """A metric by the number of lots, in order."""
        points = self._client.get_metric_history(run.run_id, metric)
        return dict(sorted((int(point.step), float(point.value)) for point in points))


def agrees(params: Mapping[str, str], config: Mapping[str, Any], varied: set[str]) -> bool:
    """Whether a run with these params is a run of this configuration.

    Keys that only one of them knows (the store may be older) are passed over, but not those in `varied`.
    """
    asked = {key: str(value)[:_LONGEST_PARAM] for key, value in flatten(config).items()}
    shared = {key for key in asked.keys() & params.keys() if not key.startswith(_BESIDE)}
    missing = {key for key in varied & asked.keys() if key not in params and not key.startswith(_BESIDE)}
    return not missing and bool(shared) and all(params[key] == asked[key] for key in shared)


def _stored(run: Any) -> StoredRun:
    info = run.info
    ended = info.end_time or info.start_time
    return StoredRun(
        run_id=info.run_id,
        finished=info.status == "FINISHED",
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
        seconds=(ended - info.start_time) / 1000,
    )
