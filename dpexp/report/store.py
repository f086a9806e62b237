"""The MLflow store, read: experiments, runs page by page, series of metrics, artifacts in text."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from dpexp import _validate
from dpexp.report.stored import StoredRun
from dpexp.tracking import MLflowTracking, all_pages, connect, shown_uri

__all__ = ["Store"]

_log = logging.getLogger(__name__)
_SQLITE = "sqlite:///"
_LONGEST_TEXT = 200_000  # bytes of an artifact


@final
class Store:
    """Reads; the one thing it ever writes is a finished report, as an artifact.

    Args:
        tracking: Which store.

    Raises:
        UserError: There is none, or it cannot be opened.
    """

    def __init__(self, tracking: MLflowTracking) -> None:
        self._uri = tracking.resolved_uri
        database = Path(self._uri.removeprefix(_SQLITE))
        if self._uri.startswith(_SQLITE) and not database.exists():
            hint = "Train something first, or set tracking.uri or tracking.outputs to where the runs are."
            raise _validate.refuse("tracking.uri", self.shown_uri, "a store that exists", hint)
        self._client = connect(self._uri, tracking.folder)

    @property
    def shown_uri(self) -> str:
        """Where it is, without password."""
        return shown_uri(self._uri)

    def experiments(self) -> dict[str, str]:
        """The ids of the MLflow experiments that have runs, by name."""
        with self._asked():
            pages = all_pages(self._client.search_experiments)
            return {
                found.name: found.experiment_id
                for found in pages
                if self._client.search_runs([found.experiment_id], max_results=1)
            }

    def runs(self, experiment_id: str, tag: tuple[str, str] | None = None) -> Iterator[StoredRun]:
        """The runs of an experiment, the newest first, whatever became of them; or those with a tag."""
        where = "" if tag is None else f"tags.`{tag[0]}` = '{tag[1]}'"
        order = ["attributes.start_time DESC"]
        with self._asked():
            for run in all_pages(self._client.search_runs, [experiment_id], where, order_by=order):
                yield StoredRun.of(run)

    def run(self, run_id: str) -> tuple[StoredRun, str]:
        """One run, and the id of its experiment.

        Raises:
            UserError: There is none of that id.
        """
        with self._asked():
            found = self._client.get_run(run_id)
            return StoredRun.of(found), str(found.info.experiment_id)

    def history(self, run: StoredRun, metric: str) -> dict[int, float]:
        """A metric by the number of charged lots, in order; empty where the run has none."""
        if metric not in run.metrics:
            return {}
        with self._asked():
            points = self._client.get_metric_history(run.run_id, metric)
        return dict(sorted((int(point.step), float(point.value)) for point in points))

    def text(self, run: StoredRun, name: str) -> str | None:
        """An artifact as text; None where it is not there, or cannot be fetched, which is then logged."""
        from mlflow.exceptions import MlflowException

        try:
            if name not in {file.path for file in self._client.list_artifacts(run.run_id)}:
                return None
            with TemporaryDirectory() as folder:
                path = Path(self._client.download_artifacts(run.run_id, name, folder))
                with path.open("rb") as file:
                    return file.read(_LONGEST_TEXT).decode("utf-8", errors="replace")
        except (MlflowException, OSError) as error:
            _log.warning("%s of run %s cannot be read: %s", name, run.run_id, _first_line(error))
            return None

    def keep_folder(self, run: StoredRun, folder: Path, name: str) -> None:
        """Stores a folder as artifacts of a run.

        Raises:
            UserError: The store does not take it; the folder stays where it is.
        """
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_artifacts(run.run_id, str(folder), name)
        except (MlflowException, OSError) as error:
            raise _validate.UserError(
                f"{folder} is written, but run {run.run_id} does not take it as an artifact: "
                f"{_first_line(error)}\nTry again, or set task.log=false."
            ) from error

    @contextmanager
    def _asked(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            raise _validate.UserError(
                f"The store {self.shown_uri} does not answer as asked: {_first_line(error)}"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
