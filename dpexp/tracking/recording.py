"""What a run tells of itself, to whomever."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Opener", "Recording"]


class Recording(Protocol):
    """Where a run is recorded: an MLflow run, what strict mode lets through to it, or a private folder.

    Attributes:
        run_id: Its name.
        experiment_id: What it belongs to.
    """

    run_id: str
    experiment_id: str

    def record(self, step: int, metrics: Mapping[str, float], *, timestamp: int | None = None) -> None:
        """Takes metrics at one step, in charged lots; `timestamp` in ms since 1970, None for now."""
        ...

    def tag_soon(self, key: str, value: str) -> None:
        """Takes a tag that may be stored later."""
        ...

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Takes params."""
        ...

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Takes tags."""
        ...

    def log_text(self, text: str, name: str) -> None:
        """Takes a text artifact."""
        ...

    def log_artifact(self, path: Path) -> None:
        """Takes a file as an artifact; the file itself may be gone afterwards."""
        ...

    def log_model(self, folder: Path, *, step: int) -> None:
        """Takes a folder in MLflow's format as the run's model; it may be gone afterwards."""
        ...

    def log_dataset(self, *, name: str, digest: str, num_examples: int, relation: str) -> None:
        """Takes the name of the training data."""
        ...

    def save_view(self, *, accuracy: str | None) -> None:
        """Takes the metric that will say how accurate the model is, for the charts of a user interface."""
        ...


class Opener(Protocol):
    """Opens the recording of a run, as `MLflowTracking.run` does."""

    def __call__(
        self, *, name: str, run_name: str, run_id: str | None, tags: Mapping[str, str]
    ) -> AbstractContextManager[Recording]:
        """The recording, closed at the end of the block."""
        ...
