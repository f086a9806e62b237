"""The noisy mean: sensitivity by search, noise by distribution."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpexp._validate import UserError
from dpexp.features import PrivateCentering
from dpexp.features.centering import sum_of_clipped
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.streams import Stream

WIDTH, ALPHA = 5, 1e-4
anything = hnp.arrays(
    np.float32, (1, WIDTH), elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)
)


def rows(n=40, d=WIDTH):
    return np.random.default_rng(0).random((n, d)).astype(np.float32)


def centering(**changes):
    keys = {"inputs": WIDTH, "dimensions": WIDTH, "noise_multiplier": 4.0, "bound": 3.0, "num_examples": 40}
    return PrivateCentering(**(keys | changes))


@hypothesis.given(one=anything, other=anything)
def test_a_row_moves_the_sum_by_at_most_one_and_replacing_it_by_the_declared_factor(one, other):
    data = rows()
    without, first, second = (
        sum_of_clipped(part, 3.0) for part in (data, np.vstack([data, one]), np.vstack([data, other]))
    )
    [release] = centering().releases
    assert np.linalg.norm(first - without) <= 1 + 1e-9
    assert np.linalg.norm(first - second) <= release.event.replace_one_factor + 1e-9


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_counts_as_nothing(bad):
    row = np.full((1, WIDTH), bad, dtype=np.float32)
    np.testing.assert_array_equal(sum_of_clipped(np.vstack([rows(), row]), 3.0), sum_of_clipped(rows(), 3.0))


def test_without_noise_rows_within_the_bound_get_mean_zero():
    found = centering().fit(rows(), NoNoise()).transform(rows())
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
    assert found.dtype == np.float32


def test_the_mean_is_noised_by_sigma_times_the_bound_over_n():
    wide = centering(inputs=3000, dimensions=3000)
    mean = wide.fit(np.zeros((1, 3000), dtype=np.float32), GaussianNoise(Stream.keyed_by(0))).mean
    std = 4.0 * 3.0 / 40
    assert stats.kstest(mean / std, "norm").pvalue > ALPHA
    assert stats.kstest(mean / std * 1.3, "norm").pvalue < ALPHA


def test_what_was_released_is_restored_and_another_width_refused():
    fitted = centering().fit(rows(), GaussianNoise(Stream.secret()))
    np.testing.assert_array_equal(centering().restored(centering().arrays(fitted)).mean, fitted.mean)
    with pytest.raises(UserError, match=r"features\.inputs"):
        centering(inputs=4, dimensions=4).restored(centering().arrays(fitted))


@pytest.mark.parametrize(
    "changes", [{"noise_multiplier": 0}, {"bound": -1}, {"num_examples": 0}, {"dimensions": 4}]
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(UserError, match=f"features.{next(iter(changes))}"):
        centering(**changes)
