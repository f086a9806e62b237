"""Finds the run that `resume` names, and what it goes on from: run, ledger, checkpoint and features."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from dpexp import _validate
from dpexp.checkpoint import Checkpoint, CheckpointFolder
from dpexp.durable import make_private_folder, write_whole
from dpexp.experiment import Experiment
from dpexp.features import FittedFeatures, KeepsFitted
from dpexp.ledger import (
    Journal,
    Ledger,
    LedgerError,
    SharedBudget,
    Terms,
    declares_filter,
    ledger_of,
)
from dpexp.plan import PrivacyPlan
from dpexp.tracking import last_steps, runs_like
from dpexp.tracking.tags import KIND_TAG, PLAN_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run as Found

__all__ = ["HEAD_TAG", "Places", "Resumption", "resumed"]

HEAD_TAG = "dpexp.ledger_head"
_SHOWN = 20  # lines of a difference


@final
@dataclass(frozen=True)
class Places:
    """Where a run keeps what it must not lose, below the outputs folder."""

    outputs: Path
    run_id: str

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return ledger_of(self.outputs, self.run_id)

    @property
    def terms(self) -> Path:
        """The terms in full; the ledger holds their hash."""
        return self.outputs / "ledgers" / f"{self.run_id}.json"

    @property
    def digest(self) -> Path:
        """The keyed digest of the training rows."""
        return self.outputs / "ledgers" / f"{self.run_id}.digest"

    def keep_digest(self, digest: str) -> None:
        """Notes which training rows the run started on.

        Raises:
            LedgerError: It cannot be written.
        """
        try:
            make_private_folder(self.digest.parent)
            write_whole(self.digest, digest.encode())
        except OSError as error:
            raise LedgerError(f"{self.digest}: cannot be written: {error.strerror or error}.") from error

    def check_digest(self, digest: str, data: str) -> None:
        """Refuses to go on with a run on other training rows than it started with.

        Raises:
            UserError: The digests differ, or the run's is missing.
        """
        if not self.digest.exists() or self.digest.read_text(encoding="ascii") != digest:
            raise _validate.UserError(
                f"data: run {self.run_id} was started on other training rows than {data} has.\n"
                "Resume it with the files that it was started with, or start a new run."
            )

    def checkpoints(self, keep: int) -> CheckpointFolder:
        """The checkpoints."""
        return CheckpointFolder(self.outputs / "checkpoints" / self.run_id, keep)

    def open_ledger(self, terms: Terms, plan: PrivacyPlan) -> Journal:
        """The ledger of a new run, with the terms beside it.

        Raises:
            LedgerError: It cannot be written.
        """
        releases = 0 if plan.guarantee is None else len(plan.guarantee.releases)
        try:
            make_private_folder(self.terms.parent)
            write_whole(self.terms, terms.text.encode())
        except OSError as error:
            raise LedgerError(f"{self.terms}: cannot be written: {error.strerror or error}.") from error
        return Journal.create(self.ledger, run_id=self.run_id, terms=terms.hash, releases=releases)


@final
@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A run that goes on.

    Attributes:
        run_id: The MLflow run.
        ledger: Charged with all that was ever reserved; its plan is what is left to do.
        checkpoint: What the parameters go on from; None for the start.
        features: The fitted features; None where they are to be fitted anew.
        asked: T of the plan that it started with.
    """

    run_id: str
    ledger: Ledger
    checkpoint: Checkpoint | None
    features: FittedFeatures | None
    asked: int

    def in_words(self) -> str:
        """What goes on, what was lost, and what is left."""
        ledger = self.ledger
        words = f"run {self.run_id} at step {ledger.steps:,} of {self.asked:,}"
        if ledger.forfeited_lots:
            words += f"; {ledger.forfeited_lots:,} lots were reserved and lost, and stay charged"
        if ledger.plan.steps < self.asked:
            words += (
                f"; training is shortened to {ledger.plan.steps:,} steps, all that the rest of ε pays for"
            )
        return words


@contextlib.contextmanager
def resumed(
    experiment: Experiment, plan: PrivacyPlan, terms: Terms, shared: SharedBudget | None
) -> Iterator[Resumption]:
    """Takes up the run that `experiment.resume` names; its ledger is locked until the block is left.

    Raises:
        UserError: There is no such run, it is finished, or its plan was another.
        LedgerError: Its ledger cannot be trusted, or another process holds it.
        CheckpointError: None of its checkpoints is as it was written.
        BudgetSpentError: Nothing is left to train with, and nothing was trained.
    """
    found = _found(experiment, plan, terms)
    run_id = str(found.info.run_id)
    places = Places(experiment.tracking.folder, run_id)
    tags = found.data.tags
    known = {"the MLflow run": tags[HEAD_TAG]} if HEAD_TAG in tags else {}
    with Journal.open(places.ledger, run_id=run_id, terms=terms.hash, known=known) as journal:
        folder = places.checkpoints(keep=1)
        checkpoint = folder.newest(journal, terms=terms.hash.hex())
        features = _features(experiment, folder, journal)
        ledger = Ledger.resumed(
            plan,
            journal,
            steps=0 if checkpoint is None else checkpoint.steps,
            fitted=features is not None,
            shared=shared,
        )
        _check_axis(experiment, run_id, checkpoint, ledger)
        yield Resumption(
            run_id=run_id, ledger=ledger, checkpoint=checkpoint, features=features, asked=plan.steps
        )


