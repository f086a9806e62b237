"""The paper's CIFAR experiments end to end, on generated files in the original binary format."""

import json

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from dpexp._validate import UserError
from dpexp.data import published
from dpexp.features import Pretrained
from dpexp.features.images import ImageShape
from dpexp.features.pretrained import pretrained_dimensions
from dpexp.features.public_network import ConvolutionalLayers
from dpexp.noise import NoNoise
from tests.data import files
from tests.data.files import coloured, digests

TINY = ["trainer=cpu", "privacy.lot_size=20", "data.num_examples=200", "tracking.every=1"]


@pytest.fixture
def run(outputs):
    def of_the_store():
        store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
        [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
        [found] = store.search_runs([experiment.experiment_id])
        return found

    return of_the_store


def test_the_papers_network_trains_on_pixels(dpexp, outputs, run, small_cifar10):
    model = ["data=cifar10", "model=cnn_cifar", "model.crop=12", "model.hidden_units=32", "optimizer.lr=0.1"]
    assert dpexp(*TINY, *small_cifar10, *model, "privacy.noise_multiplier=2", "privacy.steps=3") == 0
    metrics = run().data.metrics
    assert metrics["final/steps"] == 3
    assert metrics["final/epsilon"] > 0
    assert np.isfinite(metrics["test/loss"])


def test_layers_from_public_images_serve_private_ones(dpexp, outputs, run, small_cifar10, small_cifar100):
    """The paper's transfer: 20 classes are learned in public, ten others on the fixed layers."""
    keys = [*small_cifar10, *small_cifar100, "features.channels=[8,8]", "features.epochs=8"]
    length = ["privacy=none", "privacy.steps=200", "optimizer.lr=0.1", "optimizer.momentum=0.9"]
    assert dpexp("+experiment=cifar10_paper", *TINY, *keys, *length) == 0
    assert run().data.metrics["final/accuracy"] > 0.8  # 0.1 by chance


def test_the_papers_transfer_is_private_on_cifar10_alone(
    dpexp, outputs, tmp_path, capsys, monkeypatch, run, small_cifar10, small_cifar100
):
    small = ["features.channels=[4,4]", "features.epochs=1", "features.cache=false"]
    keys = ["+experiment=cifar10_paper", *TINY, *small_cifar10, *small_cifar100, *small, "privacy.steps=3"]
    assert dpexp(*keys, "task=plan", "task.format=json") == 0
    assert json.loads(capsys.readouterr().out)["releases"] == {}
    assert dpexp(*keys) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "convolutional layers trained on cifar100, declared public" in words
    assert "Features: convolutional layers trained on cifar100. These data were declared public" in words
    found = run()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{outputs / 'mlflow.db'}")
    model = mlflow.pytorch.load_model(f"runs:/{found.info.run_id}/model")
    assert model(torch.rand(2, 3072)).shape == (2, 10)  # on pixels
    # The layers are those that the public images make alone, whatever the private ones are.
    known = files.cifar100()
    public = published("cifar100", root=str(files.place(tmp_path / "public", known)), sha256=digests(known))
    alone = Pretrained(
        inputs=3072,
        shape=[3, 32, 32],
        crop=24,
        channels=[4, 4],
        dimensions=4 * 6 * 6,
        public=public,
        private="cifar10",
        epochs=1,
        lr=0.001,
        cache=False,
    )
    expected = alone.fit(np.zeros((0, 3072), np.float32), NoNoise()).as_layer().state_dict()
    for name, value in expected.items():
        assert torch.equal(model.state_dict()[f"features.{name}"], value)
    assert found.data.metrics["final/steps"] == 3


def test_the_paper_has_64_channels_of_6_by_6_in_the_middle_24_by_24_pixels():
    assert pretrained_dimensions([3, 32, 32], [64, 64], 24) == 64 * 6 * 6
    layers = ConvolutionalLayers(ImageShape(channels=3, height=32, width=32), [5, 5], 24)
    images = torch.tensor(coloured(2, 2)[0], dtype=torch.float32) / 255
    border = images.clone()
    border[:, :, :4], border[:, :, :, 28:] = 0, 1
    assert layers(images).shape == (2, 5 * 6 * 6)
    torch.testing.assert_close(layers(images), layers(border))
    border[:, :, 4, 4] = 9
    assert not torch.equal(layers(images), layers(border))


@pytest.mark.parametrize("crop", [0, 33, 2.5])
def test_an_impossible_crop_is_refused(crop):
    with pytest.raises(UserError, match=r"features\.crop"):
        pretrained_dimensions([3, 32, 32], [4], crop)
