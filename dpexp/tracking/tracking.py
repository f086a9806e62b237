"""MLflow: one run per job, metrics in batches, a status that is true."""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from filelock import FileLock

from dpexp import _validate
from dpexp.delivery import Unavailable, send
from dpexp.spool import Spool, spools
from dpexp.tracking.alive import alive, close_the_dead
from dpexp.tracking.run import Run
from dpexp.tracking.store import connect, experiment_in, last_steps_of, shown_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as FoundRun


__all__ = ["MLflowTracking", "last_steps", "runs_like"]

_log = logging.getLogger(__name__)


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

    uri: str | None = None
    experiment: str | None = None
    outputs: str = "outputs"
    every: int = 10

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
    def run(
        self,
        *,
        name: str,
        run_name: str,
        run_id: str | None = None,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator["Run"]:
        """A run that ends FINISHED, FAILED after an exception, or KILLED after an interrupt.

        With `run_id`, that run goes on; points that it already has are not recorded twice. A new one has
        `tags` from its first moment.
        """
        client = connect(self.resolved_uri, self.folder)
        self._send_spooled(client)
        close_the_dead(client, self._running)
        experiment_id = experiment_in(client, self.experiment or name, self.folder)
        if run_id is None:
            made = client.create_run(experiment_id, run_name=run_name, tags=dict(tags)).info.run_id
            with self._written(client, str(made), experiment_id) as run:
                yield run
        else:
            with self._written(client, run_id, experiment_id, last=last_steps_of(client, run_id)) as run:
                client.update_run(run_id, status="RUNNING")
                yield run

    @contextlib.contextmanager
    def _written(
        self,
        client: "MlflowClient",
        run_id: str,
        experiment_id: str,
        last: Mapping[str, int] = MappingProxyType({}),
    ) -> Iterator[Run]:
        with alive(self._running, run_id):
            run = Run(client, run_id, experiment_id, self._spool(run_id), last=last)
            with _closed(run):
                yield run

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

    @property
    def _running(self) -> Path:
        return self.folder / "running"

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


@contextlib.contextmanager
def _closed(run: Run) -> Iterator[None]:
    try:
        yield
    except Exception:
        run.close("FAILED")
        raise
    except BaseException:  # Ctrl-C, SIGTERM, and what Lightning makes of them
        run.close("KILLED")
        raise
    run.close("FINISHED")


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
    return last_steps_of(connect(tracking.resolved_uri, tracking.folder), run_id)