def _features(experiment: Experiment, folder: CheckpointFolder, journal: Journal) -> FittedFeatures | None:
    kept = folder.features(journal)
    if kept is None or not isinstance(experiment.features, KeepsFitted):
        return None
    return experiment.features.restored({name: tensor.numpy() for name, tensor in kept.items()})


def _check_axis(experiment: Experiment, run_id: str, checkpoint: Checkpoint | None, ledger: Ledger) -> None:
    """What others saw charged is in the ledger."""
    seen = last_steps(experiment.tracking, run_id)
    most = max([*seen.values(), 0 if checkpoint is None else checkpoint.charged_lots])
    if most > ledger.lots:
        raise LedgerError(
            f"The ledger of run {run_id} is older than the run: it knows of {ledger.lots} charged lots, and "
            f"{most} were recorded.\nPut the newest copy of the file back, or start a new run."
        )


def _found(experiment: Experiment, plan: PrivacyPlan, terms: Terms) -> "Found":
    wanted = experiment.resume
    assert wanted is not None
    tags = {} if wanted != "last" else _tags(experiment, terms)
    runs = runs_like(
        experiment.tracking, experiment.name, run_id=wanted if wanted != "last" else None, tags=tags
    )
    runs = [run for run in runs if PLAN_TAG in run.data.tags]  # others ended before their first release
    open_ones = [run for run in runs if run.info.status != "FINISHED" or _may_go_on(run, plan)]
    if open_ones:
        _check_terms(experiment, str(open_ones[0].info.run_id), terms)
        return open_ones[0]
    if runs:
        raise _validate.refuse(
            "resume",
            wanted,
            "a run that did not come to its end",
            f"Run {runs[0].info.run_id} is finished: its T was fixed beforehand, and more lots would need a "
            "plan of their own. Start a new run without resume. (Runs with budget=filter may be prolonged.)",
        )
    raise _none(experiment, terms)


def _may_go_on(run: "Found", plan: PrivacyPlan) -> bool:
    """A finished run goes on where a filter was declared before it, and T is now longer."""
    steps = run.data.metrics.get("final/steps")
    return declares_filter(plan) and steps is not None and plan.steps > steps


def _none(experiment: Experiment, terms: Terms) -> _validate.UserError:
    expected = f"a run of {experiment.name} with seed {experiment.seed} and this plan, or the id of a run"
    tags = {KIND_TAG: "train", "dpexp.experiment": experiment.name}
    others = runs_like(experiment.tracking, experiment.name, run_id=None, tags=tags)
    others = [run for run in others if run.info.status != "FINISHED"]
    asked = "" if experiment.resume == "last" else " of that id; last is the newest"
    if asked or not others:
        return _validate.refuse(
            "resume",
            experiment.resume,
            expected,
            f"There is none{asked}. Start one without resume.",
        )
    run_id = str(others[0].info.run_id)
    return _validate.refuse(
        "resume",
        experiment.resume,
        expected,
        f"The newest unfinished one is {run_id}, which differs:\n{_difference(experiment, run_id, terms)}",
    )


def _tags(experiment: Experiment, terms: Terms) -> Mapping[str, str]:
    return {
        KIND_TAG: "train",
        "dpexp.experiment": experiment.name,
        "dpexp.seed": str(experiment.seed),
        PLAN_TAG: terms.hash.hex(),
    }


def _check_terms(experiment: Experiment, run_id: str, terms: Terms) -> None:
    path = Places(experiment.tracking.folder, run_id).terms
    if path.exists() and path.read_bytes() != terms.text.encode():
        raise _validate.UserError(
            f"resume: run {run_id} was started with another configuration, and goes on with its own:\n"
            f"{_difference(experiment, run_id, terms)}\n"
            "Resume it as it was, or start a new run. A longer T would be decided after seeing results: that "
            "needs budget=filter, declared beforehand, and its order (budget.order) to stay."
        )


def _difference(experiment: Experiment, run_id: str, terms: Terms) -> str:
    path = Places(experiment.tracking.folder, run_id).terms
    if not path.exists():
        return f"  ({path} is missing)"
    lines = Terms.read(path.read_text(encoding="utf-8")).difference(terms)
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join(f"  {line}" for line in [*lines[:_SHOWN], *more])
