"""Both modes are N(0, 1): keys are fixed, each test errs with probability at most 1e-4 over keys."""

import numpy as np
import pytest
from scipy import stats

from dpexp.noise import GaussianNoise, SecureGaussianNoise
from dpexp.streams import Stream

ALPHA = 1e-4
SIZE = 50_000


@pytest.fixture(scope="module", params=[GaussianNoise, SecureGaussianNoise], ids=["default", "secure"])
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def rows(mode):
    """Draws of 40 positions, shape (40, SIZE)."""
    noise = mode(Stream.keyed_by(0))
    return np.stack([noise.standard_normal(t, SIZE) for t in range(40)])


def test_draws_are_standard_normal_and_the_test_would_see_two_thirds_of_it(rows):
    draws = rows[:10].ravel()
    assert stats.kstest(draws, "norm").pvalue > ALPHA
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(factor * draws, "norm").pvalue < ALPHA


@pytest.mark.parametrize(
    ("power", "expected", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)], ids=str
)
def test_moments_are_those_of_a_gaussian(rows, power, expected, variance):
    # E z² = 1, E z⁴ = 3, E z⁶ = 15, E z⁸ = 105: the variance of z^p is E z^2p - (E z^p)².
    found = np.prod([rows] * power, axis=0).mean()
    assert abs(found - expected) < stats.norm.isf(ALPHA / 2) * np.sqrt(variance / rows.size)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 4.5, 5])
def test_tails_hold_as_many_values_as_a_gaussian_on_either_side(rows, cut):
    low, high = stats.poisson.interval(1 - ALPHA / 2, rows.size * stats.norm.sf(cut))
    assert low <= (rows > cut).sum() <= high
    assert low <= (rows < -cut).sum() <= high


@pytest.mark.parametrize("lag", [1, 2, 7])
def test_positions_are_uncorrelated(rows, lag):
    products = rows[:-lag] * rows[lag:]
    assert abs(products.mean()) < stats.norm.isf(ALPHA / 2) / np.sqrt(products.size)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8192, SIZE // 2])  # the last: both halves of a pair
def test_values_and_squares_of_one_position_are_uncorrelated(rows, lag):
    # Squares see what a shared radius leaves behind; the variance of z² is 2.
    bound = stats.norm.isf(ALPHA / 4) / np.sqrt(rows[:, lag:].size)
    assert abs((rows[:, lag:] * rows[:, :-lag]).mean()) < bound
    squares = (rows**2 - 1) / np.sqrt(2)
    assert abs((squares[:, lag:] * squares[:, :-lag]).mean()) < bound


def test_children_and_keys_are_uncorrelated(mode):
    streams = [Stream.keyed_by(1), Stream.keyed_by(2), Stream.keyed_by(1).child("noise")]
    draws = np.stack([mode(stream).standard_normal(0, SIZE) for stream in streams])
    correlations = np.corrcoef(draws)[np.triu_indices(3, k=1)]
    assert np.abs(correlations).max() < stats.norm.isf(ALPHA / 6) / np.sqrt(SIZE)


def test_no_value_repeats_beyond_chance(mode, rows):
    # n²/2 pairs, each equal with probability spacing · ∫φ² = spacing/√(4π): 525 on the lattice, 0 in float64.
    draws = rows.ravel()
    repeated = draws.size - np.unique(draws).size
    spacing = 2.0**-30 if mode is SecureGaussianNoise else 2.0**-52
    assert repeated <= stats.poisson.isf(ALPHA, draws.size**2 / 2 * spacing / np.sqrt(4 * np.pi))


def test_a_position_repeats_and_another_does_not(mode):
    noise, again = mode(Stream.keyed_by(0)), mode(Stream.keyed_by(0))
    np.testing.assert_array_equal(noise.standard_normal(3, 10), again.standard_normal(3, 10))
    assert not np.isin(noise.standard_normal(3, 1000), noise.standard_normal(4, 1000)).any()


@pytest.mark.parametrize("size", [0, 1, 8192, 8193])
def test_any_size_can_be_drawn(mode, size):
    noise = mode(Stream.keyed_by(5))
    assert noise.standard_normal(2, size).shape == (size,)


def test_neither_key_nor_seed_is_shown(mode):
    stream = Stream.secret()
    assert repr(mode(stream)) == f"{mode.__name__}(stream=Stream())"
    with pytest.raises((ValueError, OverflowError)) as caught:
        mode(stream).standard_normal(-1, 10)
    shown = str(caught.value)
    assert not {stream.key.hex(), str(stream.key), str(int.from_bytes(stream.key, "big"))} & {shown}
    assert "non-negative" in shown or "negative int" in shown
