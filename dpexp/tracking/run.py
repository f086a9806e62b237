"""One MLflow run that is written to."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from dpexp.delivery import Unavailable, send
from dpexp.spool import Refused, Spool
from dpexp.tracking.view import save_view

if TYPE_CHECKING:
    from mlflow import MlflowClient


__all__ = ["Run", "flatten"]

_log = logging.getLogger(__name__)
_BATCH = 1000  # metrics told at once
_MOST_IN_MEMORY = 20_000  # metrics; more go to the disk
_FLUSH_SECONDS = 2.0
_PATIENCE_SECONDS = 10.0  # at the end of a run, for a store that is away or locked
_PAUSE_SECONDS = 0.5
_LONGEST_PARAM = 6000

_Point = tuple[str, float, int, int]  # key, value, ms since 1970, step


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

    @property
    def last_step(self) -> int:
        """The last step of any series; -1 before the first."""
        return max(self._last.values(), default=-1)

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

    def log_model(self, folder: Path, *, step: int) -> None:
        """Stores a folder that MLflow saved as the run's model `model`; a second one takes its place."""
        entry = {"name": "model", "path": str(folder), "experiment_id": self.experiment_id, "step": step}
        self._tell({"kind": "model", **entry})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        self._tell({"kind": "tags", "tags": dict(tags)})

    def log_dataset(self, *, name: str, digest: str, num_examples: int, relation: str) -> None:
        """Names the training data; `digest` must be keyed by a secret."""
        tags = {"mlflow.data.context": "training", "dpexp.relation": relation}
        profile = f'{{"declared_num_examples": {num_examples}}}'
        self._tell({"kind": "dataset", "name": name, "digest": digest, "profile": profile, "tags": tags})

    def save_view(self, *, accuracy: str | None) -> None:
        """Gives the MLflow experiment its view in the UI; `accuracy` is the metric at the end, if any."""
        save_view(self.client, self.experiment_id, accuracy=accuracy)

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
        """The entry with its file or folder kept: the caller's is temporary."""
        if "path" not in entry:
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


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return flat
