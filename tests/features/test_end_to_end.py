"""Features in whole runs: on the digits, in seconds."""

import json

import pytest
from mlflow import MlflowClient

QUICK = ["data=digits", "model.hidden_units=[]", "trainer=cpu", "tracking.every=10"]
SCATTERING = ["features=scattering", "features.shape=[8,8]", "features.scales=1", "features.groups=9"]


def run_of(outputs):
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    return run.data.metrics


def test_a_linear_model_on_scattering_learns_the_digits_privately(dpexp, outputs):
    privacy = ["noise_multiplier=null", "epsilon=3", "lot_size=300", "steps=40", "clip_norm=0.1"]
    keys = [f"privacy.{key}" for key in privacy]
    assert dpexp(*QUICK, *SCATTERING, *keys, "optimizer.lr=4", "optimizer.momentum=0.9") == 0
    metrics = run_of(outputs)
    assert metrics["final/epsilon"] <= 3
    assert metrics["final/accuracy"] > 0.85


@pytest.mark.parametrize(
    ("keys", "release"),
    [
        (
            [
                *SCATTERING,
                "features.normalization=data",
                "features.noise_multiplier=8",
                "features.mean_bound=1",
                "features.square_bound=1",
            ],
            "private_normalization",
        ),
        (
            [
                "features=chain",
                "features.stages.scattering.shape=[8,8]",
                "features.stages.scattering.scales=1",
                "features.stages.scattering.groups=9",
                "features.stages.projection.components=30",
            ],
            "projection_dp_pca",
        ),
    ],
    ids=["data normalization", "chain"],
)
def test_what_features_release_is_in_every_epsilon(dpexp, outputs, capsys, keys, release):
    common = [*QUICK, *keys, "privacy.noise_multiplier=8", "privacy.lot_size=64", "privacy.steps=2"]
    assert dpexp(*common, "task=plan", "task.format=json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert release in plan["releases"]
    [share] = [share for share in plan["shares"] if share["name"] == release]
    assert share["value"] > 0.4
    assert plan["trajectory"][0]["value"] >= share["value"]
    assert dpexp(*common) == 0
    metrics = run_of(outputs)
    assert metrics["final/epsilon"] >= share["value"]
    assert ("nonprivate/explained_variance" in metrics) == ("pca" in release)


def test_a_random_projection_costs_nothing(dpexp, outputs, capsys):
    keys = ["features=random_projection", "features.components=20", "privacy.lot_size=64", "privacy.steps=2"]
    assert dpexp(*QUICK, *keys, "task=plan", "task.format=json") == 0
    assert json.loads(capsys.readouterr().out)["releases"] == {}
    assert dpexp(*QUICK, *keys) == 0
