"""Private whitening: what it costs, that it finds what stands out of the noise, and nothing that does not."""

import numpy as np
import pytest
import torch

from dpexp._validate import UserError
from dpexp.accounting import MomentsAccountant, Relation
from dpexp.features import DPPCA, PrivateWhitening
from dpexp.features.dp_pca import noisy_second_moment, second_moment
from dpexp.features.whitening import leading
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

WIDTH, SIGMA = 200, 3.0
HALF = SIGMA * np.sqrt(WIDTH / 2)


def whitening(**changes):
    return PrivateWhitening(**({"inputs": WIDTH, "dimensions": WIDTH, "noise_multiplier": SIGMA} | changes))


def spiked(*eigenvalues, seed=0):
    """A matrix of a few known directions, and the directions."""
    normal = np.random.default_rng(seed).standard_normal((WIDTH, len(eigenvalues)))
    directions, _ = np.linalg.qr(normal)
    return (directions * eigenvalues) @ directions.T, directions


def rows(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((n, WIDTH))
    found[:, :2] *= [20, 10]
    return found.astype(np.float32)


def noisy(moment, seed):
    return noisy_second_moment(moment, SIGMA, GaussianNoise(Stream.keyed_by(seed)))


def test_it_is_priced_as_the_release_of_a_second_moment():
    one, other = (
        whitening(noise_multiplier=7.0),
        DPPCA(inputs=WIDTH, components=3, dimensions=3, noise_multiplier=7.0),
    )
    assert [release.event for release in one.releases] == [release.event for release in other.releases]
    [release] = one.releases
    accountant, relation = MomentsAccountant(), Relation.ADD_OR_REMOVE_ONE
    cost = accountant.price(release.event, relation)
    assert float(accountant.epsilon(cost, 1e-5, relation)) == pytest.approx(0.6965, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_row_of_any_norm_changes_what_is_noised_by_no_more_than_one_of_norm_one(scale):
    data = rows(50)
    unit, far = (np.vstack([data, factor * data[:1]]).astype(np.float32) for factor in (1.0, scale))
    noise = GaussianNoise(Stream.keyed_by(0))
    np.testing.assert_allclose(
        whitening().fit(far, noise).scales, whitening().fit(unit, noise).scales, rtol=1e-5
    )


def test_of_noise_alone_nothing_is_scaled():
    for seed in range(5):
        scales = leading(noisy(np.zeros((WIDTH, WIDTH)), seed), SIGMA).scales
        assert (scales > 0.75).all()  # an eigenvalue just beyond the edge is scaled by almost 1
        assert len(scales) <= 1


def test_eigenvalues_and_directions_are_corrected_for_the_noise():
    """Against the true ones, where single results scatter by less than the tolerance (200 dimensions)."""
    eigenvalues = np.array([4.0, 8.0, 30.0]) * HALF
    moment, directions = spiked(*eigenvalues)
    expected = np.sqrt(HALF / (HALF + eigenvalues - HALF**2 / eigenvalues))
    for seed in range(3):
        found = leading(noisy(moment, seed), SIGMA)
        np.testing.assert_allclose(found.scales[-3:], expected, rtol=0.03)
        overlaps = np.abs(np.diag(found.directions[:, -3:].T @ directions)) ** 2
        np.testing.assert_allclose(overlaps, 1 - (HALF / eigenvalues) ** 2, atol=0.03)


def test_without_the_correction_a_weak_one_would_be_wrong():
    moment, _ = spiked(1.5 * HALF)
    found = [noisy(moment, seed) for seed in range(20)]
    raw = np.mean([np.linalg.eigvalsh(matrix)[-1] for matrix in found])
    assert raw == pytest.approx((1.5 + 1 / 1.5) * HALF, rel=0.03)  # λ + h²/λ, where λ is 1.5 h
    scales = [leading(matrix, SIGMA).scales[-1] for matrix in found]
    assert np.mean(scales) == pytest.approx((1 + 1.5 - 1 / 1.5) ** -0.5, rel=0.05)


def test_directions_that_stand_out_are_equal_afterwards():
    unit = rows() / np.linalg.norm(rows(), axis=1, keepdims=True)
    before = np.linalg.eigvalsh(unit.T @ unit)[::-1]
    found = whitening().fit(unit, GaussianNoise(Stream.keyed_by(2))).transform(unit)
    after = np.linalg.eigvalsh(found.T @ found)[::-1]
    assert before[0] / before[1] > 2
    np.testing.assert_allclose(after[:2], HALF, rtol=0.1)  # λs² = hλ/(h + ρ)
    assert after[2] < HALF / 2  # the rest does not stand out and is as it was


def test_it_is_linear_and_leaves_what_is_orthogonal_as_it_is():
    fitted = whitening().fit(rows(), GaussianNoise(Stream.keyed_by(0)))
    assert len(fitted.scales) >= 2
    data = rows(30, seed=1)
    np.testing.assert_allclose(fitted.transform(2 * data), 2 * fitted.transform(data), rtol=1e-4, atol=1e-4)
    rest = data - data @ fitted.directions @ fitted.directions.T
    np.testing.assert_allclose(fitted.transform(rest), rest, atol=1e-4)
    np.testing.assert_allclose(
        fitted.transform(data) @ fitted.directions, data @ fitted.directions * fitted.scales, atol=1e-4
    )
    assert fitted.transform(data).dtype == np.float32


def test_what_is_fitted_and_said_is_made_from_the_noised_moment_and_nothing_else(caplog):
    caplog.set_level("INFO")
    found = whitening().fit(rows(), GaussianNoise(Stream.keyed_by(4)))
    assert f"Whitening scales {len(found.scales)} of {WIDTH} directions" in caplog.text
    expected = leading(noisy(second_moment(rows()), 4), SIGMA)
    np.testing.assert_array_equal(found.directions, expected.directions)
    np.testing.assert_array_equal(found.scales, expected.scales)


def test_every_fit_draws_its_own_noise_and_none_is_drawn_without_privacy():
    one, two = (whitening().fit(rows(), GaussianNoise(Stream.secret())) for _ in range(2))
    assert not np.allclose(np.abs(one.directions[:, -1]), np.abs(two.directions[:, -1]), atol=1e-9)
    exact, again = (whitening().fit(rows(), NoNoise()) for _ in range(2))
    np.testing.assert_array_equal(exact.directions, again.directions)


def test_what_was_released_is_restored_and_another_width_refused():
    fitted = whitening().fit(rows(), GaussianNoise(Stream.secret()))
    restored = whitening().restored(whitening().arrays(fitted))
    np.testing.assert_array_equal(restored.transform(rows(9)), fitted.transform(rows(9)))
    with pytest.raises(UserError, match=r"features\.inputs"):
        whitening(inputs=4, dimensions=4).restored(whitening().arrays(fitted))
    kept = whitening().arrays(fitted)
    for broken in ({}, kept | {"scales": kept["scales"][:1]}, kept | {"scales": kept["scales"][:, None]}):
        with pytest.raises(UserError, match=r"features\.inputs"):
            whitening().restored(broken)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_counts_as_nothing(bad):
    row = np.full((1, WIDTH), bad, dtype=np.float32)
    noise = GaussianNoise(Stream.keyed_by(0))
    found = whitening().fit(np.vstack([rows(), row]), noise)
    np.testing.assert_array_equal(found.scales, whitening().fit(rows(), noise).scales)


def test_where_nothing_stands_out_rows_stay_as_they_are():
    fitted = whitening(noise_multiplier=1e6).fit(rows(), NoNoise())
    assert fitted.scales.shape == (0,)
    np.testing.assert_array_equal(fitted.transform(rows(9)), rows(9))
    restored = whitening().restored(whitening().arrays(fitted))
    np.testing.assert_array_equal(restored.as_layer()(torch.tensor(rows(9))).numpy(), rows(9))


@pytest.mark.parametrize("changes", [{"noise_multiplier": 0}, {"dimensions": 4}, {"noise_multiplier": None}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(UserError, match=f"features.{next(iter(changes))}"):
        whitening(**changes)


def test_rows_of_another_width_than_declared_are_refused():
    with pytest.raises(UserError, match=r"features.inputs = 200"):
        whitening().fit(rows()[:, :5], NoNoise())
