"""Noise and lots that change over time, fixed in advance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.budget import Account, Budget, Phase, lots_within, total
from dpexp.accounting.events import Gaussian, PoissonSampled, Relation
from dpexp.accounting.fraction_query import gradient_multiplier_beside_fraction_query, with_fraction_query
from dpexp.accounting.trajectory import trajectory

ADD = Relation.ADD_OR_REMOVE_ONE
quick = settings(max_examples=20, deadline=None, derandomize=True)
accountants = st.sampled_from([MomentsAccountant(), RenyiAccountant()])
phases = st.lists(
    st.builds(
        lambda sigma, q, lots: Phase(step(sigma, q), lots),
        st.floats(0.6, 20),
        st.floats(1e-4, 1),
        st.integers(0, 5000),
    ),
    min_size=1,
    max_size=4,
)


def step(sigma, q=0.01):
    return PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=q)


def account(accountant, epsilon=None):
    return Account(accountant, ADD, Budget(epsilon=epsilon, delta=1e-5))


@quick
@given(phases, accountants)
def test_the_order_of_phases_does_not_change_the_total(schedule, accountant):
    forward = total(account(accountant), schedule)
    assert float(total(account(accountant), schedule[::-1])) == pytest.approx(float(forward), rel=1e-12)


@quick
@given(phases, accountants)
def test_cutting_a_phase_in_two_does_not_change_the_total(schedule, accountant):
    cut = [
        Phase(phase.event, part)
        for phase in schedule
        for part in (phase.lots // 3, phase.lots - phase.lots // 3)
    ]
    whole = float(total(account(accountant), schedule))
    assert float(total(account(accountant), cut)) == pytest.approx(whole, rel=1e-12)


@quick
@given(phases, accountants)
def test_a_schedule_costs_no_more_than_its_worst_phase_throughout(schedule, accountant):
    lots = sum(phase.lots for phase in schedule)
    worst = step(
        min(phase.event.gaussian.noise_multiplier for phase in schedule),
        max(phase.event.sampling_probability for phase in schedule),
    )
    bound = total(account(accountant), [Phase(worst, lots)])
    assert float(total(account(accountant), schedule)) <= float(bound) * (1 + 1e-12)


@quick
@given(phases, st.floats(0.4, 10), accountants)
def test_a_schedule_stops_at_the_lot_its_trajectory_says(schedule, epsilon, accountant):
    curve = trajectory(accountant, ADD, schedule, delta=1e-5)
    assert lots_within(account(accountant, epsilon), schedule) == np.sum(curve <= epsilon)


def test_adaptive_clipping_costs_what_fixed_clipping_of_the_same_multiplier_does():
    # Andrew et al. (2021): the noise on the gradients grows a little to pay for the query.
    needed = gradient_multiplier_beside_fraction_query(4, 10)
    both = with_fraction_query(Gaussian(noise_multiplier=needed), 10)
    adaptive = PoissonSampled(gaussian=both, sampling_probability=0.01)
    accountant = RenyiAccountant()
    plain = float(total(account(accountant), [Phase(step(4), 10_000)]))
    assert float(total(account(accountant), [Phase(adaptive, 10_000)])) == pytest.approx(plain, rel=1e-10)
