"""MLflow: one run per job, metrics in batches, a status that is true."""

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from dpexp import _validate

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.entities import Run as FoundRun

__all__ = ["MLflowTracking", "Run", "connect", "flatten", "last_steps", "runs_like", "shown_uri"]

_log = logging.getLogger(__name__)
_BATCH = 1000  # the REST interface takes no more metrics at once
_PARAMS = 100  # nor more params
_FLUSH_SECONDS = 2.0
_LONGEST_PARAM = 6000
_SQLITE = "sqlite:///"


@final
@dataclass(frozen=True, kw_only=True)
class MLflowTracking:
    """The `tracking` config group.

    Attributes:
        uri: Tracking URI; None takes MLFLOW_TRACKING_URI, or a SQLite store in the outputs folder.
        experiment: MLflow experiment; None takes the name of the dpexp experiment.
        outputs: Folder for everything that is written.
        every: ε and δ are recorded at each `every`-th lot, and the last.
    """

    uri: str | None
    experiment: str | None
    outputs: str
    every: int

    def __post_init__(self) -> None:
        _validate.integer("tracking.every", self.every, at_least=1)
        if self.uri is not None and shown_uri(self.uri) != self.uri:
            raise _validate.refuse(
                "tracking.uri",
                shown_uri(self.uri),
                "a URI without password and query, since the configuration is logged",
                "Set the environment variable MLFLOW_TRACKING_URI to the whole URI instead.",
            )

    @property
    def folder(self) -> Path:
        """The outputs folder, absolute."""
        return Path(self.outputs).absolute()

    @property
    def resolved_uri(self) -> str:
        """The store that is used."""
        chosen = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        return chosen or f"sqlite:///{self.folder / 'mlflow.db'}"

    @contextlib.contextmanager
    def run(self, *, name: str, run_name: str, run_id: str | None = None) -> Iterator["Run"]:
        """A run that ends FINISHED, FAILED after an exception, or KILLED after an interrupt.

        With `run_id`, that run goes on; points that it already has are not recorded twice.
        """
        client = connect(self.resolved_uri, self.folder)
        experiment = self.experiment or name
        experiment_id = _experiment(client, experiment, self.folder)
        if run_id is None:
            run = Run(client, client.create_run(experiment_id, run_name=run_name).info.run_id, experiment_id)
        else:
            client.update_run(run_id, status="RUNNING")
            run = Run(client, run_id, experiment_id, last=_last_steps(client, run_id))
        try:
            yield run
            run.flush()
        except Exception:
            run.close("FAILED")
            raise
        except BaseException:  # Ctrl-C, SIGTERM, and what Lightning makes of them
            run.close("KILLED")
            raise
        run.close("FINISHED")

    def dataset_key(self) -> bytes:
        """The local secret under which data set digests are computed; made once, readable by its owner."""
        path = self.folder / ".dataset_key"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(32))
            return path.read_bytes()


@final
class Run:
    """One MLflow run, with a buffer for metrics that a thread empties at least every two seconds."""

    def __init__(
        self,
        client: "MlflowClient",
        run_id: str,
        experiment_id: str,
        *,
        last: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.client, self.run_id, self.experiment_id = client, run_id, experiment_id
        self._buffer: list[Metric] = []
        self._tags: dict[str, str] = {}
        self._last = dict(last)  # the last step of each series
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._flush_regularly, daemon=True)
        self._thread.start()

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Buffers metrics at one step; a series goes forward only, so no point comes twice."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        with self._lock:
            new = {key: value for key, value in metrics.items() if step > self._last.get(key, -1)}
            self._buffer += [Metric(key, float(value), now, step) for key, value in new.items()]
            self._last |= dict.fromkeys(new, step)

    def tag_soon(self, key: str, value: str) -> None:
        """Buffers a tag, which is stored with the next metrics; training does not wait for it."""
        with self._lock:
            self._tags[key] = value

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Logs params, in batches; values over 6000 characters are cut."""
        from mlflow.entities import Param

        entries = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in params.items()]
        for start in range(0, len(entries), _PARAMS):
            self.client.log_batch(self.run_id, params=entries[start : start + _PARAMS])

    def log_text(self, text: str, name: str) -> None:
        """Stores a text artifact."""
        self.client.log_text(self.run_id, text, name)

    def log_artifact(self, path: Path) -> None:
        """Stores a file as an artifact."""
        self.client.log_artifact(self.run_id, str(path))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        for key, value in tags.items():
            self.client.set_tag(self.run_id, key, value)

    def log_dataset(self, *, name: str, digest: str, num_examples: int, relation: str) -> None:
        """Names the training data; `digest` must be keyed by a secret."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=digest,
            source_type="local",
            source="{}",
            profile=f'{{"declared_num_examples": {num_examples}}}',
        )
        tags = [InputTag("mlflow.data.context", "training"), InputTag("dpexp.relation", relation)]
        self.client.log_inputs(self.run_id, [DatasetInput(dataset, tags)])

    def close(self, status: str) -> None:
        """Stores what is buffered and ends the run; what cannot be stored any more is reported."""
        self._closed.set()
        self._thread.join()
        try:
            self.flush()
        except OSError as error:
            _log.error("%d metrics of run %s could not be stored: %s", len(self._buffer), self.run_id, error)
        self.client.set_terminated(self.run_id, status)

    def _flush_regularly(self) -> None:
        while not self._closed.wait(_FLUSH_SECONDS):
            try:
                self.flush()
            except OSError as error:
                _log.warning("MLflow cannot be reached (%s); metrics are kept and sent later.", error)

    def _flush_tags(self) -> None:
        from mlflow.exceptions import MlflowException

        with self._lock:
            tags, self._tags = self._tags, {}
        try:
            self.set_tags(tags)
        except MlflowException as error:
            with self._lock:
                self._tags = tags | self._tags
            raise ConnectionError(str(error)) from error

    def flush(self) -> None:
        """Stores what is buffered.

        Raises:
            ConnectionError: The store does not take it; it stays buffered.
        """
        with self._flushing:
            self._flush_tags()
            while True:
                with self._lock:
                    batch = self._buffer[:_BATCH]
                if not batch:
                    return
                _log_batch(self.client, self.run_id, batch)
                with self._lock:
                    del self._buffer[: len(batch)]


