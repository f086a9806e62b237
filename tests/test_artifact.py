"""The model as an MLflow model: it predicts on raw rows, carries its guarantee, and holds nothing else."""

import copy
import functools
import pickletools
import threading
import zipfile
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import mlflow
import numpy as np
import pytest
import torch
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND
from torch import nn

from dpexp._validate import UserError
from dpexp.data import Digits
from dpexp.data.dataset import Dataset
from dpexp.data.splits import Examples, cut
from dpexp.delivery import send
from dpexp.inference import synthetic_rows
from dpexp.models import MLP, TextBag
from dpexp.notebook import Experiment, train
from dpexp.privacy import DPSGD, NoPrivacy
from dpexp.training import rehearse
from tests.test_training import TINY, artifact, only_run, store  # noqa: F401

SHORT = DPSGD(noise_multiplier=2, clip_norm=1, lot_size=64, steps=6)


def logged_model(client, run):
    [output] = run.outputs.model_outputs
    return client.get_logged_model(output.model_id)


def folder_of(client, run):
    return Path(url2pathname(urlparse(logged_model(client, run).artifact_location).path))


def loaded(client, run):
    return mlflow.pytorch.load_model(folder_of(client, run))


def experiment(**changes):
    keys = {"name": "artifact", "data": Digits(), "privacy": SHORT}
    return Experiment(**(keys | {"model": functools.partial(MLP, 64, [8], 10)} | changes))


def test_it_predicts_on_raw_rows_what_was_evaluated(dpexp, store, monkeypatch):  # noqa: F811
    features = ["features=dp_pca", "features.components=20"]
    assert dpexp(*TINY, *features, "privacy.steps=20", "ema=0.9") == 0
    run = only_run(store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracking_uri)
    model = mlflow.pytorch.load_model(f"runs:/{run.info.run_id}/model")
    test = Digits().load().test
    flat, images = torch.from_numpy(test.inputs), torch.from_numpy(test.inputs.reshape(-1, 8, 8))
    right = (model(flat).argmax(1).numpy() == test.targets).mean()
    assert run.data.metrics["final/accuracy"] == pytest.approx(right, abs=1e-9)
    torch.testing.assert_close(model(images), model(flat))
    with pytest.raises(TypeError, match="expected float32 values"):
        model((255 * flat).to(torch.uint8))  # pixels as they come, of which centering would make floats
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    kept = torch.load(artifact(store, run, "model.pt"), weights_only=True)
    directions, average = kept["features"]["directions"], MLP(20, [64], 10)
    average.load_state_dict(kept["average"])
    torch.testing.assert_close(model(flat), average(flat @ directions), rtol=1e-5, atol=1e-6)
    expected = {f"network.{name}" for name in kept["average"]} | {"features.directions"}
    assert set(model.state_dict()) == expected


def test_it_carries_its_guarantee_and_what_it_takes(dpexp, store):  # noqa: F811
    assert dpexp(*TINY, "privacy.steps=6") == 0
    run = only_run(store)
    path = folder_of(store, run)
    info = mlflow.models.get_model_info(str(path))
    told = info.metadata["dpexp"]
    assert told["epsilon"] == run.data.metrics["final/epsilon"]
    assert told["delta"] == run.data.metrics["final/delta"]
    facts = {key: told[key] for key in ("private", "deterministic", "epsilon_kind", "relation", "accountant")}
    assert facts == {
        "private": True,
        "deterministic": False,
        "epsilon_kind": "certified",
        "relation": "add_or_remove_one",
        "accountant": "rdp",
    }
    with open(artifact(store, run, "privacy_statement.txt"), encoding="utf-8") as file:
        words = file.read()
    assert told["statement"] == (path / "privacy_statement.txt").read_text(encoding="utf-8") == words
    [takes], [gives] = info.signature.inputs.inputs, info.signature.outputs.inputs
    assert (takes.shape, takes.type, gives.shape) == ((-1, 64), np.dtype("float32"), (-1, 10))
    example = mlflow.models.Model.load(path).load_input_example(str(path))
    np.testing.assert_allclose(example, synthetic_rows(3, (64,), None).numpy())
    packages = {line.partition("==")[0] for line in (path / "requirements.txt").read_text().splitlines()}
    assert packages == {"dpexp", "mlflow", "numpy", "torch"}
    assert logged_model(store, run).status == "READY"
    assert logged_model(store, run).name == "model"


def test_without_privacy_it_says_so(outputs, store):  # noqa: F811
    train(experiment(privacy=NoPrivacy(lot_size=64, steps=3)))
    told = mlflow.models.get_model_info(str(folder_of(store, only_run(store)))).metadata["dpexp"]
    assert not told["private"]
    assert "epsilon" not in told
    assert told["statement"].startswith("No privacy")


