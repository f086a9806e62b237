"""The scattering transform against direct convolution in float64, and its laws."""

import math

import numpy as np
import pytest
import torch

from dpexp._validate import UserError
from dpexp.features import Scattering, scattering_dimensions
from dpexp.features.images import ImageShape
from dpexp.features.scattering_transform import ScatteringTransform
from dpexp.features.wavelets import FilterBank
from dpexp.noise import NoNoise


def wavelet(grid, scale, turn, angles):
    """Morlet, from its definition: a plane wave less a constant, under a turned and stretched Gaussian."""
    sigma, xi, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / angles
    turned = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    precision = turned @ np.diag([1, slant**2]) @ turned.T / sigma**2
    envelope, wave = np.zeros(grid), np.zeros(grid, dtype=complex)
    for rows in range(-6, 7):
        for columns in range(-6, 7):
            points = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1) + np.array(
                [rows * grid[0], columns * grid[1]]
            )
            here = np.exp(-np.einsum("abi,ij,abj->ab", points, precision, points) / 2)
            envelope += here
            wave += here * np.exp(1j * points @ (xi * turned[:, 0]))
    constant = wave.sum() / envelope.sum()
    return (wave - constant * envelope) / (2 * math.pi * sigma**2 / slant)


def low_pass(grid, scales):
    sigma = 0.8 * 2 ** (scales - 1)
    axes = []
    for size in grid:
        points = np.arange(size)[:, None] + size * np.arange(-6, 7)[None, :]
        axes.append(np.exp(-(points**2) / (2 * sigma**2)).sum(axis=1) / (sigma * math.sqrt(2 * math.pi)))
    return np.outer(*axes)


def convolved(values, kernel, *, resolution, step):
    """Σ_m u[m] k[step·n - 2^r·m] on the torus, the weights of a sum over every 2^r-th pixel, no transform."""
    grid, coarse = kernel.shape, 2**resolution
    lags = [(np.arange(0, size, step)[:, None] - np.arange(0, size, coarse)[None, :]) % size for size in grid]
    gathered = kernel[lags[0][:, None, :, None], lags[1][None, :, None, :]]
    return coarse**2 * np.einsum("abcd,cd->ab", gathered, values)


