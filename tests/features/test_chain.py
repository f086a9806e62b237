"""Stages: their order, their releases, their noises; and the public random projection."""

import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.features import DPPCA, Chain, PrivateNormalization, RandomProjection
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream


def rows(n=60, d=12, seed=0):
    return (np.random.default_rng(seed).random((n, d)) * np.linspace(3, 0.1, d)).astype(np.float32)


def projection(inputs=12, k=6, key=0):
    return RandomProjection(inputs=inputs, components=k, dimensions=k, key=key)


def pca(inputs=6, k=2, sigma=4.0):
    return DPPCA(inputs=inputs, components=k, dimensions=k, noise_multiplier=sigma)


def chain(**stages):
    return Chain(inputs=12, dimensions=list(stages.values())[-1].dimensions, stages=stages)


def test_a_chain_is_its_stages_one_after_another():
    data = rows()
    found = chain(random=projection(), pca=pca()).fit(data, NoNoise()).transform(data)
    between = projection().fit(data, NoNoise()).transform(data)
    expected = pca().fit(between, NoNoise()).transform(between)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def normalization():
    return PrivateNormalization(
        inputs=12,
        dimensions=12,
        channels=4,
        noise_multiplier=8.0,
        mean_bound=1.0,
        square_bound=1.0,
        num_examples=60,
    )


def test_all_releases_are_declared_by_stage():
    both = chain(scale=normalization(), random=projection(), pca=pca())
    assert [(r.name, r.event.noise_multiplier) for r in both.releases] == [
        ("scale_private_normalization", 8.0),
        ("pca_dp_pca", 4.0),
    ]


class Remembering:
    """Noise that remembers at which positions it was drawn."""

    spacing = 0.0

    def __init__(self):
        self.positions = []

    def standard_normal(self, position, size):
        self.positions.append(position)
        return GaussianNoise(Stream.keyed_by(0)).standard_normal(position, size)


def test_no_two_stages_draw_the_same_noise_also_in_chains_of_chains():
    inner = Chain(inputs=12, dimensions=12, stages={"one": normalization(), "two": normalization()})
    outer = Chain(inputs=12, dimensions=3, stages={"a": normalization(), "b": inner, "c": pca(12, 3)})
    noise = Remembering()
    outer.fit(rows(), noise)
    assert len(noise.positions) == len(set(noise.positions)) == len(outer.releases) == 4


def test_a_chain_keeps_what_it_fitted_by_stage():
    fitted = chain(random=projection(), pca=pca()).fit(rows(), NoNoise())
    assert {name: value.shape for name, value in fitted.state.items()} == {
        "0.directions": (12, 6),
        "1.directions": (6, 2),
    }


def test_a_chain_is_restored_from_what_it_released():
    data, stages = rows(), chain(scale=normalization(), random=projection(), pca=pca())
    fitted = stages.fit(data, GaussianNoise(Stream.secret()))
    again = stages.restored(stages.arrays(fitted))
    np.testing.assert_array_equal(again.transform(data), fitted.transform(data))


def test_an_entry_that_is_null_is_left_out():
    data = rows()
    short = Chain(inputs=12, dimensions=6, stages={"random": projection(), "pca": None})
    np.testing.assert_array_equal(
        short.fit(data, NoNoise()).transform(data), projection().fit(data, NoNoise()).transform(data)
    )


@pytest.mark.parametrize(
    ("stages", "key"),
    [
        ({}, "features.stages"),
        ({"pca": None}, "features.stages"),
        ({"pca": 3}, "features.stages.pca"),
        ({"random": projection(), "pca": pca(inputs=5)}, r"features.stages.pca.inputs"),
        ({"random": projection(k=5)}, "features.dimensions"),
    ],
)
def test_stages_that_do_not_fit_are_refused(stages, key):
    with pytest.raises(UserError, match=key):
        Chain(inputs=12, dimensions=6, stages=stages)


def test_a_random_projection_depends_on_its_key_alone():
    one, again = (projection().fit(rows(seed=seed), NoNoise()).directions for seed in (0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, projection(key=1).fit(rows(), NoNoise()).directions)
    assert projection().releases == ()


def test_a_random_projection_keeps_squared_lengths_on_average():
    directions = projection(inputs=400, k=100).fit(rows(d=400), NoNoise()).directions
    np.testing.assert_allclose(directions.T @ directions, 4 * np.eye(100), atol=1e-4)
    row = np.ones((1, 400), dtype=np.float32)
    assert np.linalg.norm(row @ directions) == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize("changes", [{"components": 13}, {"components": 0}, {"key": -1}, {"dimensions": 5}])
def test_impossible_projections_are_refused(changes):
    keys = {"inputs": 12, "components": 6, "dimensions": 6, "key": 0} | changes
    with pytest.raises(UserError, match=f"features.{next(iter(changes))}"):
        RandomProjection(**keys)
