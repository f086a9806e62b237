"""A store that goes away in the middle: the run goes on, and nothing is lost or stored twice."""

import json
import logging
import sqlite3
import threading
import time

import mlflow
import pytest
import torch

from dpexp.delivery import Unavailable
from dpexp.spool import Refused, Spool, spools
from dpexp.tracking import connect
from dpexp.tracking import run as runs
from dpexp.tracking import tracking as rooms
from tests.test_tracking import tracking
from tests.test_training import TINY, artifact, only_run, store  # noqa: F401


class Flaky:
    """A client of a store that can be switched off."""

    def __init__(self, client):
        self.client, self.down, self.calls_left = client, False, None

    def __getattr__(self, name):
        from mlflow.exceptions import MlflowException

        found = getattr(self.client, name)
        if not callable(found) or name in ("search_experiments", "get_run", "get_metric_history"):
            return found

        def call(*arguments, **keywords):
            if self.calls_left is not None:
                self.calls_left -= 1
                self.down = self.down or self.calls_left < 0
            if self.down:
                raise MlflowException("API request failed: connection refused")
            return found(*arguments, **keywords)

        return call


@pytest.fixture
def flaky(outputs, monkeypatch):
    client = Flaky(connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs))
    monkeypatch.setattr(rooms, "connect", lambda uri, folder: client)
    monkeypatch.setattr(runs, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(runs, "_FLUSH_SECONDS", 0.05)
    return client


def points(client, run_id, key):
    return sorted((m.step, m.value) for m in client.get_metric_history(run_id, key))


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_store_that_comes_back_gets_every_point_once(outputs, flaky):
    spool = outputs / "spool"
    with tracking(outputs).run(name="away", run_name="one") as run:
        for step in range(300):
            run.record(step, {"privacy/epsilon": step / 10})
            if step == 100:
                flaky.down = True
                wait_until(lambda: list(spool.glob("*.jsonl")))
            if step == 200:
                flaky.down = False
                wait_until(lambda: not list(spool.glob("*.jsonl")))
    assert points(flaky.client, run.run_id, "privacy/epsilon") == [(s, s / 10) for s in range(300)]
    assert flaky.get_run(run.run_id).info.status == "FINISHED"


def test_a_store_that_is_gone_at_the_end_gets_everything_at_the_next_start(outputs, flaky, tmp_path, caplog):
    model = tmp_path / "model.pt"
    model.write_bytes(b"weights")
    with tracking(outputs).run(name="away", run_name="one") as run:
        run.record(1, {"val/loss": 3.0})
        flaky.down = True
        run.record(2, {"val/loss": 2.0, "nonprivate/x": float("nan")})
        run.log_params({"plan.steps": 3})
        run.set_tags({"dpexp.kind": "train"})
        run.set_tags({"dpexp.kind": "sweep"})
        run.log_text("ε ≤ 1", "privacy_statement.txt")
        run.log_artifact(model)
        run.log_dataset(name="digits", digest="d", num_examples=5, relation="zero_out")
        model.unlink()  # as a temporary file is
    [waiting] = (outputs / "spool").glob("*.jsonl")
    assert waiting.stat().st_mode & 0o777 == 0o600
    assert waiting.parent.stat().st_mode & 0o777 == 0o700
    assert "python -m dpexp task=send" in caplog.text
    assert str(waiting) in caplog.text
    assert flaky.get_run(run.run_id).info.status == "RUNNING"
    flaky.down = False
    with tracking(outputs).run(name="away", run_name="two"):
        pass
    found = flaky.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.info.end_time >= found.info.start_time
    assert points(flaky.client, run.run_id, "val/loss") == [(1, 3.0), (2, 2.0)]
    assert len(points(flaky.client, run.run_id, "nonprivate/x")) == 1
    assert found.data.params == {"plan.steps": "3"}
    assert found.data.tags["dpexp.kind"] == "sweep"  # what was told last
    assert {item.path for item in flaky.client.list_artifacts(run.run_id)} == {
        "model.pt",
        "privacy_statement.txt",
    }
    assert found.inputs.dataset_inputs[0].dataset.name == "digits"
    assert not [path for path in (outputs / "spool").iterdir() if path.suffix != ".lock"]


def test_a_whole_run_outlives_its_store_and_is_sent_by_its_own_command(dpexp, outputs, flaky, capsys):
    flaky.calls_left = 20  # gone after the run has begun
    assert dpexp(*TINY, "privacy.steps=12") == 0
    assert "test accuracy" in capsys.readouterr().out
    assert dpexp("task=send") == 1
    assert "1 still wait" in capsys.readouterr().err
    flaky.calls_left, flaky.down = None, False
    assert dpexp("task=send") == 0
    assert "1 runs were waiting" in capsys.readouterr().out
    run = only_run(flaky.client)
    assert run.info.status == "FINISHED"
    assert [step for step, _ in points(flaky.client, run.info.run_id, "privacy/epsilon")] == list(
        range(1, 13)
    )
    assert run.data.metrics["final/steps"] == 12
    assert artifact(flaky.client, run, "model.pt")
    [output] = run.outputs.model_outputs
    model = flaky.client.get_logged_model(output.model_id)
    assert model.status == "READY"
    assert mlflow.pytorch.load_model(model.artifact_location)(torch.zeros(2, 64)).shape == (2, 10)


def test_a_failed_run_is_failed_also_when_that_is_told_late(outputs, flaky):
    def fail():
        flaky.down = True
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tracking(outputs).run(name="away", run_name="one") as run:
        fail()
    flaky.down = False
    assert tracking(outputs).send() == (1, 0)
    assert flaky.get_run(run.run_id).info.status == "FAILED"


def test_memory_stays_bounded_while_the_store_is_away(outputs, flaky, monkeypatch):
    monkeypatch.setattr(runs, "_FLUSH_SECONDS", 3600)  # a flush that hangs
    monkeypatch.setattr(runs, "_MOST_IN_MEMORY", 1500)  # more than a request may carry
    with tracking(outputs).run(name="away", run_name="one") as run:
        for step in range(3100):
            run.record(step, {"val/loss": 1.0})
            assert len(run._buffer) <= 1500
    assert len(points(flaky.client, run.run_id, "val/loss")) == 3100


def test_a_locked_database_loses_nothing(outputs, monkeypatch):
    from sqlalchemy import event

    monkeypatch.setattr(runs, "_FLUSH_SECONDS", 0.05)
    with tracking(outputs).run(name="locked", run_name="one") as run:
        engine = run.client._tracking_client.store.engine
        event.listen(engine, "checkout", lambda c, *_: c.execute("PRAGMA busy_timeout=20"))  # not 5 s
        other = sqlite3.connect(outputs / "mlflow.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")  # what a long transaction of another process does
        for step in range(50):
            run.record(step, {"val/loss": float(step)})
        run.log_text("words", "plan.json")  # an artifact is no row: this goes through or waits, but returns
        run.set_tags({"dpexp.kind": "train"})
        wait_until(lambda: run._spool.waiting)
        threading.Timer(0.3, other.execute, ["COMMIT"]).start()
    assert points(run.client, run.run_id, "val/loss") == [(s, float(s)) for s in range(50)]
    found = run.client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.tags["dpexp.kind"] == "train"
    other.close()


def spool(folder, run_id="run", address="here"):
    return Spool(folder, run_id, address)


def told(*numbers):
    return [{"kind": "tags", "tags": {"n": n}} for n in numbers]


def numbers_of(entries):
    return [entry["tags"]["n"] for entry in entries]


def test_what_was_sent_is_not_sent_again_by_the_next_process(tmp_path):
    one = spool(tmp_path)
    for entry in told(0, 1, 2, 3):
        one.append(entry)
    sent = []

    def send(entry):
        if len(sent) == 2:
            raise Unavailable("gone again")
        sent.append(entry)

    with pytest.raises(Unavailable):
        one.drain(send)
    one.release()
    two = spool(tmp_path)
    two.append(told(4)[0])
    assert two.drain(sent.append) == 3
    assert numbers_of(sent) == [0, 1, 2, 3, 4]
    assert not two.waiting


def test_points_sent_just_before_a_kill_are_not_doubled(outputs, flaky):
    with tracking(outputs).run(name="away", run_name="one") as run:
        flaky.down = True
        run.record(1, {"val/loss": 3.0})
    flaky.down = False
    [path] = (outputs / "spool").glob("*.jsonl")
    content = path.read_bytes()
    assert tracking(outputs).send() == (1, 0)
    path.write_bytes(content)  # killed after sending, before that was remembered
    assert tracking(outputs).send() == (1, 0)
    assert points(flaky.client, run.run_id, "val/loss") == [(1, 3.0)]


def test_a_torn_line_is_put_aside_and_the_others_are_sent(tmp_path):
    one = spool(tmp_path)
    one.append(told(0)[0])
    with one.path.open("ab") as file:
        file.write(b'{"kind": "tags", "ta')  # a power cut
    one.append(told(1)[0])
    sent = []
    one.drain(sent.append)
    assert numbers_of(sent) == [0, 1]
    assert one.path.with_suffix(".refused").read_bytes() == b'{"kind": "tags", "ta\n'


def test_what_the_store_never_takes_is_put_aside_and_does_not_stop_the_rest(tmp_path, caplog):
    one = spool(tmp_path)
    for entry in told(0, 1, 2):
        one.append(entry)
    sent = []

    def send(entry):
        if entry["tags"]["n"] == 1:
            raise Refused("a name with a comma")
        sent.append(entry)

    with caplog.at_level(logging.ERROR):
        assert one.drain(send) == 2
    assert numbers_of(sent) == [0, 2]
    assert "a name with a comma" in caplog.text
    assert json.loads(one.path.with_suffix(".refused").read_text())["tags"]["n"] == 1


def test_only_what_no_living_run_holds_and_this_store_lacks_is_sent(tmp_path):
    living, ended, elsewhere = spool(tmp_path, "a"), spool(tmp_path, "b"), spool(tmp_path, "c", "there")
    for one in (living, ended, elsewhere):
        one.append(told(0)[0])
    ended.release()
    elsewhere.release()
    assert [found.run_id for found in spools(tmp_path, "here")] == ["b"]
    living.release()
    assert [found.run_id for found in spools(tmp_path, "here")] == ["a", "b"]
