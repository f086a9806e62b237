import numpy as np
import pytest
from scipy import stats

from dpexp._validate import UserError
from dpexp.accounting import MomentsAccountant, Relation
from dpexp.features import DPPCA, NoFeatures
from dpexp.features.dp_pca import noisy_second_moment, second_moment
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

ALPHA = 1e-4


def rows(n=400, d=12, seed=0):
    rng = np.random.default_rng(seed)
    spread = np.linspace(3, 0.1, d)
    return (rng.standard_normal((n, d)) * spread).astype(np.float32)


def pca(**changes):
    keys = {"inputs": 12, "components": 3, "dimensions": 3, "noise_multiplier": 4.0}
    return DPPCA(**(keys | changes))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1, 10, 1e30])
def test_a_row_of_any_norm_moves_the_second_moment_by_at_most_one(scale):
    data = rows()
    added = np.vstack([data, scale * rows(1, seed=5)]).astype(np.float32)
    assert np.linalg.norm(second_moment(added) - second_moment(data)) <= 1 + 1e-9


def test_replacing_a_row_moves_it_by_at_most_the_square_root_of_two():
    data = np.eye(12, dtype=np.float32)
    for other in (rows(1, seed=3)[0], np.roll(data[0], 1), -data[0]):
        replaced = data.copy()
        replaced[0] = other
        moved = np.linalg.norm(second_moment(replaced) - second_moment(data))
        assert moved <= np.sqrt(2) * (1 + 1e-9)
    [release] = pca().releases
    assert release.event.replace_one_factor == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_zero_or_non_finite_row_counts_as_nothing(bad):
    data = rows()
    for row in (np.zeros(12), np.where(np.arange(12) == 3, bad, 1.0)):
        with_it = np.vstack([data, row]).astype(np.float32)
        np.testing.assert_allclose(second_moment(with_it), second_moment(data), rtol=1e-12)


def test_the_noise_has_std_sigma_on_the_diagonal_and_less_off_it_and_is_symmetric():
    zero, sigma = np.zeros((300, 300)), 7.0
    noisy = noisy_second_moment(zero, sigma, GaussianNoise(Stream.keyed_by(1)))
    np.testing.assert_array_equal(noisy, noisy.T)
    off = noisy[np.triu_indices(300, 1)]
    assert stats.kstest(off / (sigma / np.sqrt(2)), "norm").pvalue > ALPHA
    assert stats.kstest(np.diag(noisy) / sigma, "norm").pvalue > ALPHA
    assert stats.kstest(off / sigma, "norm").pvalue < ALPHA


def test_without_noise_it_is_the_exact_pca_of_unit_rows():
    data = rows()
    unit = data / np.linalg.norm(data, axis=1, keepdims=True)
    _, _, directions = np.linalg.svd(unit, full_matrices=False)
    found = pca().fit(data, NoNoise()).directions
    np.testing.assert_allclose(np.abs(found.T @ directions[:3].T), np.eye(3), atol=1e-4)


def test_the_row_itself_is_projected_not_its_unit_vector():
    data = rows()
    fitted = pca().fit(data, GaussianNoise(Stream.keyed_by(0)))
    np.testing.assert_allclose(fitted.transform(2 * data), 2 * fitted.transform(data), rtol=1e-5)
    assert fitted.transform(data).shape == (400, 3)
    assert fitted.transform(data).dtype == np.float32


def test_the_explained_variance_is_that_of_the_exact_moment_and_is_nonprivate():
    data = rows()
    unit = data / np.linalg.norm(data, axis=1, keepdims=True)
    singular = np.linalg.svd(unit, compute_uv=False) ** 2
    best = singular[:3].sum() / singular.sum()
    assert pca().fit(data, NoNoise()).nonprivate == {"explained_variance": pytest.approx(best, rel=1e-5)}
    noisy = pca().fit(data, GaussianNoise(Stream.keyed_by(0))).nonprivate["explained_variance"]
    assert 0 < noisy < best


def test_directions_are_orthonormal():
    directions = pca().fit(rows(), GaussianNoise(Stream.keyed_by(0))).directions
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-5)


def test_it_is_one_gaussian_release_on_all_rows():
    [release] = pca(noise_multiplier=7.0).releases
    accountant, relation = MomentsAccountant(), Relation.ADD_OR_REMOVE_ONE
    cost = accountant.price(release.event, relation)
    assert float(accountant.epsilon(cost, 1e-5, relation)) == pytest.approx(0.6965, abs=1e-4)


def test_every_fit_draws_its_own_noise():
    one = pca().fit(rows(), GaussianNoise(Stream.secret()))
    two = pca().fit(rows(), GaussianNoise(Stream.secret()))
    assert not np.allclose(one.directions, two.directions)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"components": 0, "dimensions": 0}, "features.components"),
        ({"components": 13, "dimensions": 13}, "features.components"),
        ({"dimensions": 4}, "features.dimensions"),
        ({"noise_multiplier": 0}, "features.noise_multiplier"),
    ],
)
def test_impossible_settings_are_refused(changes, key):
    with pytest.raises(UserError, match=key):
        pca(**changes)


def test_rows_of_another_width_than_declared_are_refused():
    with pytest.raises(UserError, match=r"features.inputs = 12"):
        pca().fit(rows(d=5), NoNoise())


def test_no_features_pass_rows_through_and_list_what_they_ignore():
    features = NoFeatures(inputs=12, dimensions=12, components=60, noise_multiplier=7)
    data = rows()
    assert features.fit(data, NoNoise()).transform(data) is data
    assert features.releases == ()
    assert features.ignored() == {"components": 60, "noise_multiplier": 7}
