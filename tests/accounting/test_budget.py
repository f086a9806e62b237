"""Budgets, running totals and trajectories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.bounds import Kind
from dpexp.accounting.budget import (
    Account,
    Budget,
    Phase,
    delta_warning,
    lots_within,
    require_certified,
    total,
)
from dpexp.accounting.events import Gaussian, PoissonSampled, Relation
from dpexp.accounting.trajectory import epsilons_after, trajectory

ADD = Relation.ADD_OR_REMOVE_ONE
quick = settings(max_examples=20, deadline=None, derandomize=True)
sigmas = st.floats(0.5, 20)
accountants = st.sampled_from([MomentsAccountant(), RenyiAccountant()])


def step(sigma, q=0.01):
    return PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=q)


@quick
@given(sigmas, sigmas, st.floats(0.2, 10), accountants)
def test_lots_within_is_the_last_lot_the_budget_affords(one, other, epsilon, accountant):
    phases = [Phase(step(one), 300), Phase(step(other), 10**6)]
    account = Account(accountant, ADD, Budget(epsilon=epsilon, delta=1e-5))
    admitted = lots_within(account, phases)
    curve = trajectory(accountant, ADD, [Phase(step(one), 300), Phase(step(other), 3000)], delta=1e-5)
    assert np.sum(curve <= epsilon) == min(admitted, len(curve))


@quick
@given(sigmas, sigmas, accountants)
def test_trajectory_is_what_an_account_reads_lot_by_lot(one, other, accountant):
    account = Account(accountant, ADD, Budget(epsilon=None, delta=1e-6))
    account.charge(Gaussian(noise_multiplier=7))
    phases = [Phase(step(one), 5), Phase(step(other, 0.2), 600)]
    curve = trajectory(accountant, ADD, phases, delta=1e-6, before=[Gaussian(noise_multiplier=7)])
    assert float(total(account, phases)) == pytest.approx(curve[-1], rel=1e-12)
    for lot in range(5):
        account.charge(phases[0].event)
        assert float(account.epsilon()) == pytest.approx(curve[lot], rel=1e-12)


@quick
@given(sigmas, accountants)
def test_trajectories_never_fall(sigma, accountant):
    curve = trajectory(accountant, ADD, [Phase(step(sigma), 1000)], delta=1e-5)
    assert np.all(np.diff(curve) >= 0)
    assert np.array_equal(epsilons_after(accountant, ADD, step(sigma), [1, 500], delta=1e-5), curve[[0, 499]])


def test_an_empty_trajectory_is_empty():
    assert trajectory(RenyiAccountant(), ADD, [], delta=1e-5).shape == (0,)


def test_without_an_epsilon_everything_is_affordable():
    account = Account(MomentsAccountant(), ADD, Budget(epsilon=None, delta=1e-5))
    assert account.affords(Gaussian(noise_multiplier=0))
    assert account.delta_at_budget() is None
    assert lots_within(account, [Phase(step(1), 10**6)]) == 10**6


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (float("nan"), 1e-5), (1, 0), (1, 1), (1, float("nan"))]
)
def test_budgets_out_of_range_are_refused(epsilon, delta):
    with pytest.raises(UserError, match="privacy"):
        Budget(epsilon=epsilon, delta=delta)


def test_only_a_certified_accountant_may_be_configured():
    assert require_certified(MomentsAccountant()) == MomentsAccountant()

    class Guess(MomentsAccountant.__mro__[1]):
        name, kind, orders, _bonus = "guess", Kind.ESTIMATE, (1,), 0.0

    with pytest.raises(UserError, match="accountant = 'guess'"):
        require_certified(Guess())


def test_a_delta_of_one_over_n_is_warned_of():
    assert delta_warning(1e-5, 60_000) is None
    assert "Lower privacy.delta" in delta_warning(1e-5, 100_000)
    assert "drawn at random" in delta_warning(1e-2, 60_000)
