import mpmath
import numpy as np
import pytest
import torch
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
    assert np.abs(noise().standard_normal(437, 100_000)).max() > 5.8
    assert np.abs(noise().standard_normal(77431, 100_000)).max() > 6.4


def test_draws_follow_the_formula_on_the_numbers_of_the_stream():
    stream = Stream.keyed_by(7)
    generator = stream.generator(11)
    exponentials, uniforms = generator.standard_exponential(200), generator.random(200)
    draws = GaussianNoise(stream).standard_normal(11, 399)
    with mpmath.workdps(40):
        pairs = [
            mpmath.sqrt(2 * mpmath.mpf(e)) * mpmath.expjpi(2 * mpmath.mpf(u))
            for e, u in zip(exponentials, uniforms, strict=True)
        ]
        expected = [float(pair.real) for pair in pairs] + [float(pair.imag) for pair in pairs]
    np.testing.assert_allclose(draws, expected[:399], rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [1, 1001, 71_010, 300_001])
def test_threads_change_no_bit(size):
    before = torch.get_num_threads()
    try:
        drawn = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            drawn.append(noise().standard_normal(5, size))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_the_radius_of_the_longest_exponential_is_not_cut():
    class Longest:
        def standard_exponential(self, out):
            out[:] = 44.43  # where NumPy's ziggurat ends

        def random(self, out):
            out[:] = 0.0

    class Stub:
        def generator(self, position):
            return Longest()

    assert GaussianNoise(Stub()).standard_normal(0, 1)[0] == pytest.approx(9.4266, abs=1e-4)


@pytest.mark.slow
def test_values_beyond_5_8_come_at_the_gaussian_rate():
    # 3·10⁹ draws: 19.9 expected; a generator cut off at 5.77 shows none, with a chance of 2·10⁻⁹ by luck.
    found = sum((np.abs(noise(3).standard_normal(t, 1_000_000)) > 5.8).sum() for t in range(3000))
    low, high = stats.poisson.interval(1 - ALPHA, 3e9 * 2 * stats.norm.sf(5.8))
    assert low <= found <= high
