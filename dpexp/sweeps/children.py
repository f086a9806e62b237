"""The runs of a sweep, as the store holds them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpexp.tracking.tags import JOB_TAG, OVERRIDES_TAG, PARENT_TAG, SWEEP_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Child", "children_of"]

_PAGE = 1000


@final
@dataclass(frozen=True, kw_only=True)
class Child:
    """One run of a sweep.

    Attributes:
        run_id: The MLflow run.
        job: The number of its job.
        status: As MLflow says it: `FINISHED`, `FAILED`, `KILLED` or `RUNNING`.
        tags: Its tags.
        metrics: The last value of each metric.
    """

    run_id: str
    job: int
    status: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def finished(self) -> bool:
        """It came to its end."""
        return self.status == "FINISHED"

    @property
    def overrides(self) -> Sequence[str]:
        """The command line that makes the same run."""
        found: list[str] = json.loads(self.tags[OVERRIDES_TAG])
        return found


def children_of(client: "MlflowClient", experiment_id: str, sweep: str) -> list[Child]:
    """All runs of a sweep, the newest first, whatever became of them."""
    found: list[Child] = []
    token = None
    while True:
        page = client.search_runs(
            [experiment_id],
            filter_string=f"tags.`{SWEEP_TAG}` = '{sweep}' and tags.`{PARENT_TAG}` = '{sweep}'",
            max_results=_PAGE,
            order_by=["attributes.start_time DESC"],
            page_token=token,
        )
        found += map(_child, page)
        token = page.token
        if not token:
            return found


def _child(run: Any) -> Child:
    return Child(
        run_id=run.info.run_id,
        job=int(run.data.tags[JOB_TAG]),
        status=run.info.status,
        tags=dict(run.data.tags),
        metrics=dict(run.data.metrics),
    )
