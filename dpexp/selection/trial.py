"""One trial: trained apart from everything, and recorded for the private store only."""

import contextlib
import json
import logging
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, final

from dpexp.durable import make_private_folder, write_whole
from dpexp.experiment import Experiment, Whole
from dpexp.options import Checkpointing
from dpexp.selection.apart import apart
from dpexp.selection.candidate import Candidate

__all__ = ["Kept", "run_trial"]

_log = logging.getLogger(__name__)
_KEPT, _FILES = "kept.json", "files"


@final
@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a trial told of itself.

    Attributes:
        params: Its params.
        tags: Its tags.
        texts: Its text artifacts by name.
        metrics: The last value of each metric.
        files: Its other artifacts.
        model: Folder of its model in MLflow's format; None where it could not be saved.
    """

    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    model: str | None = None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """What the trial in that folder told."""
        return cls(**json.loads((folder / _KEPT).read_text(encoding="utf-8")))

    @staticmethod
    def drop_files(folder: Path) -> None:
        """Deletes the model of a trial that is not the best."""
        shutil.rmtree(folder / _FILES, ignore_errors=True)


@final
class _PrivateRun:
    """Takes what a run tells of itself into a folder, and tells no store."""

    def __init__(self, folder: Path) -> None:
        self.run_id, self.experiment_id = uuid.uuid4().hex, ""
        self.kept = Kept()
        self._folder = folder

    @contextlib.contextmanager
    def opened(self, **_: Any) -> Iterator[Self]:
        """Itself; what it was told is on disk at the end, unless the run failed."""
        yield self
        params = {key: str(value) for key, value in self.kept.params.items()}
        content = asdict(replace(self.kept, params=params))
        write_whole(self._folder / _KEPT, json.dumps(content).encode())

    def record(self, step: int, metrics: Mapping[str, float], *, timestamp: int | None = None) -> None:
        """Keeps the last value of each."""
        self.kept.metrics.update({key: float(value) for key, value in metrics.items()})

    def tag_soon(self, key: str, value: str) -> None:
        """Keeps it."""
        self.kept.tags[key] = value

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Keeps them."""
        self.kept.params.update(params)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Keeps them."""
        self.kept.tags.update(tags)

    def log_text(self, text: str, name: str) -> None:
        """Keeps it."""
        self.kept.texts[name] = text

    def log_artifact(self, path: Path) -> None:
        """Keeps a copy."""
        copy = make_private_folder(self._folder / _FILES) / path.name
        shutil.copyfile(path, copy)
        self.kept.files.append(str(copy))

    def log_model(self, folder: Path, *, step: int) -> None:
        """Keeps a copy."""
        copy = make_private_folder(self._folder / _FILES) / folder.name
        shutil.copytree(folder, copy)
        self.kept = replace(self.kept, model=str(copy))

    def log_dataset(self, *, name: str, digest: str, num_examples: int, relation: str) -> None:
        """Keeps nothing: the digest is of private rows."""

    def save_view(self, *, accuracy: str | None) -> None:
        """Keeps nothing: a trial is shown nowhere."""


def run_trial(candidate: Candidate, folder: Path, whole: Whole) -> Mapping[str, float]:
    """Trains on a point, and keeps what came of it.

    Args:
        candidate: The point.
        folder: For this trial alone; private.
        whole: What the model claims if it is released: the guarantee of the whole selection.

    Returns:
        The last value of each metric; empty where the trial failed, for whatever reason. The reason is in
        the trial's log.
    """
    from dpexp.training import train  # imports torch

    make_private_folder(folder)
    run = _PrivateRun(folder)
    with apart(folder / "trial.log"):
        try:
            train(_inside(candidate.experiment, folder, run, whole))
        except Exception:  # noqa: BLE001 - whatever it is, it is for the trial's log alone
            _log.exception("The trial failed, and counts as the worst.")
            return {}
        except SystemExit:
            _log.exception("The trial left the process.")
            raise SystemExit(1) from None  # whatever it says is for the trial's log, too
    return run.kept.metrics


def _inside(experiment: Experiment, folder: Path, run: _PrivateRun, whole: Whole) -> Experiment:
    """The same run, with everything it writes below the folder; it is never gone on with."""
    assert experiment.options is not None
    return replace(
        experiment,
        tracking=replace(experiment.tracking, outputs=str(folder)),
        options=replace(experiment.options, checkpoint=Checkpointing(keep=0)),
        config=dict(experiment.config),  # as declared: none is worked out from where this trial lies
        recording=run.opened,
        whole=whole,
        resume=None,
        tags={},
    )