class Hoarder(nn.Module):
    """Keeps the last rows that it has seen, as a layer that shows its activations does."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, inputs):
        self.seen = inputs.detach()
        return self.output(inputs)


def test_no_row_that_a_network_kept_is_in_it(outputs, store):  # noqa: F811
    train(experiment(model=Hoarder))
    run = only_run(store)
    with zipfile.ZipFile(folder_of(store, run) / "data" / "model.pth") as archive:
        sizes = [archive.getinfo(name).file_size for name in archive.namelist() if "/data/" in name]
        [pickled] = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
    assert sorted(sizes) == [10 * 4, 640 * 4]  # bias and weight, and no other tensor
    assert not hasattr(loaded(store, run).network, "seen")
    operations = pickletools.genops(pickled)
    named = {name for operation, name, _ in operations if operation.name == "GLOBAL"} - {"__builtin__ set"}
    assert {name.partition(" ")[0].partition(".")[0] for name in named} == {
        "collections",
        "dpexp",
        "tests",
        "torch",
    }


def test_a_network_that_is_not_made_anew_is_not_published(outputs, store, caplog):  # noqa: F811
    network = Hoarder()
    train(experiment(model=lambda: network))
    assert "model makes no new network" in caplog.text
    assert only_run(store).outputs.model_outputs == []


def test_no_run_goes_on_from_what_another_trained(outputs):
    network = MLP(64, [8], 10)
    train(experiment(model=lambda: network))
    trained = copy.deepcopy(network.state_dict())
    with pytest.raises(UserError, match="the same MLP as before"):
        train(experiment(model=lambda: network))
    torch.testing.assert_close(network.state_dict(), trained, rtol=0, atol=0)
    with pytest.raises(UserError, match="a new one at each call"):  # before anything is drawn or trained
        rehearse(experiment(model=functools.partial(lambda model: model, MLP(64, [8], 10))))


@functools.cache
def words_of(rows):
    return np.random.default_rng(0).integers(1, 20, size=(rows, 6))


class Words(Dataset):
    """Rows of token ids, of two classes."""

    vocabulary = 20

    def load(self):
        ids = words_of(100)
        examples = self._examples(ids, (ids[:, 0] > 9).astype(np.int64), origin=("words", "words"))
        return cut(examples.rows(slice(80)), examples.rows(slice(80, None)), validation=0)


def test_a_model_of_text_takes_token_ids(outputs, store):  # noqa: F811
    data = Words(
        name="words",
        num_examples=80,
        num_classes=2,
        dimensions=6,
        validation_split="private",
        test_split="public",
    )
    found = train(
        experiment(
            data=data,
            model=functools.partial(TextBag, vocabulary=20, width=4, out_features=2),
            privacy=DPSGD(noise_multiplier=2, clip_norm=1, lot_size=16, steps=6),
        )
    )
    run = only_run(store)
    [takes] = mlflow.models.get_model_info(str(folder_of(store, run))).signature.inputs.inputs
    assert (takes.shape, takes.type) == ((-1, 6), np.dtype("int64"))
    test = data.load().test
    assert isinstance(test, Examples)
    predicted = loaded(store, run)(torch.from_numpy(test.inputs)).argmax(1).numpy()
    assert (predicted == test.targets).mean() == pytest.approx(found.accuracy)


class Locked(nn.Module):
    """Cannot be pickled."""

    def __init__(self):
        super().__init__()
        self.output, self.lock = nn.Linear(64, 10), threading.Lock()

    def forward(self, inputs):
        return self.output(inputs)

    def __deepcopy__(self, memo):
        copied = Locked()
        copied.load_state_dict(self.state_dict())
        return copied


def test_a_run_is_complete_where_its_model_cannot_be_pickled(outputs, store, caplog):  # noqa: F811
    train(experiment(model=Locked))
    run = only_run(store)
    assert run.info.status == "FINISHED"
    assert "cannot pickle" in caplog.text
    assert "model.pt" in caplog.text
    assert run.outputs is None or not run.outputs.model_outputs
    assert torch.load(artifact(store, run, "model.pt"), weights_only=True)["model"]


class Fickle(nn.Module):
    """Is another network each time it is made."""

    made = 0

    def __init__(self):
        super().__init__()
        Fickle.made += 1
        self.output, self.factor = nn.Linear(64, 10), float(Fickle.made)

    def forward(self, inputs):
        return self.output(inputs) * self.factor


def test_a_model_that_predicts_otherwise_than_what_was_evaluated_is_not_logged(outputs, store, caplog):  # noqa: F811
    train(experiment(model=Fickle))
    run = only_run(store)
    assert run.info.status == "FINISHED"
    assert "not logged as an MLflow model" in caplog.text
    assert run.outputs is None or not run.outputs.model_outputs


def test_a_model_that_is_told_twice_is_one(outputs, store, tmp_path):  # noqa: F811
    experiment_id = store.create_experiment("twice", artifact_location=tmp_path.as_uri())
    run_id = store.create_run(experiment_id).info.run_id
    (tmp_path / "model").mkdir()
    for content in ("first", "second"):
        (tmp_path / "model" / "MLmodel").write_text(content)
        entry = {"kind": "model", "name": "model", "path": str(tmp_path / "model"), "step": 3}
        send(store, run_id, {**entry, "experiment_id": experiment_id})
    assert len(store.search_logged_models([experiment_id])) == 1
    assert (folder_of(store, store.get_run(run_id)) / "MLmodel").read_text() == "second"


class OfAnOlderServer:
    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        if "model" in name:
            raise MlflowException("no such page", error_code=ENDPOINT_NOT_FOUND)
        return getattr(self.client, name)


def test_a_server_without_models_keeps_it_with_the_run(outputs, store, tmp_path):  # noqa: F811
    experiment_id = store.create_experiment("older", artifact_location=tmp_path.as_uri())
    run_id = store.create_run(experiment_id).info.run_id
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "MLmodel").write_text("content")
    entry = {"kind": "model", "name": "model", "path": str(tmp_path / "saved"), "step": 3}
    send(OfAnOlderServer(store), run_id, {**entry, "experiment_id": experiment_id})
    assert [item.path for item in store.list_artifacts(run_id, "model")] == ["model/MLmodel"]


def test_synthetic_rows_are_the_same_ones_and_leave_torch_as_it_was():
    state = torch.get_rng_state()
    one, two = (synthetic_rows(4, (2, 3), None) for _ in range(2))
    assert torch.equal(one, two)
    assert one.shape == (4, 2, 3)
    assert synthetic_rows(50, (6,), 5).max() <= 4
    assert torch.equal(torch.get_rng_state(), state)
