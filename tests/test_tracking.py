"""The store: made once however many come at once, and refused with a reason."""

import subprocess
import sys
import threading

import pytest

from dpexp._validate import UserError
from dpexp.tracking import MLflowTracking, Run, connect, flatten, shown_uri


def tracking(folder, **changes):
    return MLflowTracking(**({"uri": None, "experiment": None, "outputs": str(folder), "every": 1} | changes))


def test_a_fresh_store_survives_processes_at_once(tmp_path):
    code = (
        "from dpexp.tracking import MLflowTracking\n"
        f"tracking = MLflowTracking(uri=None, experiment=None, outputs={str(tmp_path)!r}, every=1)\n"
        "with tracking.run(name='together', run_name='one') as run:\n"
        "    run.record(1, {'privacy/epsilon': 1.0})\n"
    )
    together = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(2)]
    for process in together:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()[-2000:]
    client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    [experiment] = [e for e in client.search_experiments() if e.name == "together"]
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2
    assert all(run.data.metrics == {"privacy/epsilon": 1.0} for run in runs)


def test_an_experiment_deleted_in_the_ui_is_named_with_the_way_back(outputs):
    with tracking(outputs).run(name="gone", run_name="one") as run:
        pass
    run.client.delete_experiment(run.experiment_id)
    with (
        pytest.raises(UserError, match="mlflow experiments restore"),
        tracking(outputs).run(name="gone", run_name="two"),
    ):
        pytest.fail("a run was started")


def test_a_killed_run_is_closed_by_the_next_and_a_living_one_is_left_alone(outputs):
    store = tracking(outputs)
    with store.run(name="runs", run_name="living") as living:
        killed = living.client.create_run(living.experiment_id).info.run_id
        (outputs / "running" / f"{killed}.running").touch()  # what a killed process leaves
        (outputs / "running" / "of_another_store.running").touch()
        with store.run(name="runs", run_name="next"):
            assert living.client.get_run(living.run_id).info.status == "RUNNING"
            assert living.client.get_run(killed).info.status == "KILLED"
        with (
            pytest.raises(UserError, match="no other process works on"),
            store.run(name="runs", run_name="living", run_id=living.run_id),
        ):
            pytest.fail("two wrote to one run")
        assert living.client.get_run(living.run_id).info.status == "RUNNING"
    assert living.client.get_run(living.run_id).info.status == "FINISHED"
    left = {path.name for path in (outputs / "running").glob("*.running")}
    assert left == {"of_another_store.running"}


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")]
)
def test_a_run_left_by_an_exception_has_a_true_status_and_all_its_metrics(outputs, error, status):
    def fail(run):
        run.record(3, {"val/accuracy": 0.5})
        raise error

    with pytest.raises(error), tracking(outputs).run(name="left", run_name="one") as run:
        fail(run)
    found = run.client.get_run(run.run_id)
    assert found.info.status == status
    assert found.data.metrics == {"val/accuracy": 0.5}


def test_twenty_thousand_points_of_epsilon_are_all_there_in_order_and_once(outputs):
    with tracking(outputs).run(name="many", run_name="one") as run:
        for step in range(20_000):
            run.record(step, {"privacy/epsilon": step / 10})
            run.record(step, {"privacy/epsilon": -1.0})  # told twice, it is not there twice
    history = run.client.get_metric_history(run.run_id, "privacy/epsilon")
    assert [(point.step, point.value) for point in history] == [(s, s / 10) for s in range(20_000)]


def test_points_are_stored_within_seconds_and_not_only_at_the_end(outputs):
    stored = threading.Event()
    with tracking(outputs).run(name="soon", run_name="one") as run:
        log_batch = run.client.log_batch
        run.client.log_batch = lambda *a, **k: (log_batch(*a, **k), stored.set())
        run.record(1, {"val/loss": 1.0})
        assert stored.wait(20)


def test_metrics_that_a_lost_store_did_not_take_are_kept_and_sent_later(outputs, monkeypatch):
    from mlflow.exceptions import MlflowException

    with tracking(outputs).run(name="lost", run_name="one") as run:
        log_batch = run.client.log_batch
        monkeypatch.setattr(run.client, "log_batch", lambda *a, **k: refuse())

        def refuse():
            raise MlflowException("gone for a while")

        run.record(1, {"val/loss": 1.0})
        with pytest.raises(ConnectionError, match="gone for a while"):
            run.flush()
        monkeypatch.setattr(run.client, "log_batch", log_batch)
    assert run.client.get_run(run.run_id).data.metrics == {"val/loss": 1.0}


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("http://host:5000", "http://host:5000"),
        ("https://me:secret@host:1/x?token=secret", "https://me:***@host:1/x"),
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
    ],
)
def test_passwords_are_not_shown(uri, shown):
    assert shown_uri(uri) == shown


def test_the_dataset_key_is_made_once_and_readable_by_its_owner_only(tmp_path):
    one, two = tracking(tmp_path).dataset_key(), tracking(tmp_path).dataset_key()
    assert one == two
    assert len(one) == 32
    assert (tmp_path / ".dataset_key").stat().st_mode & 0o777 == 0o600
    assert tracking(tmp_path / "other").dataset_key() != one


def test_configurations_are_flattened_to_dotted_keys():
    nested = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None, "f": {}}
    assert flatten(nested) == {"a.b.c": 1, "a.d": [1, 2], "e": None, "f": {}}


def test_long_values_are_cut_and_many_params_are_taken(outputs):
    with tracking(outputs).run(name="params", run_name="one") as run:
        assert isinstance(run, Run)
        run.log_params({f"key{i}": "x" * (7000 if i == 0 else 1) for i in range(250)})
    params = run.client.get_run(run.run_id).data.params
    assert len(params) == 250
    assert len(params["key0"]) == 6000
