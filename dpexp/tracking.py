"""MLflow: one run per job, metrics in batches, a status that is true."""

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from dpexp import _validate
from dpexp.delivery import Unavailable, send
from dpexp.spool import Refused, Spool, spools

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as FoundRun

__all__ = ["MLflowTracking", "Run", "connect", "flatten", "last_steps", "runs_like", "shown_uri"]

_log = logging.getLogger(__name__)
_BATCH = 1000  # metrics told at once
_MOST_IN_MEMORY = 20_000  # metrics; more go to the disk
_FLUSH_SECONDS = 2.0
_PATIENCE_SECONDS = 10.0  # at the end of a run, for a store that is away or locked
_PAUSE_SECONDS = 0.5
_LONGEST_PARAM = 6000
_SQLITE = "sqlite:///"

_Point = tuple[str, float, int, int]  # key, value, ms since 1970, step


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
        self._send_spooled(client)
        experiment = self.experiment or name
        experiment_id = _experiment(client, experiment, self.folder)
        if run_id is None:
            found = str(client.create_run(experiment_id, run_name=run_name).info.run_id)
            run = Run(client, found, experiment_id, self._spool(found))
        else:
            client.update_run(run_id, status="RUNNING")
            last = _last_steps(client, run_id)
            run = Run(client, run_id, experiment_id, self._spool(run_id), last=last)
        try:
            yield run
        except Exception:
            run.close("FAILED")
            raise
        except BaseException:  # Ctrl-C, SIGTERM, and what Lightning makes of them
            run.close("KILLED")
            raise
        run.close("FINISHED")

    def send(self) -> tuple[int, int]:
        """Sends what earlier runs could not store; returns how many runs are complete now, and how many not.

        Raises:
            UserError: The store cannot be reached.
        """
        return self._send_spooled(connect(self.resolved_uri, self.folder))

    def _send_spooled(self, client: "MlflowClient") -> tuple[int, int]:
        complete, left = 0, 0
        for spool in spools(self._spools, shown_uri(self.resolved_uri)):
            try:
                spool.drain(partial(send, client, spool.run_id))
            except Unavailable as error:
                left += 1
                _log.warning("Run %s still waits in %s: %s", spool.run_id, spool.path, error)
            else:
                complete += 1
                _log.warning("What run %s had left on disk is now in the store.", spool.run_id)
        return complete, left

    def _spool(self, run_id: str) -> Spool:
        return Spool(self._spools, run_id, shown_uri(self.resolved_uri))

    @property
    def _spools(self) -> Path:
        return self.folder / "spool"

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
    """One MLflow run, with a buffer for metrics that a thread empties at least every two seconds.

    Whatever the store does not take waits in `spool`, on disk, and is sent when the store is back: by this
    run, or by the next one.
    """

    def __init__(
        self,
        client: "MlflowClient",
        run_id: str,
        experiment_id: str,
        spool: Spool,
        *,
        last: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.client, self.run_id, self.experiment_id = client, run_id, experiment_id
        self._spool = spool
        self._buffer: list[_Point] = []
        self._tags: dict[str, str] = {}
        self._last = dict(last)  # the last step of each series
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._closed = threading.Event()
        self._away = False
        self._thread = threading.Thread(target=self._flush_regularly, daemon=True)
        self._thread.start()

    def record(self, step: int, metrics: Mapping[str, float], *, timestamp: int | None = None) -> None:
        """Buffers metrics at one step; a series goes forward only, so no point comes twice.

        Args:
            step: Charged lots.
            metrics: Values by name.
            timestamp: ms since 1970, None for now.
        """
        now = int(time.time() * 1000) if timestamp is None else timestamp
        with self._lock:
            new = {key: value for key, value in metrics.items() if step > self._last.get(key, -1)}
            self._buffer += [(key, float(value), now, step) for key, value in new.items()]
            self._last |= dict.fromkeys(new, step)
            too_long = len(self._buffer) >= _MOST_IN_MEMORY
        if too_long:
            self._spill()

    def tag_soon(self, key: str, value: str) -> None:
        """Buffers a tag, which is stored with the next metrics; training does not wait for it."""
        with self._lock:
            self._tags[key] = value

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Logs params; values over 6000 characters are cut."""
        values = {key: str(value)[:_LONGEST_PARAM] for key, value in params.items()}
        self._tell({"kind": "params", "params": values})

    def log_text(self, text: str, name: str) -> None:
        """Stores a text artifact."""
        self._tell({"kind": "text", "name": name, "text": text})

    def log_artifact(self, path: Path) -> None:
        """Stores a file as an artifact."""
        self._tell({"kind": "file", "path": str(path)})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        self._tell({"kind": "tags", "tags": dict(tags)})

    def log_dataset(self, *, name: str, digest: str, num_examples: int, relation: str) -> None:
        """Names the training data; `digest` must be keyed by a secret."""
        tags = {"mlflow.data.context": "training", "dpexp.relation": relation}
        profile = f'{{"declared_num_examples": {num_examples}}}'
        self._tell({"kind": "dataset", "name": name, "digest": digest, "profile": profile, "tags": tags})

    def close(self, status: str) -> None:
        """Stores what is buffered and ends the run; what cannot be stored now waits on disk, and is named."""
        self._closed.set()
        self._thread.join()
        self._flush_patiently()
        try:
            self._tell({"kind": "status", "status": status, "end_time": int(time.time() * 1000)})
        except OSError as error:  # neither store nor disk
            lost = len(self._buffer)
            _log.error("%d metrics of run %s (%s) cannot be kept: %s", lost, self.run_id, status, error)
        if not self._away:
            self._flush_patiently()  # what was refused is put aside, and said
        if self._spool.waiting:
            _log.error(
                "The store did not take all of run %s (%s): the rest is in %s. It is sent when the next run "
                "starts on this store, or now by: python -m dpexp task=send",
                self.run_id,
                status,
                self._spool.path,
            )
        self._spool.release()

    def flush(self) -> None:
        """Stores what is buffered, and what waits on disk.

        Raises:
            ConnectionError: The store does not take it; it waits on disk.
        """
        with self._flushing:
            self._flush_tags()
            while points := self._taken(_BATCH):
                self._keep_or_return(points)
            try:
                sent = self._spool.drain(self._send)
            except Unavailable:
                self._away = True
                raise
            if sent and self._away:
                _log.warning("MLflow is back; what waited on disk has been stored.")
            self._away = False

    def _keep_or_return(self, points: "list[_Point]") -> None:
        """To the store or to the disk; back into memory only where both fail."""
        try:
            self._store_or_keep(_metrics(points))
        except BaseException:
            with self._lock:
                self._buffer[:0] = points
            raise

    def _tell(self, entry: Mapping[str, Any]) -> None:
        with self._flushing:
            self._store_or_keep(entry)

    def _store_or_keep(self, entry: Mapping[str, Any]) -> None:
        if not self._spool.waiting:  # else it takes its place behind what was told before
            try:
                self._send(entry)
                return
            except Unavailable as error:
                _log.warning("MLflow cannot be reached (%s); what is recorded waits on disk.", _first(error))
                self._away = True
            except Refused as error:  # once more when the spool is sent, which then puts it aside
                _log.debug("Refused: %s", error)
        self._spool.append(self._lasting(entry))

    def _send(self, entry: Mapping[str, Any]) -> None:
        send(self.client, self.run_id, entry)

    def _lasting(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """The entry with its file kept: the caller's is temporary."""
        if entry["kind"] != "file":
            return entry
        return {**entry, "path": str(self._spool.keep(Path(entry["path"])))}

    def _taken(self, count: int) -> "list[_Point]":
        with self._lock:
            points = self._buffer[:count]
            del self._buffer[:count]
        return points

    def _spill(self) -> None:
        """A store that is slow or gone must not fill the memory."""
        points = self._taken(_MOST_IN_MEMORY)
        try:
            self._spool.append(_metrics(points))
        except OSError as error:
            with self._lock:
                self._buffer[:0] = points
            _log.error("%d metrics stay in memory: %s", len(points), error)

    def _flush_regularly(self) -> None:
        while not self._closed.wait(_FLUSH_SECONDS):
            try:
                self.flush()
            except OSError as error:
                _log.debug("Not stored yet: %s", error)

    def _flush_tags(self) -> None:
        with self._lock:
            tags, self._tags = self._tags, {}
        if tags:
            self._store_or_keep({"kind": "tags", "tags": tags})

    def _flush_patiently(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self.flush()
            except OSError as error:
                if time.monotonic() > deadline:
                    _log.debug("Not stored at the end: %s", error)
                    return None
            time.sleep(_PAUSE_SECONDS)


def _metrics(points: "Sequence[_Point]") -> Mapping[str, Any]:
    return {"kind": "metrics", "points": points}


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]


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


def connect(uri: str, folder: Path) -> "MlflowClient":
    """A client of the store, which answers; a new SQLite store is made once, under a lock.

    Raises:
        UserError: The store cannot be reached or opened.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
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
        _made_for_its_owner(database)
        client = _client(uri)
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file; five times faster
        connection.close()
    return client


def _made_for_its_owner(path: Path) -> None:
    """Makes an empty file that only its owner may read, since the store holds nonprivate/ figures too."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


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
