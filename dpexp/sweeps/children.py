"""The runs of a sweep, as the store holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from dpexp.ledger import ledger_of
from dpexp.tracking import all_pages
from dpexp.tracking.tags import JOB_TAG, PARENT_TAG, PLAN_TAG, SWEEP_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Child", "children_of"]


@final
@dataclass(frozen=True, kw_only=True)
class Child:
    """One run of a sweep.

    Attributes:
        run_id: The MLflow run.
        job: The number of its job.
        status: As MLflow says it: `FINISHED`, `FAILED`, `KILLED` or `RUNNING`.
        deleted: Somebody deleted it: it is not gone on with, and what it released stays released.
        tags: Its tags.
        metrics: Last values, as MLflow shows them: to be shown, and never to be counted with.
    """

    run_id: str
    job: int
    status: str
    deleted: bool
    tags: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def finished(self) -> bool:
        """It came to its end, and is there."""
        return self.status == "FINISHED" and not self.deleted

    def begun(self, outputs: Path) -> bool:
        """Whether it may have released anything; the others ended before.

        Its ledger says so too, below `outputs`: the store may not have been told.
        """
        return PLAN_TAG in self.tags or ledger_of(outputs, self.run_id).exists()


def children_of(client: "MlflowClient", experiment_id: str, sweep: str) -> list[Child]:
    """All runs of a sweep, the newest first, whatever became of them, deleted ones too."""
    from mlflow.entities import ViewType

    found = all_pages(
        client.search_runs,
        [experiment_id],
        filter_string=f"tags.`{SWEEP_TAG}` = '{sweep}' and tags.`{PARENT_TAG}` = '{sweep}'",
        run_view_type=ViewType.ALL,
        order_by=["attributes.start_time DESC"],
    )
    return list(map(_child, found))


def _child(run: Any) -> Child:
    return Child(
        run_id=run.info.run_id,
        job=int(run.data.tags[JOB_TAG]),
        status=run.info.status,
        deleted=run.info.lifecycle_stage == "deleted",
        tags=dict(run.data.tags),
        metrics=dict(run.data.metrics),
    )
