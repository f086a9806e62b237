"""What a report is about: an MLflow experiment or one sweep, found in the store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import final

from dpexp import _validate
from dpexp.report.store import Store
from dpexp.report.stored import StoredRun, in_one_line
from dpexp.tracking.tags import KIND_TAG, PARENT_TAG, SWEEP_TAG

__all__ = ["Subject", "find_subject"]

_SHOWN = 5  # sweeps that an error lists


@final
@dataclass(frozen=True, kw_only=True)
class Subject:
    """The runs of a report.

    Attributes:
        experiment: The MLflow experiment.
        sweep: The parent of the sweep that was asked for; None for all of the experiment.
        tags: What the runs had to be tagged with.
        runs: The runs, the newest first; of a private selection its one result.
        sweeps: The parents of the sweeps that the runs belong to.
        foreign: How many runs of the experiment were left out, since dpexp did not make them.
    """

    experiment: str
    sweep: StoredRun | None
    tags: Mapping[str, str]
    runs: tuple[StoredRun, ...]
    sweeps: tuple[StoredRun, ...]
    foreign: int

    @property
    def name(self) -> str:
        """The experiment, the sweep and the tags in a few words."""
        parts = [self.experiment]
        parts += [] if self.sweep is None else [f"sweep {self.sweep.run_id[:8]}"]
        return ", ".join([*parts, *(f"{key}={value}" for key, value in self.tags.items())])


def find_subject(
    store: Store, *, experiment: str | None, sweep: str | None, tags: Mapping[str, str]
) -> Subject:
    """Reads what was asked for.

    Args:
        store: Where to look.
        experiment: Name of the MLflow experiment; None takes that of `sweep`, or the only one with runs.
        sweep: The id of a sweep's parent run, `last`, or None for all runs of the experiment.
        tags: What the runs must be tagged with.

    Raises:
        UserError: There is no such experiment or sweep, or no such run.
    """
    parent: StoredRun | None = None
    if sweep is not None and sweep != "last":
        parent, experiment_id = store.run(sweep)
        if not parent.is_sweep:
            raise _no_sweep(store, experiment_id, sweep)
        experiment = _name_of(store, experiment_id)
    else:
        experiment, experiment_id = _experiment(store, experiment)
        parent = _last_sweep(store, experiment_id) if sweep else None
    tag = None if parent is None else (SWEEP_TAG, parent.run_id)
    found = list(store.runs(experiment_id, tag))
    if parent is not None and parent.run_id not in {run.run_id for run in found}:
        found.append(parent)
    return _subject(experiment, parent, tags, found)


def _subject(
    experiment: str, parent: StoredRun | None, tags: Mapping[str, str], found: Iterable[StoredRun]
) -> Subject:
    found = list(found)
    secret = {run.run_id for run in found if run.is_selection}
    ours = [run for run in found if KIND_TAG in run.tags]
    # Of a private selection nothing but its one result may be shown.
    shown = [run for run in ours if not run.is_sweep and _sweep_of(run) not in secret]
    shown += [run for run in ours if run.is_selection]
    runs = [run for run in shown if all(run.tags.get(key) == value for key, value in tags.items())]
    if not runs:
        asked = ", ".join(f"{key}={value}" for key, value in tags.items())
        where = f"runs of {experiment}" if parent is None else f"runs of sweep {parent.run_id}"
        hint = "task.filter leaves none: its tags are compared as text." if tags else "Train something first."
        raise _validate.refuse(f"{where} with {asked}" if tags else where, 0, "some", hint)
    parents = {_sweep_of(run) for run in runs} | secret
    return Subject(
        experiment=experiment,
        sweep=parent,
        tags=tags,
        runs=tuple(runs),
        sweeps=tuple(run for run in ours if run.is_sweep and run.run_id in parents),
        foreign=len(found) - len(ours),
    )


def _sweep_of(run: StoredRun) -> str | None:
    return run.tags.get(SWEEP_TAG) or run.tags.get(PARENT_TAG)


def _experiment(store: Store, name: str | None) -> tuple[str, str]:
    """The name and id; what the store has is listed where it is not clear which."""
    known = store.experiments()
    if name in known:
        return name, known[name]
    if name is None and len(known) == 1:
        return next(iter(known.items()))
    listed = ", ".join(map(in_one_line, sorted(known))) or "none has runs"
    hint = f"The store {store.shown_uri} has: {listed}. Choose with task.experiment=NAME."
    close = _validate.did_you_mean(name or "", known)
    expected = "the name of an MLflow experiment that has runs"
    raise _validate.refuse("task.experiment", name, expected, f"{close} {hint}".strip())


def _name_of(store: Store, experiment_id: str) -> str:
    return next(name for name, found in store.experiments().items() if found == experiment_id)


def _last_sweep(store: Store, experiment_id: str) -> StoredRun:
    last = next(store.runs(experiment_id, (KIND_TAG, "sweep")), None)
    if last is None:
        raise _no_sweep(store, experiment_id, "last")
    return last


def _no_sweep(store: Store, experiment_id: str, asked: str) -> _validate.UserError:
    found = islice(store.runs(experiment_id, (KIND_TAG, "sweep")), _SHOWN)
    listed = "\n".join(f"  {run.run_id}  {run.name}  {run.status}" for run in found)
    hint = f"The newest sweeps there:\n{listed}" if listed else "There are no sweeps; leave task.sweep out."
    return _validate.refuse("task.sweep", asked, "the id of a sweep's parent run, or last", hint)
