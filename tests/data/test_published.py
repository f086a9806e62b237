"""Every data set as it is published: fetched as a user fetches it (`-m data`), and its configuration file."""

import dataclasses

import numpy as np
import pytest
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from dpexp.cli import conf_dir

NAMES = sorted(file.stem for file in (conf_dir() / "data").glob("*.yaml"))


def configured(name):
    return OmegaConf.create({"data": OmegaConf.load(conf_dir() / "data" / f"{name}.yaml")}).data


@pytest.mark.parametrize("name", NAMES)
def test_configuration_files_set_every_field(name):
    config = configured(name)
    fields = {field.name for field in dataclasses.fields(get_object(config._target_))}
    assert {key for key in config if not key.startswith("_")} == fields


@pytest.mark.data
def test_fashion_mnist_has_as_many_images_of_each_class():
    splits = instantiate(configured("fashion_mnist")).load()
    assert splits.train.inputs.shape == (60000, 784)
    assert np.bincount(splits.train.targets).tolist() == [6000] * 10
    assert np.bincount(splits.test.targets).tolist() == [1000] * 10
    # 0.2860 is the mean that countless programs subtract; the tolerance is its rounding.
    assert splits.train.inputs.mean(dtype=np.float64) == pytest.approx(0.2860, abs=1e-4)


@pytest.mark.data
def test_the_census_has_the_rows_and_the_share_of_high_incomes_that_are_documented():
    census = instantiate(configured("census"))
    splits = census.load()
    assert splits.train.inputs.shape == (census.num_examples, census.dimensions) == (199523, 510)
    assert splits.test.inputs.shape == (99762, 510)
    assert splits.test.targets.mean() == pytest.approx(0.0620, abs=5e-5)  # "6.20 %", census-income.names
    norms = np.linalg.norm(splits.train.inputs, axis=1)
    assert norms.max() <= 1
    assert norms.min() >= (33 / 40) ** 0.5 - 1e-6  # each of the 33 columns of words has one indicator


@pytest.mark.data
@pytest.mark.parametrize("name", ["imdb", "imdb_tokens"])
def test_the_reviews_are_balanced_in_both_splits(name):
    imdb = instantiate(configured(name), _convert_="all")
    splits = imdb.load()
    assert splits.train.inputs.shape == (20000, imdb.dimensions)
    assert np.bincount(splits.train.targets).tolist() == [10000, 10000]
    assert np.bincount(splits.test.targets).tolist() == [2500, 2500]
