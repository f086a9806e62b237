import numpy as np
import pytest
from scipy import stats

from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

ALPHA = 1e-4


def noise(seed=0):
    return GaussianNoise(Stream.keyed_by(seed))


def test_without_privacy_there_are_zeros():
    assert not NoNoise().standard_normal(0, 5).any()


def test_draws_have_double_precision():
    draws = noise().standard_normal(0, 1000)
    assert draws.dtype == np.float64
    assert (draws != draws.astype(np.float32)).mean() > 0.99


def test_values_beyond_the_cut_of_float32_generators_are_there():
    # 24-bit Box-Muller never passes 5.77. Positions found by looking, at one in 1,500 of this size.
    assert np.abs(noise().standard_normal(423, 100_000)).max() > 5.8
    assert np.abs(noise().standard_normal(67031, 100_000)).max() > 6.4


@pytest.mark.slow
def test_values_beyond_5_8_come_at_the_gaussian_rate():
    # 3·10⁹ draws: 19.9 expected; a generator cut off at 5.77 shows none, with a chance of 2·10⁻⁹ by luck.
    found = sum((np.abs(noise(3).standard_normal(t, 1_000_000)) > 5.8).sum() for t in range(3000))
    low, high = stats.poisson.interval(1 - ALPHA, 3e9 * 2 * stats.norm.sf(5.8))
    assert low <= found <= high