def reference(image, scales, angles):
    """Coefficients of one image by direct convolution in float64."""
    pads = []
    for size in image.shape:
        padded = (size + 2**scales) // 2**scales * 2**scales + 2**scales
        pads.append(((padded - size) // 2, padded - size - (padded - size) // 2))
    padded = np.pad(image.astype(np.float64), pads, mode="reflect")
    phi = low_pass(padded.shape, scales)
    turns = [(angles // 2 - 1 - index) * math.pi / angles for index in range(angles)]
    psi = [[wavelet(padded.shape, scale, turn, angles) for turn in turns] for scale in range(scales)]

    def averaged(values, resolution):
        return convolved(values, phi, resolution=resolution, step=2**scales)[1:-1, 1:-1]

    paths = [[averaged(padded, 0)], [], []]
    for j1 in range(scales):
        for first in psi[j1]:
            moduli = np.abs(convolved(padded, first, resolution=0, step=2**j1))
            paths[1].append(averaged(moduli, j1))
            for j2 in range(j1 + 1, scales):
                for second in psi[j2]:
                    again = np.abs(convolved(moduli, second, resolution=j1, step=2**j2))
                    paths[2].append(averaged(again, j2))
    return np.stack([*paths[0], *paths[1], *paths[2]])


@pytest.mark.parametrize(
    ("size", "scales", "angles"), [((28, 28), 2, 8), ((11, 14), 2, 3), ((8, 8), 1, 4), ((17, 19), 3, 2)]
)
def test_it_is_what_direct_convolution_in_float64_gives(size, scales, angles):
    image = np.random.default_rng(0).random(size)
    expected = reference(image, scales, angles)
    shape = ImageShape(channels=1, height=size[0], width=size[1])
    transform = ScatteringTransform(shape, scales=scales, angles=angles)
    found = transform(torch.tensor(image, dtype=torch.float32)[None])[0].numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_28_by_28_pixels_give_81_channels_of_7_by_7():
    assert scattering_dimensions([28, 28], 2, 8) == 81 * 7 * 7
    assert scattering_dimensions([3, 32, 32], 2, 8) == 3 * 81 * 8 * 8


def test_wavelets_have_mean_zero_and_lose_no_energy_beyond_their_frame():
    bank = FilterBank(grid=(36, 36), scales=2, angles=8)
    spectra = np.concatenate([bank.spectra(scale) for scale in range(2)])
    np.testing.assert_allclose(spectra[:, 0, 0], 0, atol=1e-12)
    np.testing.assert_allclose(np.fft.fft2(bank.wavelets(0)).imag, 0, atol=1e-12)
    squares = np.square(spectra)
    mirrored = np.roll(squares[:, ::-1, ::-1], (1, 1), axis=(1, 2))
    low = np.fft.fft2(low_pass((36, 36), 2)).real
    # Littlewood-Paley (Bruna and Mallat 2013, equation 7), up to the overshoot of this discretization.
    assert (low**2 + (squares + mirrored).sum(axis=0) / 2).max() < 1.4


def transform_of(images):
    shape = ImageShape(channels=1, height=images.shape[-2], width=images.shape[-1])
    return ScatteringTransform(shape, scales=2, angles=8)(torch.tensor(images, dtype=torch.float32)).numpy()


def test_a_shift_moves_the_coefficients_much_less_than_the_image():
    rng = np.random.default_rng(1)
    image = np.zeros((1, 28, 28))
    image[0, 8:20, 8:20] = rng.random((12, 12))
    shifted = np.roll(image, 1, axis=2)
    moved = np.linalg.norm(transform_of(shifted) - transform_of(image)) / np.linalg.norm(transform_of(image))
    assert moved < np.linalg.norm(shifted - image) / np.linalg.norm(image) / 2


def test_shifting_by_the_whole_averaging_shifts_the_coefficients():
    image = np.zeros((1, 40, 40))
    image[0, 15:24, 15:24] = np.random.default_rng(1).random((9, 9))
    once = transform_of(image)
    again = transform_of(np.roll(image, 4, axis=1))
    np.testing.assert_allclose(np.roll(once, 1, axis=2)[:, :, 3:-3], again[:, :, 3:-3], atol=1e-4)


def test_scaling_the_image_scales_the_coefficients_and_a_constant_has_only_a_mean():
    image = np.random.default_rng(2).random((1, 28, 28))
    np.testing.assert_allclose(transform_of(3 * image), 3 * transform_of(image), atol=1e-5)
    flat = transform_of(np.ones((1, 28, 28)))
    np.testing.assert_allclose(flat[:, 0], 1, atol=1e-5)
    np.testing.assert_allclose(flat[:, 1:], 0, atol=1e-5)


def scattering(**changes):
    keys = {"inputs": 64, "shape": [8, 8], "scales": 1, "angles": 4, "normalization": "group", "groups": 5}
    keys |= {"cache": False} | changes
    dimensions = keys.pop("dimensions", scattering_dimensions(keys["shape"], keys["scales"], keys["angles"]))
    return Scattering(dimensions=dimensions, **keys)


def rows(n=40, d=64, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(np.float32)


def test_no_row_reaches_another():
    data = rows()
    changed = data.copy()
    changed[7] = 100 * rows(1, seed=9)[0]
    for normalization in ("none", "group"):
        fitted = scattering(normalization=normalization).fit(data, NoNoise())
        before, after = fitted.transform(data), fitted.transform(changed)
        others = np.arange(len(data)) != 7
        np.testing.assert_array_equal(before[others], after[others])
        assert not np.allclose(before[7], after[7])


def test_color_images_are_transformed_channel_by_channel():
    data = rows(4, 3 * 64)
    color = scattering(inputs=192, shape=[3, 8, 8], normalization="none").fit(data, NoNoise())
    gray = scattering(normalization="none").fit(data, NoNoise())
    found = color.transform(data).reshape(4, 3, -1)
    for channel in range(3):
        alone = np.ascontiguousarray(data.reshape(4, 3, 64)[:, channel])
        np.testing.assert_allclose(found[:, channel], gray.transform(alone), atol=1e-6)


def test_public_features_release_nothing_and_data_normalization_one_gaussian():
    assert scattering().releases == ()
    private = scattering(
        normalization="data", noise_multiplier=8, mean_bound=1, square_bound=1, num_examples=40
    )
    [release] = private.releases
    assert release.event.noise_multiplier == 8


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"shape": [8, 9]}, "features.shape"),
        ({"shape": 8, "dimensions": 80}, "features.shape"),
        ({"scales": 3}, "features.scales"),
        ({"angles": 0, "dimensions": 16}, "features.angles"),
        ({"dimensions": 81}, "features.dimensions"),
        ({"groups": 3}, "features.groups"),
        ({"groups": None}, "features.groups"),
        ({"normalization": "batch"}, "features.normalization"),
        ({"normalization": "data"}, "features.noise_multiplier"),
    ],
)
def test_impossible_settings_are_refused(changes, key):
    with pytest.raises(UserError, match=key):
        scattering(**changes)


def test_keys_of_other_normalizations_are_listed_as_ignored():
    assert scattering(noise_multiplier=8).ignored() == {"noise_multiplier": 8}
    assert scattering(normalization="none").ignored() == {"groups": 5}
