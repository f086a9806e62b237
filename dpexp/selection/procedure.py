"""The procedure: declared, drawn, tried, released; each in its turn, and only once."""

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from rich.console import Console

from dpexp import _validate
from dpexp.console import show_links
from dpexp.experiment import Whole
from dpexp.selection.apart import features_in
from dpexp.selection.candidate import Candidate
from dpexp.selection.record import Record
from dpexp.selection.release import release_best, release_nothing, tags_of
from dpexp.selection.selection import Selection
from dpexp.selection.trial import Kept, run_trial
from dpexp.selection.vault import Vault, private_root
from dpexp.selection.words import selection_table, statement, words_of_result
from dpexp.tracking import Run, run_link, shown_uri

__all__ = ["Selected", "select"]

_READ_WITH = ("features", "sampling")  # whether rows can be used depends on these; data are shared


@final
@dataclass(frozen=True, kw_only=True)
class Selected:
    """What a selection came to; how many trials there were is not in it.

    Attributes:
        overrides: The best point; None where nothing is released.
        accuracy: Of its model on the test split; None where that split is private, or nothing is released.
        epsilon: The certified ε at δ of the whole selection.
        delta: δ.
        run_id: The MLflow run.
        experiment_id: Its MLflow experiment.
        statement: The guarantee in words.
    """

    overrides: tuple[str, ...] | None
    accuracy: float | None
    epsilon: float
    delta: float
    run_id: str
    experiment_id: str
    statement: str


def select(selection: Selection, *, resume: str | None = None) -> Selected:
    """Draws the number of trials, makes them in private, and releases the best.

    Args:
        selection: What is declared.
        resume: None for a new selection, `last` for the one of the same terms that was interrupted.

    Raises:
        UserError: Some point cannot be trained at all, the data cannot be had, or there is nothing to resume.
        OSError: The private record cannot be kept.
    """
    console = Console()
    if resume not in (None, "last"):
        hint = "A selection has no run before its release."
        raise _validate.refuse("resume", resume, "last, or null", hint)
    console.print(selection_table(selection))
    _rehearse(selection)
    root = private_root(selection.experiment.tracking.folder)
    with _opened(root, selection, resume) as vault:
        console.print("Trials are made in private; nothing is shown until the best is released.")
        for number in vault.record.waiting:
            _try(vault, selection, number)
        selected = _release(vault, selection)
        vault.write(replace(vault.record, released=True))
    winner = None if selected.overrides is None else _at(selection, selected.overrides)
    console.print(words_of_result(selection, winner, selected.accuracy, selected.run_id))
    uri = shown_uri(selection.experiment.tracking.resolved_uri)
    show_links(console, uri, [run_link(uri, selected.experiment_id, selected.run_id)])
    return selected


def _rehearse(selection: Selection) -> None:
    """What would make every trial on a point fail is said now, before anything is drawn."""
    from dpexp.training import rehearse, rehearse_data  # imports torch

    read = set()
    for candidate in selection.candidates:
        config = candidate.experiment.config
        reads = json.dumps([config.get(group) for group in _READ_WITH])
        try:
            rehearse(candidate.experiment)
            if reads not in read:
                rehearse_data(candidate.experiment)
            read.add(reads)
        except _validate.UserError as error:
            raise _validate.UserError(f"At the point {' '.join(candidate.overrides)}: {error}") from error


def _opened(root: Path, selection: Selection, resume: str | None) -> AbstractContextManager[Vault]:
    if resume == "last":
        return Vault.last(root, terms=selection.terms)
    return Vault.new(root, lambda: _drawn(selection), terms=selection.terms)


def _drawn(selection: Selection) -> Record:
    points = len(selection.candidates)
    return Record.drawn(selection.law, points, terms=selection.terms, experiment=selection.name)


def _try(vault: Vault, selection: Selection, number: int) -> None:
    """One trial. Its begin is on disk before it, so that it is never made twice."""
    candidate = selection.candidates[vault.record.trials[number].point]
    before = vault.record.best
    vault.write(vault.record.begun(number))
    whole = Whole(epsilon=selection.cost.whole, statement=statement(selection, candidate))
    with _features_kept(vault, selection):
        metrics = run_trial(candidate, vault.trial(number), whole)
    vault.write(vault.record.ended(number, selection.score.of(metrics)))
    for loser in (number, before):
        if loser is not None and loser != vault.record.best:
            Kept.drop_files(vault.trial(loser))


def _features_kept(vault: Vault, selection: Selection) -> AbstractContextManager[None]:
    """Where points differ in their features, the user's cache would tell which of them were tried."""
    found = {json.dumps(candidate.experiment.config.get("features")) for candidate in selection.candidates}
    return nullcontext() if len(found) == 1 else features_in(vault.folder / "features")


def _release(vault: Vault, selection: Selection) -> Selected:
    """The run is made only now: the times that the store shows say nothing of the trials."""
    best = vault.record.best
    tracking = selection.experiment.tracking
    run_name = f"private selection of {selection.name}"
    with tracking.run(
        name=selection.name, run_name=run_name, run_id=vault.record.run_id, tags=tags_of(selection)
    ) as run:
        vault.write(replace(vault.record, run_id=run.run_id))
        if best is None:
            release_nothing(run, selection)
            return _selected(selection, None, None, run)
        winner = selection.candidates[vault.record.trials[best].point]
        kept = Kept.of(vault.trial(best))
        release_best(run, selection, winner, kept)
        return _selected(selection, winner, kept.metrics.get("final/accuracy"), run)


def _selected(selection: Selection, winner: Candidate | None, accuracy: float | None, run: Run) -> Selected:
    return Selected(
        overrides=None if winner is None else winner.overrides,
        accuracy=accuracy,
        epsilon=float(selection.cost.whole),
        delta=selection.delta,
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        statement=statement(selection, winner),
    )


def _at(selection: Selection, overrides: tuple[str, ...]) -> Candidate:
    return next(candidate for candidate in selection.candidates if candidate.overrides == overrides)
