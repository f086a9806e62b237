"""Group normalization by example; private normalization: sensitivity by search, noise by distribution."""

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpexp._validate import UserError
from dpexp.accounting import Relation
from dpexp.features import GroupNormalization, PrivateNormalization
from dpexp.features.normalization import moments_of_channels
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

ALPHA = 1e-4
CHANNELS, PIXELS = 4, 3
WIDTH = CHANNELS * PIXELS


def rows(n=50, seed=0):
    return np.random.default_rng(seed).random((n, WIDTH)).astype(np.float32)


def private(**changes):
    keys = {"inputs": WIDTH, "dimensions": WIDTH, "channels": CHANNELS, "noise_multiplier": 4.0}
    keys |= {"mean_bound": 2.0, "square_bound": 3.0, "num_examples": 50}
    return PrivateNormalization(**(keys | changes))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_normalization_is_that_of_torch(groups):
    data = rows()
    stage = GroupNormalization(inputs=WIDTH, dimensions=WIDTH, channels=CHANNELS, groups=groups)
    found = stage.fit(data, NoNoise()).transform(data)
    expected = torch.nn.functional.group_norm(torch.tensor(data).reshape(50, CHANNELS, PIXELS), groups)
    np.testing.assert_allclose(found, expected.reshape(50, -1).numpy(), atol=1e-5)
    assert stage.releases == ()


def test_group_normalization_looks_at_one_row_at_a_time():
    data = rows()
    changed = data.copy()
    changed[3] = 1e6
    stage = GroupNormalization(inputs=WIDTH, dimensions=WIDTH, channels=CHANNELS, groups=2)
    others = np.arange(50) != 3
    np.testing.assert_array_equal(stage.transform(data)[others], stage.transform(changed)[others])


anything = hnp.arrays(
    np.float32, (1, WIDTH), elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)
)


def moved(before, after):
    difference = moments_of_channels(after, CHANNELS, 2.0, 3.0) - moments_of_channels(
        before, CHANNELS, 2.0, 3.0
    )
    return np.linalg.norm(difference)


@hypothesis.given(row=anything)
def test_adding_any_row_moves_the_sum_by_at_most_one(row):
    data = rows()
    assert moved(data, np.vstack([data, row])) <= 1 + 1e-9


@hypothesis.given(one=anything, other=anything)
def test_replacing_any_row_moves_it_by_at_most_the_declared_factor(one, other):
    [release] = private().releases
    factor = release.event.replace_one_factor
    assert moved(np.vstack([rows(), one]), np.vstack([rows(), other])) <= factor + 1e-9


def test_the_bounds_are_reached():
    [release] = private().releases
    one = np.full((1, WIDTH), 1e3, dtype=np.float32)
    assert moved(np.empty((0, WIDTH), np.float32), one) == pytest.approx(1)
    left, right = np.zeros((2, 1, CHANNELS, PIXELS), dtype=np.float32)
    left[0, 0], right[0, 0] = 1e3, -1e3  # means opposite, squares alike
    assert moved(left.reshape(1, -1), right.reshape(1, -1)) == pytest.approx(np.sqrt(2))
    right[0, 1] = 1e5  # means and squares almost elsewhere
    assert moved(left.reshape(1, -1), right.reshape(1, -1)) <= release.event.replace_one_factor
    assert release.event.effective_multiplier(Relation.REPLACE_ONE) == pytest.approx(4 / np.sqrt(3))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_counts_as_nothing(bad):
    data = rows()
    row = np.where(np.arange(WIDTH) == 5, bad, 1).astype(np.float32)[None]
    assert moved(data, np.vstack([data, row])) == 0


def test_without_noise_channels_get_mean_0_and_variance_1():
    data = rows()
    fitted = private(noise_multiplier=1e-3).fit(data, NoNoise())
    found = fitted.transform(data).reshape(50, CHANNELS, PIXELS)
    np.testing.assert_allclose(found.mean(axis=(0, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(axis=(0, 2)), 1, atol=1e-3)


def test_variances_below_their_noise_are_raised_to_it():
    data = np.zeros((50, WIDTH), dtype=np.float32)
    for seed in range(5):
        fitted = private().fit(data, GaussianNoise(Stream.keyed_by(seed)))
        assert (fitted.std >= np.sqrt(4.0 * np.sqrt(2) * 3.0 / 50) * (1 - 1e-6)).all()


def test_what_was_released_is_restored_and_that_of_other_channels_refused():
    data = rows()
    fitted = private().fit(data, GaussianNoise(Stream.secret()))
    again = private().restored(private().arrays(fitted))
    np.testing.assert_array_equal(again.transform(data), fitted.transform(data))
    with pytest.raises(UserError, match=r"features\.normalization"):
        private(channels=2).restored(private().arrays(fitted))


def test_means_are_noised_by_sigma_times_the_bound_over_n():
    zero = np.zeros((1, 2000), dtype=np.float32)
    stage = private(inputs=2000, dimensions=2000, channels=2000)
    found = stage.fit(zero, GaussianNoise(Stream.keyed_by(1)))
    std = 4.0 * np.sqrt(2) * 2.0 / 50
    assert stats.kstest(found.mean / std, "norm").pvalue > ALPHA
    assert stats.kstest(found.mean / std * np.sqrt(2), "norm").pvalue < ALPHA


def test_the_declared_number_divides_not_that_of_the_rows():
    data = rows()
    half = private(num_examples=100).fit(data, NoNoise())
    np.testing.assert_allclose(half.mean, private().fit(data, NoNoise()).mean / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"noise_multiplier": 0}, "features.noise_multiplier"),
        ({"mean_bound": None}, "features.mean_bound"),
        ({"square_bound": -1}, "features.square_bound"),
        ({"num_examples": None}, "features.num_examples"),
        ({"channels": 5}, "features.channels"),
        ({"dimensions": 3}, "features.dimensions"),
    ],
)
def test_impossible_settings_are_refused(changes, key):
    with pytest.raises(UserError, match=key):
        private(**changes)
