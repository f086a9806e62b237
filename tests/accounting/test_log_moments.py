"""The paper's three ways to α(λ), their laws, their kinds and their regions."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp import _validate
from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.asymptotic import asymptotic_epsilon, theorem_one_noise_multiplier
from dpexp.accounting.bounds import Kind
from dpexp.accounting.events import Gaussian, PoissonSampled, Relation, Repeated
from dpexp.accounting.log_moments import (
    BoundedIntegral,
    ClosedForm,
    Integral,
    LeadingTerm,
    MironovClosedForm,
    reversed_log_moments,
)

BOUNDED, CLOSED = BoundedIntegral(), ClosedForm()
laws = settings(derandomize=True, max_examples=60, deadline=None)
rates = st.floats(-9, -0.001).map(lambda x: 10**x)
noises = st.floats(-0.5, 2).map(lambda x: 10**x)


def alpha(way, q, sigma, orders):
    return way(sampling_probability=q, noise_multiplier=sigma, orders=np.asarray(orders, dtype=float))


@laws
@given(q=rates, sigma=noises)
def test_alpha_is_positive_convex_and_increasing_in_the_order_and_below_the_closed_form(q, sigma):
    orders = np.arange(1.0, 40)
    values = np.concatenate([[0.0], alpha(BOUNDED, q, sigma, orders)])
    steps = np.diff(values)
    assert (steps > 0).all()
    assert (np.diff(steps) >= -1e-11 * steps[1:]).all()
    assert (values[1:] <= alpha(CLOSED, q, sigma, orders)).all()


@laws
@given(q=rates, sigma=noises)
def test_alpha_rises_with_q_and_falls_with_sigma(q, sigma):
    orders = [1, 5, 32]
    here = alpha(BOUNDED, q, sigma, orders)
    assert (alpha(BOUNDED, min(q * 1.1, 1.0), sigma, orders) >= here).all()
    assert (alpha(BOUNDED, q, sigma * 1.1, orders) <= here).all()


@laws
@given(q=rates, sigma=noises)
def test_alpha_of_order_one_has_its_closed_value(q, sigma):
    excess = 2 * math.log(q) + (1 / sigma**2 if sigma < 0.1 else math.log(math.expm1(1 / sigma**2)))
    assert alpha(BOUNDED, q, sigma, [1])[0] == pytest.approx(np.logaddexp(0, excess), rel=1e-12)


@laws
@given(q=rates, sigma=noises, order=st.floats(0.05, 60))
def test_the_reversed_moment_is_not_larger_and_the_chord_bounds_the_integral(q, sigma, order):
    integral = alpha(Integral(), q, sigma, [order])[0]
    assert reversed_log_moments(q, sigma, np.array([order]))[0] <= integral * (1 + 1e-10)
    assert integral <= alpha(BOUNDED, q, sigma, [order])[0] * (1 + 1e-10)


def test_full_sampling_is_the_gaussian():
    orders = np.array([0.5, 1, 7, 32])
    for way in (BOUNDED, Integral()):
        wanted = orders * (orders + 1) / 32
        expected = wanted if way is not BOUNDED else np.maximum(wanted, [0.03125, 0, 0, 0])
        assert alpha(way, 1.0, 4.0, orders) == pytest.approx(expected, rel=1e-14)
    assert alpha(BOUNDED, 1 - 1e-13, 4.0, [1, 7])[1] == pytest.approx(7 * 8 / 32, rel=1e-10)


@pytest.mark.parametrize(("q", "sigma", "order"), [(1e-7, 0.7, 3), (0.3, 2.5, 11), (0.02, 5.0, 300)])
def test_mpmath_confirms_the_finite_sum(q, sigma, order):
    with mpmath.workdps(60):
        a, q_, s = order + 1, mpmath.mpf(q), mpmath.mpf(sigma)
        terms = (
            mpmath.binomial(a, k) * q_**k * (1 - q_) ** (a - k) * mpmath.exp(k * (k - 1) / (2 * s * s))
            for k in range(a + 1)
        )
        true = mpmath.log(mpmath.fsum(terms))
        found = mpmath.mpf(float(alpha(BOUNDED, q, sigma, [order])[0]))
        assert true <= found <= true * (1 + mpmath.mpf("1e-12"))


def test_order_4096_and_a_tiny_rate_have_finite_values():
    assert np.isfinite(alpha(BOUNDED, 0.01, 4.0, [4096])).all()
    assert alpha(BOUNDED, 1e-12, 1.0, [1])[0] == pytest.approx(1e-24 * math.expm1(1), rel=1e-12)
    assert (alpha(BOUNDED, 0.0, 1.0, [1, 4096]) == 0).all()


def test_the_leading_term_of_lemma_three_is_below_the_truth_inside_its_region_and_called_a_heuristic():
    assert alpha(LeadingTerm(), 0.04375, 1.0, [3])[0] < alpha(BOUNDED, 0.04375, 1.0, [3])[0]
    assert LeadingTerm.kind is Kind.HEURISTIC


def test_mironovs_closed_form_is_above_the_truth_all_over_its_region():
    tried = 0
    for q in (1e-6, 1e-3, 0.01, 0.05, 0.2):
        for sigma in (4.0, 8.0, 30.0):
            for order in (1, 3, 10, 40, 100):
                if MironovClosedForm()._covers(q, sigma, order):
                    tried += 1
                    assert (
                        alpha(BOUNDED, q, sigma, [order])[0]
                        <= alpha(MironovClosedForm(), q, sigma, [order])[0]
                    )
    assert tried > 40
    assert MironovClosedForm.kind is Kind.ESTIMATE  # the theorem is quoted from memory, not proven here


@pytest.mark.parametrize(
    ("way", "q", "sigma", "order"),
    [
        (LeadingTerm(), 0.01, 1.0, 32),
        (LeadingTerm(), 0.5, 4.0, 2),
        (MironovClosedForm(), 0.3, 8.0, 2),
        (MironovClosedForm(), 0.01, 2.0, 2),
        (CLOSED, 0.01, 4.0, 1.5),
    ],
)
def test_outside_its_region_a_way_raises_and_names_the_point(way, q, sigma, order):
    with pytest.raises(_validate.UserError, match=r"it needs"):
        alpha(way, q, sigma, [order])


@pytest.mark.parametrize(
    "bad", [{"q": -0.1}, {"q": 1.5}, {"q": math.nan}, {"sigma": 0}, {"order": 0}, {"order": 5000}]
)
def test_bad_arguments_are_refused(bad):
    good = {"q": 0.01, "sigma": 4.0, "order": 3} | bad
    with pytest.raises(_validate.UserError):
        alpha(BOUNDED, good["q"], good["sigma"], [good["order"]])


@pytest.mark.parametrize(("epsilon", "steps"), [(1.26, 10_000), (0.5, 2000), (2.0, 40_000)])
def test_theorem_one_gives_noise_that_is_enough_where_its_condition_holds(epsilon, steps):
    sigma = theorem_one_noise_multiplier(sampling_probability=0.01, steps=steps, epsilon=epsilon, delta=1e-5)
    accountant = RenyiAccountant()
    lot = PoissonSampled(gaussian=Gaussian(noise_multiplier=float(sigma)), sampling_probability=0.01)
    cost = accountant.price(Repeated(lot, steps), Relation.ADD_OR_REMOVE_ONE)
    assert float(accountant.epsilon(cost, 1e-5, Relation.ADD_OR_REMOVE_ONE)) <= epsilon
    assert sigma.kind is Kind.CERTIFIED


def test_theorem_one_raises_and_prints_its_condition_elsewhere():
    with pytest.raises(_validate.UserError, match="log 2"):
        theorem_one_noise_multiplier(sampling_probability=0.01, steps=100, epsilon=8, delta=1e-5)


def test_the_asymptotic_bound_recovers_advanced_composition_without_its_logarithm():
    value = float(
        asymptotic_epsilon(sampling_probability=0.001, noise_multiplier=20, steps=10**6, delta=1e-5)
    )
    each = 0.001 / 20  # the scale of one release
    assert value == pytest.approx(2 * each * math.sqrt(1e6 * math.log(1e5)) + 1e6 * each**2, rel=2e-3)


def test_the_papers_accountant_saturates_at_its_last_order_and_the_wide_grid_does_not():
    lot = PoissonSampled(gaussian=Gaussian(noise_multiplier=4), sampling_probability=0.01)
    for accountant, saturated in ((MomentsAccountant(), True), (RenyiAccountant(), False)):
        cost = accountant.price(lot, Relation.ADD_OR_REMOVE_ONE)
        assert accountant.epsilon(cost, 1e-5, Relation.ADD_OR_REMOVE_ONE).saturated is saturated


def test_a_schedule_of_twenty_thousand_sigmas_is_priced_by_chords_from_above():
    accountant, relation = RenyiAccountant(), Relation.ADD_OR_REMOVE_ONE
    sigmas = np.linspace(2, 8, 20_000)
    lots = [PoissonSampled(gaussian=Gaussian(noise_multiplier=s), sampling_probability=0.01) for s in sigmas]
    table = accountant.price_many(lots, relation)
    for row in (0, 4321, 19_999):
        true = accountant.price(lots[row], relation).alpha
        assert (table[row] >= true).all()
        assert table[row, :20] == pytest.approx(true[:20], rel=1e-4)
