"""A real MLflow server that is killed in the middle of a run: `python -m pytest -m faults`."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.test_training import TINY, series

pytestmark = pytest.mark.faults


class Server:
    """`mlflow server` on a port of its own, started and killed at will."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'server.db'}", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self.folder / "server.log", "a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        deadline = time.monotonic() + 280
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.3)
        raise AssertionError((self.folder / "server.log").read_text()[-2000:])

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (made := Server(tmp_path)).url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_a_run_outlives_its_server_and_is_complete_when_it_is_back(
    dpexp, outputs, server, monkeypatch, capfd
):
    from mlflow import MlflowClient

    from dpexp.callbacks import Trajectory

    recorded = Trajectory.on_validation_end

    def kill_at_the_first(self, trainer, module):
        if server.process.poll() is None:
            server.kill()
        recorded(self, trainer, module)

    monkeypatch.setattr(Trajectory, "on_validation_end", kill_at_the_first)
    assert dpexp(*TINY, "privacy.steps=40", "tracking.every=1") == 0
    assert list((outputs / "spool").glob("*.jsonl"))
    assert dpexp("task=send") == 1  # refused: nobody answers
    server.start()
    assert dpexp("task=send") == 0
    client = MlflowClient(server.url)
    [experiment] = [e for e in client.search_experiments() if e.name != "Default"]
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert list(series(client, run, "privacy/epsilon")) == list(range(1, 41))
    points = client.get_metric_history(run.info.run_id, "privacy/epsilon")
    assert len(points) == 40
    assert {item.path for item in client.list_artifacts(run.info.run_id)} >= {"model.pt", "config.yaml"}
