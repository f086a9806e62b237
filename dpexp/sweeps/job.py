"""One job of a sweep: a run of its own below the parent, or one of an earlier attempt that goes on."""

from dataclasses import dataclass, replace
from typing import final

from dpexp import _validate
from dpexp.experiment import Experiment
from dpexp.ledger import Terms
from dpexp.sweeps.children import Child, children_of
from dpexp.sweeps.ticket import Ticket
from dpexp.tracking import connect
from dpexp.tracking.tags import JOB_TAG, PARENT_TAG, PLAN_TAG, SWEEP_TAG

__all__ = ["Job"]


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """A job.

    Attributes:
        experiment: What to train: below the parent; an interrupted run of this job is resumed.
        done: The finished run of an earlier attempt, where there is one: nothing is left to do.
    """

    experiment: Experiment
    done: Child | None

    @classmethod
    def of(cls, experiment: Experiment, number: int, ticket: Ticket) -> "Job":
        """The job of that number.

        Args:
            experiment: As the job's own command line makes it.
            number: Its number in the sweep.
            ticket: The sweep.

        Raises:
            UserError: The job was done before, under another configuration.
        """
        tags = {PARENT_TAG: ticket.run_id, SWEEP_TAG: ticket.run_id, JOB_TAG: str(number)}
        tracking = replace(experiment.tracking, experiment=ticket.experiment)
        below = replace(experiment, tracking=tracking, tags={**experiment.tags, **tags}, resume=None)
        earlier = _earlier(below, number, ticket) if ticket.goes_on else []
        if done := next((child for child in earlier if child.finished), None):
            _check_same(below, done)
            return cls(experiment=below, done=done)
        open_one = next((child for child in earlier if PLAN_TAG in child.tags), None)
        return cls(experiment=replace(below, resume=open_one.run_id if open_one else None), done=None)


def _earlier(experiment: Experiment, number: int, ticket: Ticket) -> list[Child]:
    client = connect(experiment.tracking.resolved_uri, experiment.tracking.folder)
    found = client.get_experiment_by_name(ticket.experiment)
    assert found is not None  # the parent is in it
    children = children_of(client, found.experiment_id, ticket.run_id)
    return [child for child in children if child.job == number]


def _check_same(experiment: Experiment, done: Child) -> None:
    terms = Terms.of(experiment.plan(), experiment.config)
    if done.tags.get(PLAN_TAG) != terms.hash.hex():
        raise _validate.UserError(
            f"resume: job {done.job} was done as run {done.run_id} under another configuration than now.\n"
            "A file of the configuration was changed since. Change it back, or start a new sweep."
        )
