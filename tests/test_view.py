"""The view of an MLflow experiment: written once, never in the way, and of what runs really record."""

import base64
import json
import logging
import zlib

import pytest
from mlflow.exceptions import MlflowException

from dpexp.tracking import MLflowTracking, connect, ui_address, view_link
from dpexp.tracking.view import VIEW_TAG, save_view

PUBLIC, PRIVATE = "final/accuracy", "nonprivate/final/accuracy"
RUN = ["+experiment=smoke", "trainer=cpu", "privacy.steps=2", "trainer.val_check_interval=1"]


@pytest.fixture
def experiment(outputs):
    """A client, and the id of an empty MLflow experiment."""
    client = connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)
    return client, client.create_experiment("seen")


def tag(client, experiment_id):
    return client.get_experiment(experiment_id).tags[VIEW_TAG]


def accuracies(view):
    charts = json.loads(view)["compareRunCharts"]
    return {chart["yaxis"]["key"] for chart in charts if chart["type"] == "SCATTER"}


def test_it_is_written_once(experiment, monkeypatch):
    client, experiment_id = experiment
    save_view(client, experiment_id, accuracy=PUBLIC)
    monkeypatch.setattr(client, "set_experiment_tag", lambda *_: pytest.fail("written again"))
    save_view(client, experiment_id, accuracy=PUBLIC)
    save_view(client, experiment_id, accuracy=None)


def test_what_either_version_of_the_ui_reads_is_the_same_and_fits_into_a_tag(experiment):
    client, experiment_id = experiment
    save_view(client, experiment_id, accuracy=PUBLIC)
    save_view(client, experiment_id, accuracy=PRIVATE)
    view = tag(client, experiment_id)
    assert len(view) <= 5000  # all that MLflow 3.13 takes
    content = json.loads(view)
    packed = content["state"].removeprefix("deflate;")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert {key: content[key] for key in state} == state
    assert content["name"] == "Privacy-utility"


def test_runs_with_a_private_split_add_their_charts_for_good(experiment):
    client, experiment_id = experiment
    save_view(client, experiment_id, accuracy=None)
    assert accuracies(tag(client, experiment_id)) == set()
    save_view(client, experiment_id, accuracy=PRIVATE)
    assert accuracies(tag(client, experiment_id)) == {PRIVATE}
    save_view(client, experiment_id, accuracy=PUBLIC)
    assert accuracies(tag(client, experiment_id)) == {PRIVATE, PUBLIC}
    save_view(client, experiment_id, accuracy=PRIVATE)
    assert accuracies(tag(client, experiment_id)) == {PRIVATE, PUBLIC}


@pytest.mark.parametrize(
    "earlier",
    ['{"dpexp":{"version":0,"accuracies":["nonprivate/final/accuracy"]}}', "deflate;torn", "[]", "{}"],
)
def test_an_earlier_or_unreadable_one_is_renewed(experiment, earlier):
    client, experiment_id = experiment
    client.set_experiment_tag(experiment_id, VIEW_TAG, earlier)
    save_view(client, experiment_id, accuracy=PUBLIC)
    assert PUBLIC in accuracies(tag(client, experiment_id))


def test_one_of_a_later_version_and_those_of_users_are_left_alone(experiment):
    client, experiment_id = experiment
    later = json.dumps({"dpexp": {"version": 99, "accuracies": []}})
    client.set_experiment_tag(experiment_id, VIEW_TAG, later)
    client.set_experiment_tag(experiment_id, "mlflow.sharedViewState.mine", "mine")
    save_view(client, experiment_id, accuracy=PUBLIC)
    assert tag(client, experiment_id) == later
    assert client.get_experiment(experiment_id).tags["mlflow.sharedViewState.mine"] == "mine"


@pytest.mark.parametrize(
    "error", [MlflowException("not a tag of yours"), ConnectionError("not a tag of yours")]
)
def test_a_store_that_refuses_it_costs_a_warning_and_no_run(outputs, monkeypatch, caplog, error):
    def refuse(*_):
        raise error

    tracking = MLflowTracking(uri=None, experiment=None, outputs=str(outputs), every=1)
    with caplog.at_level(logging.WARNING), tracking.run(name="seen", run_name="one") as run:
        monkeypatch.setattr(run.client, "set_experiment_tag", refuse)
        run.save_view(accuracy=PUBLIC)
        run.record(1, {"val/accuracy": 0.5})
    assert "Privacy-utility of the MLflow UI could not be saved: not a tag of yours" in caplog.text
    found = run.client.get_run(run.run_id)
    assert (found.info.status, found.data.metrics) == ("FINISHED", {"val/accuracy": 0.5})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {PUBLIC}),
        (["data.test_split=private", "data.validation=100"], {PRIVATE}),
        (["data.test_split=private", "strict=true"], set()),
    ],
    ids=["public", "private", "strict"],
)
def test_a_run_has_every_series_and_param_that_its_view_draws(dpexp, outputs, capsys, changes, expected):
    assert dpexp(*RUN, *changes) == 0
    client = connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)
    found = client.get_experiment_by_name("smoke")
    view = tag(client, found.experiment_id)
    assert accuracies(view) == expected
    [run] = client.search_runs([found.experiment_id], json.loads(view)["searchFilter"])
    for chart in json.loads(view)["compareRunCharts"]:
        if chart["type"] == "SCATTER":
            assert {chart["xaxis"]["key"], chart["yaxis"]["key"]} <= set(run.data.metrics)
        if chart["type"] == "PARALLEL":
            assert set(chart["selectedParams"]) <= set(run.data.params)
            assert set(chart["selectedMetrics"]) <= set(run.data.metrics)
            float(run.data.params["plan.noise_multiplier"])  # an axis of numbers
    shown = capsys.readouterr().out
    assert "python -m dpexp task=ui\n" in shown
    assert f"{view_link('sqlite:///any', found.experiment_id)}\n" in shown


def test_accuracy_along_training_has_epsilon_at_the_same_steps(dpexp, outputs):
    assert dpexp(*RUN) == 0
    client = connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)
    [run] = client.search_runs([client.get_experiment_by_name("smoke").experiment_id])
    steps = [
        {point.step for point in client.get_metric_history(run.info.run_id, key)}
        for key in ("val/accuracy", "privacy/epsilon")
    ]
    assert steps[0] == {1, 2}
    assert steps[0] <= steps[1]


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("sqlite:////a/b.db", "http://127.0.0.1:5000"),
        ("postgresql://me:***@host/db", "http://127.0.0.1:5000"),
        ("http://host:5001/", "http://host:5001"),
        ("https://me:***@host/mlflow/?token=secret", "https://host/mlflow"),
    ],
)
def test_links_lead_to_the_server_of_the_store(uri, address):
    assert ui_address(uri) == address
    link = view_link(uri, "7")
    assert link.startswith(f"{address}/#/experiments/7/runs?")
    assert f"viewStateShareKey={VIEW_TAG.rpartition('.')[2]}" in link
