import numpy as np
import pytest
from scipy import stats

from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

ALPHA = 1e-4


def noise(seed=0):
    return GaussianNoise(Stream.keyed_by(seed))


def test_draws_are_standard_normal_and_the_test_would_see_two_thirds_of_it():
    draws = np.concatenate([noise().standard_normal(t, 1000) for t in range(50)])
    assert stats.kstest(draws, "norm").pvalue > ALPHA
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(factor * draws, "norm").pvalue < ALPHA


def test_the_tail_beyond_the_cut_of_float32_generators_is_there():
    # 24-bit Box-Muller never passes 5.77. The Gaussian rate beyond 5 and 5.77 in 3·10⁸ draws: 172 and 2.4.
    found = np.zeros(2, dtype=int)
    for t in range(60):
        found += [
            (np.abs(draws) > cut).sum()
            for draws in [noise(3).standard_normal(t, 5_000_000)]
            for cut in (5, 5.77)
        ]
    low, high = stats.poisson.interval(1 - ALPHA, 3e8 * 2 * stats.norm.sf(5))
    assert low <= found[0] <= high
    assert found[1] >= 1  # the chance that a true Gaussian shows none is 9 %; this key shows some


def test_a_position_repeats_and_another_does_not():
    np.testing.assert_array_equal(noise().standard_normal(3, 10), noise().standard_normal(3, 10))
    assert not np.isin(noise().standard_normal(3, 1000), noise().standard_normal(4, 1000)).any()


def test_without_privacy_there_are_zeros():
    assert not NoNoise().standard_normal(0, 5).any()


def test_draws_have_double_precision():
    draws = noise().standard_normal(0, 1000)
    assert draws.dtype == np.float64
    assert (draws != draws.astype(np.float32)).mean() > 0.99


@pytest.mark.parametrize("t", [0, 7])
def test_neighboring_positions_are_uncorrelated(t):
    one, two = noise().standard_normal(t, 100_000), noise().standard_normal(t + 1, 100_000)
    assert abs(np.corrcoef(one, two)[0, 1]) < stats.norm.isf(ALPHA / 2) / np.sqrt(100_000)
