import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy import stats

from dpexp.noise import LATTICE, SecureGaussianNoise, to_lattice
from dpexp.noise.secure import _from_words
from dpexp.streams import Stream

ALPHA = 1e-4
TOP = 2**64 - 1
HIGHEST = np.sqrt(2) * np.sqrt(130 * np.log(2))  # 13.4: both radii from u = 2⁻⁶⁵


def noise(seed=0):
    return SecureGaussianNoise(Stream.keyed_by(seed))


def exactly(words):
    """The formula of the construction in 60 digits."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for radius, angle in zip(words[:2], words[2:], strict=True):
            u = (mpmath.mpf(int(radius)) + 0.5) / 2**64
            v = (mpmath.mpf(int(angle) >> 1) + 0.5) / 2**64
            sign = -1 if int(angle) & 1 else 1
            total += sign * mpmath.sqrt(-2 * mpmath.log(u)) * mpmath.cos(mpmath.pi * v)
        return float(total / mpmath.sqrt(2))


def test_draws_follow_the_formula_on_the_documented_cipher_words():
    stream = Stream.keyed_by(7)
    nonce = bytes(8) + (11).to_bytes(8, "little")
    cipher = Cipher(ChaCha20(stream.child("chacha20").key, nonce), mode=None).encryptor()
    words = np.frombuffer(cipher.update(bytes(8 * 4 * 200)), "<u8").reshape(4, 200)
    draws = SecureGaussianNoise(stream).standard_normal(11, 200)
    expected = np.array([exactly(column) for column in words.T])
    assert np.abs(draws - expected).max() <= LATTICE * (0.5 + 2**-20)


def test_the_formula_is_evaluated_to_double_precision():
    words = np.random.default_rng(0).integers(0, TOP, (4, 500), dtype=np.uint64, endpoint=True)
    words[0, :64] = 1 << np.arange(64, dtype=np.uint64)  # radii of every size
    expected = np.array([exactly(column) for column in words.T])
    # A few roundings of values below 10; but near u = 1, where √(-2 log u) is steep, up to 2⁻²⁶.
    assert np.abs(_from_words(words) - expected).max() < 2**-26
    ordinary = words[:2].max(axis=0) < 0.99 * TOP
    assert np.abs(_from_words(words) - expected)[ordinary].max() < 2**-48


@pytest.mark.parametrize("angle", [0, 1, 2, 3, TOP, TOP - 1])
@pytest.mark.parametrize("radius", [0, 1, TOP, TOP - 1])
def test_extreme_words_give_finite_draws(radius, angle):
    draws = _from_words(np.array([[radius], [radius], [angle], [angle]], dtype=np.uint64))
    assert np.isfinite(draws).all()
    assert np.abs(draws).max() <= HIGHEST * (1 + 1e-15)


def test_the_highest_value_is_13_4():
    highest = _from_words(np.array([[0], [0], [0], [0]], dtype=np.uint64))
    np.testing.assert_allclose(highest, HIGHEST, rtol=1e-15)
    assert 13.4 < HIGHEST < 13.5


def test_the_last_bit_of_the_angles_is_the_sign():
    words = np.random.default_rng(1).integers(0, TOP, (4, 1000), dtype=np.uint64)
    flipped = words.copy()
    flipped[2:] ^= np.uint64(1)
    np.testing.assert_array_equal(_from_words(words), -_from_words(flipped))


def test_values_beyond_the_cut_of_float32_generators_are_there():
    assert np.abs(noise().standard_normal(2425, 100_000)).max() > 6.2  # found by looking


@pytest.mark.slow
def test_values_beyond_5_8_come_at_the_gaussian_rate():
    # 1.5·10⁹ draws: 9.9 expected; a generator cut off at 5.77 shows none, with a chance of 5·10⁻⁵ by luck.
    found = sum((np.abs(noise(3).standard_normal(t, 1_000_000)) > 5.8).sum() for t in range(1500))
    low, high = stats.poisson.interval(1 - ALPHA, 1.5e9 * 2 * stats.norm.sf(5.8))
    assert low <= found <= high


def test_draws_are_on_the_lattice_without_a_signed_zero():
    draws = noise().standard_normal(0, 100_000)
    units = draws / LATTICE
    np.testing.assert_array_equal(units, np.rint(units))
    assert not np.signbit(to_lattice(np.array([-0.0, -1e-12]))).any()


def test_the_low_bits_of_draws_are_uniform_whatever_their_size():
    # Mironov (2012): low bits that depend on the magnitude are what attacks live on.
    draws = noise().standard_normal(1, 400_000)
    units = np.rint(draws / LATTICE).astype(np.int64)
    for size in (np.abs(draws) < 0.1, np.abs(draws) > 3):
        counts = np.bincount(units[size] & 15, minlength=16)
        assert stats.chisquare(counts).pvalue > ALPHA / 2


@pytest.mark.parametrize("shift", [1.0, -0.75, 1000.25, 2.0**20])
def test_adding_on_the_lattice_commutes_with_rounding(shift):
    # So total + rounded noise is a rounding of total + noise: post-processing, with no trace of the total.
    shift = to_lattice(np.array([shift / 3]))
    values = np.random.default_rng(2).standard_normal(100_000) * 2
    values = np.rint(values * 2**40) / 2**40  # so that the sum before rounding is exact too, up to 2¹²
    found = to_lattice(values.copy()) + shift
    np.testing.assert_array_equal(found / LATTICE, np.rint(values / LATTICE) + shift / LATTICE)
    np.testing.assert_array_equal(found - shift, to_lattice(values.copy()))


def test_sums_in_single_precision_would_show_the_total():
    # Why adding needs the lattice: near zero, 1 + noise is a multiple of 2⁻²⁴ and 0 + noise is not.
    draws = np.random.default_rng(3).standard_normal(1_000_000).astype(np.float32)
    for total, whole in [(1, 1.0), (0, 0.1)]:
        sums = np.float32(total) + draws
        units = sums[np.abs(sums) < 2**-8] * 2**24
        assert (units == np.rint(units)).mean() == pytest.approx(whole, abs=0.1)
