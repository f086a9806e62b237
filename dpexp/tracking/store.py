"""The MLflow store: opened, made once under a lock, and asked."""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from dpexp import _validate

if TYPE_CHECKING:
    from mlflow import MlflowClient


__all__ = ["all_pages", "connect", "experiment_in", "last_steps_of", "shown_uri"]

_SQLITE = "sqlite:///"
_PAGE = 500


def connect(uri: str, folder: Path) -> "MlflowClient":
    """A client of the store, which answers; a new SQLite store is made once, under a lock.

    Raises:
        UserError: The store cannot be reached or opened.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
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


def experiment_in(client: "MlflowClient", name: str, folder: Path) -> str:
    """The id of an MLflow experiment, which is made where there is none.

    Raises:
        UserError: It was deleted.
    """
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


def last_steps_of(client: "MlflowClient", run_id: str) -> dict[str, int]:
    """The last step of each series of a run."""
    keys = client.get_run(run_id).data.metrics
    return {key: max(point.step for point in client.get_metric_history(run_id, key)) for key in keys}


def all_pages(ask: Callable[..., Any], *arguments: Any, **keywords: Any) -> Iterator[Any]:
    """Everything that a search finds, page by page.

    Args:
        ask: A client's `search_runs` or the like.
        *arguments: What it is asked.
        **keywords: The same.
    """
    token = None
    while True:
        page = ask(*arguments, **keywords, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
