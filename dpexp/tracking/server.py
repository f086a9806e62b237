"""The MLflow UI as a process of its own, which ends with the block that needs it."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

from dpexp import _validate
from dpexp.stopping import ignoring_signals

__all__ = ["LOOPBACK", "MLflowUi", "free_port", "mlflow_ui"]

LOOPBACK = "127.0.0.1"
_PORTS = 20  # tried after one that is taken
_START_SECONDS = 180.0  # ten on an idle machine
_END_SECONDS = 5.0  # for the server to finish what it answers
_PAUSE_SECONDS = 0.2
_LOG_LINES = 12  # shown of a server that did not start


@final
class MLflowUi:
    """A server that answers, on loopback; made by `mlflow_ui`."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.address = f"http://{LOOPBACK}:{port}"
        self._process, self._port, self._log = process, port, log

    def wait(self) -> None:
        """Returns when the server has ended, which it does not do by itself.

        Raises:
            UserError: It has, with the last lines that it said.
        """
        self._process.wait()
        raise self._failure("ended")

    def await_answer(self) -> None:
        """Returns when the server answers.

        Raises:
            UserError: It ended, or does not answer within three minutes.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise self._failure("did not start")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {_START_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)

    def end(self) -> None:
        """Ends the server and every process that it started; a second Ctrl-C does not leave them behind."""
        with ignoring_signals():
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=5)  # past any proxy
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(self._process.pid, number)  # the server leads a group of its own

    def _failure(self, what: str) -> _validate.UserError:
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return _validate.UserError("\n".join([f"The MLflow UI {what}; the end of {self._log}:", *said]))


@contextlib.contextmanager
def mlflow_ui(uri: str, folder: Path, *, port: int) -> Iterator[MLflowUi]:
    """The MLflow UI on a store, on loopback with one worker; it answers when the block begins.

    Args:
        uri: The store, with its password, which is passed on where other users do not see it.
        folder: Where `mlflow_ui.log` and the artifacts go that are uploaded in the UI.
        port: A free one.

    Raises:
        UserError: The server does not start.
    """
    log = folder / "mlflow_ui.log"
    command = [sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port)]
    command += ["--workers", "1", "--uvicorn-opts", "--log-level warning"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    settings = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = MLflowUi(process, port, log)
    try:
        server.await_answer()
        yield server
    finally:
        server.end()


def free_port(key: str, first: int) -> int:
    """The first port from `first` on that nobody listens on.

    Args:
        key: Where it is set, for errors.
        first: The port wanted.

    Raises:
        UserError: It is taken, and so are those after it.
    """
    for port in range(first, min(first + _PORTS, 65536)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return port
    expected = f"a free port on {LOOPBACK}, or one that is followed by a free one within {_PORTS}"
    raise _validate.refuse(key, first, expected, "See which program holds it: ss -ltnp")
