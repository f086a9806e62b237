"""The Gaussian profile against sixty digits: an upper bound, and a tight one."""

import math

import mpmath
import numpy as np
import pytest

from dpexp.accounting.gaussian_profile import epsilon_of_gdp, largest_gdp, log_delta_of_gdp


def oracle(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return mpmath.log(mpmath.ncdf(a) - mpmath.exp(epsilon) * mpmath.ncdf(b))


@pytest.mark.parametrize("epsilon", [0, 1e-9, 1e-3, 0.1, 1, 10, 100, 1000])
def test_log_delta_of_a_gaussian_is_never_below_the_truth_and_close_to_it(epsilon):
    for mu in np.geomspace(1e-6, 100, 41).tolist():
        truth, found = oracle(mu, epsilon), log_delta_of_gdp(mu, epsilon)
        if truth < -740:  # δ below the smallest float
            continue
        assert found >= truth - 1e-50, (mu, epsilon)  # the oracle has sixty digits
        assert found - truth <= 1e-6 * max(1, abs(truth)), (mu, epsilon)


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-100, 1e-300])
def test_epsilon_of_a_gaussian_inverts_its_delta(delta):
    for mu in np.geomspace(1e-3, 100, 21).tolist():
        epsilon = epsilon_of_gdp(mu, math.log(delta))
        if epsilon > 0:
            assert float(oracle(mu, epsilon)) == pytest.approx(math.log(delta), rel=1e-7, abs=1e-7)
            assert largest_gdp(epsilon, math.log(delta)) == pytest.approx(mu, rel=1e-7)


def test_no_noise_and_no_release_are_the_limits():
    assert log_delta_of_gdp(0, 1) == -math.inf
    assert log_delta_of_gdp(math.inf, 1) == 0
    assert epsilon_of_gdp(math.inf, -11.5) == math.inf
    assert epsilon_of_gdp(0, -11.5) == 0