def runs_like(
    tracking: MLflowTracking, name: str, *, run_id: str | None, tags: Mapping[str, str]
) -> "list[FoundRun]":
    """The runs of an experiment with these tags, the newest first; or the one with this id, if there is.

    Args:
        tracking: The store.
        name: The dpexp experiment, whose name the MLflow experiment has where none is set.
        run_id: An MLflow run, of whatever experiment.
        tags: What the runs must be tagged with.

    Raises:
        UserError: The store cannot be opened.
    """
    from mlflow.exceptions import MlflowException

    client = connect(tracking.resolved_uri, tracking.folder)
    if run_id is not None:
        try:
            return [client.get_run(run_id)]
        except MlflowException:
            return []
    found = client.get_experiment_by_name(tracking.experiment or name)
    if found is None:
        return []
    wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    return list(client.search_runs([found.experiment_id], wanted, order_by=["attributes.start_time DESC"]))


def last_steps(tracking: MLflowTracking, run_id: str) -> Mapping[str, int]:
    """The last step of each series of a run."""
    return _last_steps(connect(tracking.resolved_uri, tracking.folder), run_id)


def _last_steps(client: "MlflowClient", run_id: str) -> dict[str, int]:
    keys = client.get_run(run_id).data.metrics
    return {key: max(point.step for point in client.get_metric_history(run_id, key)) for key in keys}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return flat


def _log_batch(client: "MlflowClient", run_id: str, metrics: list["Metric"]) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.log_batch(run_id, metrics=metrics)
    except MlflowException as error:
        raise ConnectionError(str(error)) from error


def connect(uri: str, folder: Path) -> "MlflowClient":
    """A client of the store, which answers; a new SQLite store is made once, under a lock.

    Raises:
        UserError: The store cannot be reached or opened.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # seconds, not minutes, if none answers
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _client_of_sqlite(uri) if uri.startswith(_SQLITE) else _client(uri)
    except MlflowException as error:
        raise _validate.refuse(
            "tracking.uri", shown_uri(uri), "a store that can be opened", str(error).splitlines()[0]
        ) from error


def shown_uri(uri: str) -> str:
    """The URI without password and query, for screens and logs."""
    parts = urlsplit(uri)
    if parts.password is None and not parts.query:
        return uri
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{parts.username or ''}:***@{host}", parts.path, "", ""))


def _client(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    client.search_experiments(max_results=1)
    return client


def _client_of_sqlite(uri: str) -> "MlflowClient":
    database = Path(uri.removeprefix(_SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    # Several processes at once destroy a store that is being made, and already the client makes it.
    with FileLock(f"{database}.lock"):
        client = _client(uri)
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file; five times faster
        connection.close()
    return client


def _experiment(client: "MlflowClient", name: str, folder: Path) -> str:
    with FileLock(folder / ".mlflow_experiment.lock"):
        found = client.get_experiment_by_name(name)
        if found is None:
            sqlite = client.tracking_uri.startswith("sqlite:")
            location = (folder / "artifacts" / name).as_uri() if sqlite else None
            return str(client.create_experiment(name, artifact_location=location))
    if found.lifecycle_stage != "active":
        raise _validate.refuse(
            "tracking.experiment",
            name,
            "an experiment that is not deleted",
            f"Restore it (mlflow experiments restore --experiment-id {found.experiment_id}), or set another.",
        )
    return str(found.experiment_id)
