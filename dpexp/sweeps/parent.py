"""The MLflow run above the runs of a sweep."""

import contextlib
import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, final

from dpexp import _validate
from dpexp.sweeps.children import Child, children_of
from dpexp.sweeps.runs import as_csv
from dpexp.sweeps.summary import Summary
from dpexp.sweeps.ticket import Ticket
from dpexp.tracking import MLflowTracking, Run, runs_like, shown_uri
from dpexp.tracking.tags import KIND_TAG, SWEEP_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run as FoundRun

__all__ = ["Parent", "opened"]

_log = logging.getLogger(__name__)
_ASKED_TAG = "dpexp.sweep_hash"  # of all that says which jobs there are
_PRICES = ("sweep/epsilon_all", "sweep/epsilon_best")


@final
class Parent:
    """A sweep that is open.

    Attributes:
        run: Its MLflow run.
        ticket: What its jobs are given.
    """

    def __init__(self, run: Run, ticket: Ticket, tracking: MLflowTracking) -> None:
        self.run, self.ticket, self.tracking = run, ticket, tracking

    @property
    def children(self) -> list[Child]:
        """Its runs so far, the newest first.

        Raises:
            UserError: The store does not answer.
        """
        from mlflow.exceptions import MlflowException

        try:
            return children_of(self.run.client, self.run.experiment_id, self.run.run_id)
        except MlflowException as error:
            raise _validate.refuse(
                "tracking.uri", self.ticket.store, "a store that answers", str(error).partition("\n")[0]
            ) from error

    def close_children(self) -> None:
        """Stores what jobs could not, and closes runs that count as running and are written to by nobody.

        A cluster may still run jobs of a sweep that was stopped: those close their runs themselves.

        Raises:
            UserError: The store does not answer.
        """
        self.tracking.send()
        for child in self.children:
            if child.status == "RUNNING" and not child.deleted and not self.tracking.is_alive(child.run_id):
                self.run.client.set_terminated(child.run_id, "KILLED")

    def record(self, summary: Summary) -> None:
        """Stores what the sweep came to so far."""
        self.run.record(self.run.last_step + 1, summary.metrics)
        self.run.log_text(f"{summary.in_words}\n", "sweep_price.txt")
        self.run.log_text(as_csv(summary.runs), "sweep_runs.csv")

    def withdraw_price(self) -> None:
        """What an earlier attempt cost bounds nothing any more, until the sweep is priced again."""
        self.run.record(self.run.last_step + 1, dict.fromkeys(_PRICES, math.nan))
        self.run.log_text("The sweep goes on; it has no price until it ends.\n", "sweep_price.txt")

    def forget_if_empty(self) -> None:
        """Takes a sweep out of the store of which no job began."""
        try:
            if not self.children:
                self.run.client.delete_run(self.run.run_id)
        except _validate.UserError as error:  # what ended the sweep is told, and not this
            _log.debug("Sweep %s stays: %s", self.run.run_id, error)


@contextlib.contextmanager
def opened(
    tracking: MLflowTracking,
    name: str,
    *,
    asked: Sequence[str],
    tags: Mapping[str, str],
    resume: str | None,
) -> Iterator[Parent]:
    """A new sweep, or the one that `resume` names; it ends FINISHED, FAILED or KILLED as the block does.

    Args:
        tracking: The store.
        name: Of the experiment; the MLflow experiment is called so where none is set.
        asked: All that says which jobs there are and what they are: a sweep goes on only with the same, since
            what is left of it may not depend on the results that there are.
        tags: Tags of a new parent.
        resume: None, `last`, or the parent's run id.

    Raises:
        UserError: There is no such sweep, it is finished, or it had other jobs.
    """
    asked_hash = hashlib.sha256(json.dumps(list(asked)).encode()).hexdigest()
    earlier = None if resume is None else _found(tracking, name, resume, asked_hash)
    parent = None
    try:
        with tracking.run(
            name=name,
            run_name=f"sweep of {name}",
            run_id=None if earlier is None else str(earlier.info.run_id),
            tags={**tags, KIND_TAG: "sweep", _ASKED_TAG: asked_hash, "mlflow.source.name": "dpexp"},
        ) as run:
            run.set_tags({SWEEP_TAG: run.run_id})
            experiment = run.client.get_experiment(run.experiment_id).name
            store = shown_uri(tracking.resolved_uri)
            goes_on = earlier is not None
            ticket = Ticket(run_id=run.run_id, experiment=experiment, store=store, goes_on=goes_on)
            parent = Parent(run, ticket, tracking)
            if earlier is not None and set(_PRICES) & set(earlier.data.metrics):
                parent.withdraw_price()
            yield parent
    except BaseException:
        if parent is not None:
            parent.forget_if_empty()
        raise


def _found(tracking: MLflowTracking, name: str, resume: str, asked_hash: str) -> "FoundRun":
    wanted = {KIND_TAG: "sweep", _ASKED_TAG: asked_hash}
    runs = runs_like(tracking, name, run_id=None if resume == "last" else resume, tags=wanted)
    same = [
        run
        for run in runs
        if run.data.tags.get(_ASKED_TAG) == asked_hash and run.info.lifecycle_stage == "active"
    ]
    if not same:
        expected = f"a sweep of {name} with the same overrides and configuration files"
        hint = (
            "There is none in the store. Undo what was changed since it began, or start one without resume."
        )
        raise _validate.refuse("resume", resume, expected, hint)
    if same[0].info.status == "FINISHED":
        hint = f"Sweep {same[0].info.run_id} has done all its jobs. Without resume a new one starts."
        raise _validate.refuse("resume", resume, "a sweep that did not come to its end", hint)
    return same[0]
