"""Filters and odometer: golden numbers, laws, and the adversary that breaks the naive filter."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import adaptivity, filters
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.budget import Account, Budget, Phase, lots_within
from dpexp.accounting.events import Composed, Gaussian, PoissonSampled, Relation, Repeated
from dpexp.accounting.filters import BudgetExceededError, RenyiFilter, RenyiOdometer
from dpexp.accounting.gaussian_filter import GaussianFilter
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, largest_gdp
from tests.accounting.golden import rows

ADD = Relation.ADD_OR_REMOVE_ONE
STEP = PoissonSampled(gaussian=Gaussian(noise_multiplier=4), sampling_probability=0.01)
quick = settings(max_examples=25, deadline=None, derandomize=True)


def golden(accountant):
    return [(float(row.case.split("=")[1]), int(row.order), int(row.number)) for row in rows(accountant)]


def budget(epsilon, delta=1e-5):
    return Budget(epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(("epsilon", "order", "steps"), golden("filter_fixed_order_cks"))
def test_fixed_order_filter_admits_the_golden_number_of_steps(epsilon, order, steps):
    admitted = RenyiFilter(budget=budget(epsilon), relation=ADD, orders=(order,)).admits(STEP)
    assert admitted == steps
    assert filters.best_filter_order([Phase(STEP, 10**7)], budget(epsilon), ADD) == order


@pytest.mark.parametrize(("epsilon", "order", "steps"), golden("filter_fixed_order_abadi"))
def test_fixed_order_filter_by_the_tail_bound_gives_the_golden_number_of_steps(epsilon, order, steps):
    alpha = filters.filter_moments(STEP, ADD, (order,))
    left = np.array([filters.tail_filter_budget(order, epsilon, math.log(1e-5))])
    assert filters._whole_lots(left, alpha, 10**9) == [steps]


@pytest.mark.parametrize(("epsilon", "order", "steps"), golden("filter_union_16_orders_cks"))
def test_sixteen_orders_that_share_delta_admit_the_golden_number_of_steps(epsilon, order, steps):
    union = RenyiFilter(budget=budget(epsilon), relation=ADD, orders=filters.SIXTEEN_ORDERS)
    assert union.admits(STEP) == steps


@pytest.mark.parametrize(("epsilon", "order", "steps"), golden("odometer_union_16_orders"))
def test_odometer_passes_epsilon_right_after_the_golden_number_of_steps(epsilon, order, steps):
    for count, within in ((steps, True), (steps + 1, False)):
        odometer = RenyiOdometer(delta=1e-5, relation=ADD)
        odometer.charge(Repeated(STEP, count))
        assert (float(odometer.epsilon()) <= epsilon) is within
    assert odometer.epsilon().order == order


@pytest.mark.parametrize("epsilon", [0.5, 1, 3, 8])
def test_a_filter_never_admits_more_steps_than_plain_accounting(epsilon):
    plain = lots_within(Account(RenyiAccountant(), ADD, budget(epsilon)), [Phase(STEP, 10**7)])
    order = filters.best_filter_order([Phase(STEP, 10**7)], budget(epsilon), ADD)
    fixed = RenyiFilter(budget=budget(epsilon), relation=ADD, orders=(order,)).admits(STEP)
    union = RenyiFilter(budget=budget(epsilon), relation=ADD, orders=filters.SIXTEEN_ORDERS).admits(STEP)
    assert union <= fixed <= plain


@quick
@given(st.lists(st.floats(0.7, 8), min_size=1, max_size=30), st.floats(0.5, 6))
def test_what_a_filter_admits_is_within_budget_by_plain_accounting_of_the_realized_schedule(sigmas, epsilon):
    guard = RenyiFilter(budget=budget(epsilon), relation=ADD, orders=(2, 6, 16))
    account = Account(RenyiAccountant(), ADD, budget(epsilon))
    for sigma in sigmas:
        event = PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=0.05)
        if guard.affords(event):
            guard.charge(event)
            account.charge(event)
    assert float(account.epsilon()) <= epsilon * (1 + 1e-9)


@quick
@given(st.floats(0.7, 8), st.integers(1, 3000))
def test_charging_one_by_one_admits_as_many_as_admits_says(sigma, count):
    event = PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=0.3)
    guard = RenyiFilter(budget=budget(5), relation=ADD, orders=(3, 12))
    promised, made = guard.admits(event), 0
    while made < min(count, promised + 1) and guard.affords(event):
        guard.charge(event)
        made += 1
    assert made == min(count, promised)


@quick
@given(st.floats(0.6, 10), st.integers(1, 10**5))
def test_an_odometer_costs_more_than_plain_accounting_at_the_same_time(sigma, count):
    event = Repeated(
        PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=0.01), count
    )
    odometer = RenyiOdometer(delta=1e-5, relation=ADD)
    odometer.charge(event)
    account = Account(RenyiAccountant(), ADD, budget(None))
    account.charge(event)
    assert float(odometer.epsilon()) >= float(account.epsilon())


def test_an_odometer_reads_zero_before_the_first_release():
    odometer = RenyiOdometer(delta=1e-5, relation=ADD)
    odometer.charge(Repeated(STEP, 0))
    assert odometer.epsilon() == 0


def test_noiseless_release_is_refused_and_reads_infinite():
    naked = PoissonSampled(gaussian=Gaussian(noise_multiplier=0), sampling_probability=0.01)
    guard = RenyiFilter(budget=budget(8), relation=ADD, orders=(4,))
    assert not guard.affords(naked)
    with pytest.raises(BudgetExceededError, match="does not admit"):
        guard.charge(naked)
    odometer = RenyiOdometer(delta=1e-5, relation=ADD)
    odometer.charge(naked)
    assert math.isinf(odometer.epsilon())


def test_a_filter_needs_an_epsilon_and_increasing_orders():
    with pytest.raises(UserError, match=r"privacy\.epsilon = None"):
        RenyiFilter(budget=budget(None), relation=ADD, orders=(4,))
    for orders in ((), (4, 4), (4, 2), (0,), (2.5,), (5000,)):
        with pytest.raises(UserError, match="orders"):
            RenyiFilter(budget=budget(1), relation=ADD, orders=orders)


def test_every_row_of_the_adaptivity_table_is_printed():
    table = adaptivity.adaptivity_table()
    assert table.count("\n") == len(adaptivity.ADAPTIVITY) + 1
    assert table.count("INVALID") == 2


# The adversary. It observes one Gaussian release, of loss L₁, then releases one of two outcomes, of loss x
# with probability p and slightly negative otherwise, using up what is left at the order that fits L₁ best.

LOSSES = np.linspace(-12, 24, 1201)  # L₁, in standard deviations around its mean


def two_outcomes(order, left, x):
    """p such that both log moments of the two-outcome release are <= `left`, as large as possible."""
    low, high = np.full_like(x, -700.0), np.zeros_like(x)  # log p
    for _ in range(60):
        middle = (low + high) / 2
        fits = log_moment(order, np.exp(middle), x) <= left
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.exp(low)


def log_moment(order, p, x):
    q = p * np.exp(-x)
    with np.errstate(divide="ignore"):
        log_other = np.log1p(-p) - np.log1p(-q)
        up = np.logaddexp(np.log(p) + order * x, np.log1p(-p) + order * log_other)
        down = np.logaddexp(np.log(q) - order * x, np.log1p(-q) - order * log_other)
    return np.maximum(up, down)


def gain(order, left, losses, epsilon):
    """E[(1 - e^(ε-L₁-L₂))₊] of the second release, given L₁."""
    if left < 0:
        return np.maximum(-np.expm1(epsilon - losses), 0.0)  # nothing more is admitted
    x = np.maximum(epsilon - losses + math.log1p(1 / order), 1e-3)
    p = two_outcomes(order, left, x)
    other = np.log1p(-p) - np.log1p(-p * np.exp(-x))
    hit = np.maximum(-np.expm1(epsilon - losses - x), 0.0)
    miss = np.maximum(-np.expm1(epsilon - losses - other), 0.0)
    return p * hit + (1 - p) * miss


def leaked_delta(orders, epsilon, sigma, delta=1e-5):
    """δ(ε) that the adversary reaches against "continue while *some* order is within its own budget"."""
    losses = 0.5 / sigma**2 + LOSSES / sigma
    density = np.exp(-(LOSSES**2) / 2) / math.sqrt(2 * math.pi)
    gains = []
    for order in orders:
        first = order * (order + 1) / (2 * sigma**2)
        left = filters.filter_budget(order, epsilon, math.log(delta)) - first
        gains.append(gain(order, left, losses, epsilon))
    return float(np.sum(np.max(gains, axis=0) * density) * (LOSSES[1] - LOSSES[0]))


@pytest.mark.parametrize(("epsilon", "sigma", "leak"), [(8, 1.5, 1.77), (2, 4.0, 1.55), (4, 2.0, 1.5)])
def test_the_filter_that_takes_any_order_leaks_and_one_fixed_order_does_not(epsilon, sigma, leak):
    assert leaked_delta(range(1, 33), epsilon, sigma) >= leak * 1e-5
    for order in range(1, 33):
        assert leaked_delta([order], epsilon, sigma) <= 1e-5 * (1 + 1e-6)


def test_any_order_with_shared_delta_keeps_it():
    for epsilon, sigma in ((8, 1.5), (2, 4.0), (4, 2.0)):
        assert leaked_delta(range(1, 33), epsilon, sigma, delta=1e-5 / 32) <= 1e-5


# The Gaussian filter.


def test_gaussian_filter_admits_what_one_release_of_the_same_total_costs():
    mu = largest_gdp(2.0, math.log(1e-5))
    guard = GaussianFilter(budget=budget(2), relation=ADD)
    assert guard.affords(Gaussian(noise_multiplier=1.0001 / mu))
    assert not guard.affords(Gaussian(noise_multiplier=0.9999 / mu))
    parts = Composed((Repeated(Gaussian(noise_multiplier=8 / mu), 32), Gaussian(noise_multiplier=2 / mu)))
    guard.charge(parts)
    assert guard.affords(Gaussian(noise_multiplier=2.001 / mu))
    assert not guard.affords(Gaussian(noise_multiplier=1.999 / mu))


def test_gaussian_filter_uses_the_exact_profile():
    # DP-PCA golden values: exact ε at δ = 1e-5 of σ = 16, 7 and of σ = 4 under replace-one (σ/√2).
    cases = ((16, 0.20414832842946943960643906875102), (7, 0.5024792478642167600295267284466))
    for sigma, epsilon in (*cases, (4 / math.sqrt(2), 1.3564673644570406511575373387012)):
        assert 1 / largest_gdp(epsilon, math.log(1e-5)) == pytest.approx(sigma, rel=1e-9)
        assert 1 / largest_gdp(epsilon, math.log(1e-5)) >= sigma * (1 - 1e-12)


def test_gaussian_filter_refuses_sampled_lots_and_overspending():
    guard = GaussianFilter(budget=budget(2), relation=Relation.REPLACE_ONE)
    with pytest.raises(UnsupportedEventError, match="RenyiFilter"):
        guard.affords(STEP)
    with pytest.raises(BudgetExceededError):
        guard.charge(Gaussian(noise_multiplier=0))


@pytest.mark.parametrize("log_delta", [math.log(0.3), -11.5, -230.0, -690.0])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0, 500.0])
def test_largest_gdp_and_its_epsilon_are_inverse_at_the_extremes(epsilon, log_delta):
    mu = largest_gdp(epsilon, log_delta)
    assert 0 < mu < 100
    assert epsilon_of_gdp(mu, log_delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-9)


def test_partition_bound_is_the_golden_one():
    # E = 100 epochs, zero-out, σ = 8, 4, 2 (golden rows partition_upper)
    for sigma, value in ((8, 5.6795868550975655), (4, 13.206712240451987), (2, 33.103732335922465)):
        found = epsilon_of_gdp(10 / sigma, math.log(1e-5))
        assert found == pytest.approx(value, rel=1e-10)
        assert found >= value * (1 - 1e-15)
    assert epsilon_of_gdp(0, -11.5) == 0
    assert math.isinf(epsilon_of_gdp(1e9, -11.5))
