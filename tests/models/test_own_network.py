"""Networks of the user's own, by `_target_`, over any experiment; and experiments with another network."""

import pytest
from mlflow import MlflowClient

from tests.test_conf import EXPERIMENTS, composed

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, out_features, width=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, width), nn.Tanh(), nn.Linear(width, out_features)
        )

    def forward(self, inputs):
        return self.layers(inputs.flatten(1))
"""
TINY = ["+experiment=smoke", "trainer=cpu", "privacy.steps=2", "trainer.val_check_interval=1"]


@pytest.fixture
def mynet(tmp_path, monkeypatch):
    """A module of the user's, importable and trusted."""
    (tmp_path / "mynet.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DPEXP_TRUSTED_TARGETS", "mynet")


def params(outputs):
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    assert run.data.metrics["final/steps"] == 2
    return {key: value for key, value in run.data.params.items() if key.startswith("model.")}


OVER_ANOTHER = ["model._target_=mynet.Net", "~model.hidden_units", "+model.width=5"]
ANEW = [
    "~model",
    "+model._target_=mynet.Net",
    "+model.in_features=${features.dimensions}",
    "+model.out_features=${data.num_classes}",
    "+model.width=5",
]


@pytest.mark.parametrize("keys", [OVER_ANOTHER, ANEW], ids=["over another", "anew"])
def test_a_network_of_the_users_own_takes_an_experiments_place(dpexp, outputs, mynet, keys):
    assert dpexp(*TINY, *keys) == 0
    expected = {"_target_": "mynet.Net", "in_features": "64", "out_features": "10", "width": "5"}
    assert params(outputs) == {f"model.{key}": value for key, value in expected.items()}


def test_a_key_that_the_network_does_not_take_is_named_with_what_leaves_it_out(dpexp, outputs, mynet, capsys):
    assert dpexp(*TINY, "model._target_=mynet.Net") == 1
    printed = capsys.readouterr().err
    assert "model.hidden_units = [64]: expected a key that is taken: in_features" in printed
    assert "~model.hidden_units leaves it out." in printed


def test_a_missing_argument_is_named(dpexp, outputs, mynet, capsys):
    assert dpexp(*TINY, "~model", "+model._target_=mynet.Net") == 1
    assert "mynet.Net also needs model.in_features, model.out_features" in capsys.readouterr().err


def test_another_network_takes_the_place_of_an_experiments(dpexp, outputs):
    assert dpexp(*TINY, "model=resnet", "model.depth=8", "model.width=8") == 0
    assert set(params(outputs)) == {f"model.{key}" for key in composed("model=resnet").model}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_linear_model_is_linear_in_every_experiment(experiment):
    """Not so where an experiment sets hidden units itself."""
    assert list(composed(f"+experiment={experiment}", "model=linear").model.hidden_units) == []
