"""Layers trained on public data: what they depend on, and what is refused."""

import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.data import Digits
from dpexp.features import Pretrained
from dpexp.features.pretrained import pretrained_dimensions
from dpexp.noise import NoNoise


def digits(name="digits", **changes):
    keys = {"name": name, "num_examples": 1438, "num_classes": 10, "dimensions": 64}
    return Digits(**(keys | {"validation_split": "public", "test_split": "public"} | changes))


def pretrained(**changes):
    keys = {"inputs": 64, "shape": [8, 8], "channels": [4], "dimensions": 64, "public": digits()}
    keys |= {"private": "secret", "epochs": 1, "lr": 0.01, "key": 0, "cache": False}
    return Pretrained(**(keys | changes))


def rows(n=40, seed=0):
    return np.random.default_rng(seed).random((n, 64)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPEXP_FEATURES_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_private_rows_do_not_reach_the_layers_nor_one_another():
    data, other = rows(), rows(seed=1)
    one, two = (pretrained().fit(private, NoNoise()) for private in (data, other))
    np.testing.assert_array_equal(one.transform(data), two.transform(data))
    changed = data.copy()
    changed[5] = other[5]
    same = np.arange(len(data)) != 5
    np.testing.assert_array_equal(one.transform(data)[same], one.transform(changed)[same])
    assert pretrained().releases == ()


def test_training_learns_the_public_task():
    split = digits().load()
    fitted = pretrained(channels=[8], dimensions=128, epochs=4).fit(rows(), NoNoise())
    train, test = fitted.transform(split.train.inputs), fitted.transform(split.test.inputs)
    weights = np.linalg.lstsq(train, np.eye(10)[split.train.targets], rcond=None)[0]
    assert ((test @ weights).argmax(axis=1) == split.test.targets).mean() > 0.9
    assert train.dtype == np.float32


def test_layers_and_features_are_kept_and_found_again(folder, monkeypatch):
    first = pretrained(cache=True).fit(rows(), NoNoise()).transform(rows())
    assert len(list(folder.glob("*.npy"))) == 2
    monkeypatch.setattr("dpexp.features.public_network._train", None)  # would fail if it were called
    again = pretrained(cache=True).fit(rows(), NoNoise()).transform(rows())
    np.testing.assert_array_equal(first, again)


def test_another_key_gives_other_layers():
    one, two = (pretrained(key=key).fit(rows(), NoNoise()).transform(rows()) for key in (0, 1))
    assert not np.allclose(one, two)


def test_28_by_28_pixels_give_64_channels_of_7_by_7():
    assert pretrained_dimensions([28, 28], [32, 64]) == 64 * 7 * 7


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"public": digits(name="secret")}, "features.public.name"),
        ({"public": None}, "features.public"),
        ({"shape": [7, 8]}, "features.shape"),
        ({"channels": []}, "features.channels"),
        ({"channels": [2, 2, 2, 2]}, "features.channels"),
        ({"dimensions": 9}, "features.dimensions"),
        ({"epochs": 0}, "features.epochs"),
        ({"lr": 0}, "features.lr"),
    ],
)
def test_impossible_settings_are_refused(changes, key):
    with pytest.raises(UserError, match=key):
        pretrained(**changes)
