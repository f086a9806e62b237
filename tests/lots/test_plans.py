"""Plans of every sampler: events are those of what is drawn, epochs are charged whole, or refused."""

import math
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import (
    NOTHING,
    BallsAndBins,
    Composed,
    FixedSizeSampled,
    Kind,
    Partitioned,
    RenyiAccountant,
    Repeated,
    as_accountant,
    lots_within,
    total,
    trajectory,
)
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.ledger import BudgetSpentError, Ledger
from dpexp.lots import BallsAndBinsSampling, FixedSizeSampling, PartitionSampling, PoissonSampling
from dpexp.planning import plan_figures
from dpexp.privacy import NoPrivacy
from dpexp.schedules import Linear, Step
from tests.plans import PER_LAYER, settings

FIXED, PARTITION, BALLS = FixedSizeSampling(), PartitionSampling(), BallsAndBinsSampling()
by_epoch = pytest.mark.parametrize("sampling", [PARTITION, BALLS], ids=lambda sampling: sampling.name)


def plan(sampling, *, num_examples=1000, accountant="rdp", relation="zero_out", **changes):
    keys = {"lot_size": 100, "steps": 25, "epsilon": None, "relation": relation}
    return settings(**(keys | changes)).plan(
        num_examples=num_examples, sampling=sampling, accountant=as_accountant(accountant), releases=()
    )


def epsilon(plan, steps=None):
    account = plan.guarantee.charged_account(plan.guarantee.accountant)
    return float(total(account, list(plan.phases(plan.steps if steps is None else steps))))


def price(plan, event):
    guarantee = plan.guarantee
    cost = guarantee.accountant.price(event, guarantee.relation)
    return float(guarantee.accountant.epsilon(cost, guarantee.budget.delta, guarantee.relation))


@by_epoch
def test_an_epoch_is_charged_whole_at_its_first_lot(sampling):
    made = plan(sampling)
    events = [made.step(t).event for t in range(25)]
    assert [t for t, event in enumerate(events) if event != NOTHING] == [0, 10, 20]
    assert len({event for event in events if event != NOTHING}) == 1
    assert epsilon(made, 10) == epsilon(made, 1) < epsilon(made, 11) == epsilon(made, 20)


def test_epochs_are_priced_as_their_events_say():
    partition, balls = plan(PARTITION), plan(BALLS)
    gaussian = partition.step(0).event.gaussian
    assert epsilon(partition) == price(partition, Partitioned(gaussian=gaussian, epochs=3))
    event = BallsAndBins(gaussian=gaussian, lots=10, epochs=3)
    assert epsilon(balls) == pytest.approx(price(balls, event), rel=1e-12)
    fixed = plan(FIXED)
    event = FixedSizeSampled(gaussian=gaussian, lot_size=100, population=1000)
    assert epsilon(fixed) == pytest.approx(price(fixed, Repeated(event, 25)), rel=1e-12)


@by_epoch
@given(steps=st.integers(1, 60), change=st.integers(1, 4))
def test_phases_are_the_steps(sampling, steps, change):
    sigma = Step(start=6, factor=0.9, every=change, unit="epochs")
    made = plan(sampling, noise_multiplier=sigma, clip_norm=Linear(start=4, end=1, over=37), steps=steps)
    from_phases = [event for phase in made.phases(steps) for event in phase.events()]
    assert from_phases == [made.step(t).event for t in range(steps)]
    assert sum(phase.lots for phase in made.phases(steps)) == steps


@by_epoch
@given(order=st.lists(st.integers(0, 45), min_size=1, max_size=20))
def test_a_step_does_not_depend_on_what_was_asked_before(sampling, order):
    asked = plan(sampling, noise_multiplier=Step(start=6, factor=0.7, every=1, unit="epochs"), steps=46)
    assert [asked.step(t) for t in order] == [replace(asked).step(t) for t in order]


@by_epoch
@hypothesis.settings(max_examples=5)
@given(budget=st.floats(1.5, 4))
def test_a_budget_pays_for_whole_epochs_and_the_ledger_charges_just_them(sampling, budget):
    made = plan(sampling, epsilon=budget, steps=None, noise_multiplier=6)
    assert made.steps % 10 == 0
    assert epsilon(made) <= budget < epsilon(made, made.steps + 1)
    ledger = Ledger(made)
    for t in range(made.steps):
        ledger.reserve(made.step(t))
    assert float(ledger.epsilon()) == pytest.approx(epsilon(made), rel=1e-12)
    with pytest.raises(BudgetSpentError):
        ledger.reserve(made.step(made.steps))


def test_the_trajectory_moves_at_the_first_lot_of_an_epoch():
    made = plan(PARTITION)
    curve = trajectory(RenyiAccountant(), made.guarantee.relation, list(made.phases(25)), delta=1e-5)
    np.testing.assert_allclose(curve, [epsilon(made, t + 1) for t in range(25)], rtol=1e-12)
    assert list(np.flatnonzero(np.diff(curve)) + 1) == [10, 20]


def test_lots_within_a_broken_epoch_are_admitted_to_the_last_configured():
    made = plan(PARTITION, steps=25)
    account = made.guarantee.open_account(made.guarantee.accountant)
    assert lots_within(account, made.phases(25)) == 25


def test_sigma_is_solved_for_whole_epochs():
    solved = plan(PARTITION, noise_multiplier=None, epsilon=2, steps=25)
    whole = plan(PARTITION, noise_multiplier=None, epsilon=2, steps=30)
    assert solved.step(0).groups == whole.step(0).groups
    assert 1.99 < epsilon(solved) <= 2


def test_epochs_are_those_of_the_sampler():
    assert plan(PARTITION, lot_size=300, steps=None, epochs=4).steps == 12  # three lots, 100 rows sit out
    assert plan(PARTITION, lot_size=300, steps=None, epochs=1.5).steps == 5
    assert plan(FIXED, lot_size=300, steps=None, epochs=3).steps == 10
    assert plan(BALLS, lot_size=1000 / 3, steps=None, epochs=4).steps == 12


@by_epoch
def test_groups_on_one_lot_are_joint_and_own_lots_are_epochs_of_their_own(sampling):
    joint = plan(sampling, layers=PER_LAYER)
    assert joint.step(0).event.gaussian.noise_multiplier == pytest.approx(4 / math.sqrt(2))
    layers = {"hidden": {"parameters": "hidden.*", "lot_size": 100}, "output": {"parameters": "output.*"}}
    separate = plan(sampling, layers=layers)
    assert isinstance(separate.step(0).event, Composed)
    assert len(separate.step(0).event.events) == 2
    assert separate.step(1).event == NOTHING


@by_epoch
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lot_size": Linear(start=100, end=200, over=5)}, "come in epochs"),
        ({"layers": {"a": {"parameters": "*", "lot_size": 50}, "b": {"parameters": "?"}}}, "same epoch"),
        ({"noise_multiplier": Linear(start=4, end=5, over=2, unit="epochs")}, "changes at step 1"),
        ({"noise_multiplier": Step(start=4, factor=0.9, every=15)}, "changes at step 15"),
        ({"lot_size": 0}, "privacy.lot_size"),
        ({"lot_size": 1001}, "N = data.num_examples = 1000"),
        ({"epsilon": 0.01}, "what one epoch costs"),
    ],
)
def test_what_has_no_price_by_epoch_is_refused(sampling, changes, message):
    with pytest.raises(UserError) as error:
        plan(sampling, **changes)
    assert message in str(error.value)


def test_sizes_that_are_not_whole_are_refused_where_lots_have_one_size():
    for sampling in (FIXED, PARTITION):
        with pytest.raises(UserError, match="exactly L rows"):
            plan(sampling, lot_size=64.5)
    with pytest.raises(UserError, match="exactly L rows"):
        plan(FIXED, lot_size=Linear(start=100, end=200, over=7))


@pytest.mark.parametrize(
    ("sampling", "relation", "advice"),
    [
        (FIXED, "add_or_remove_one", "privacy.relation=replace_one, zero_out"),
        (PARTITION, "add_or_remove_one", "privacy.relation=zero_out, replace_one"),
        (BALLS, "replace_one", "privacy.relation=add_or_remove_one, zero_out"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_relation_that_has_no_bound_is_refused_with_those_that_have(sampling, relation, advice):
    with pytest.raises(UnsupportedEventError) as error:
        plan(sampling, relation=relation)
    assert advice in str(error.value)


@pytest.mark.parametrize("sampling", [FIXED, PARTITION], ids=lambda sampling: sampling.name)
def test_data_of_another_size_than_declared_are_refused_where_the_price_rests_on_it(sampling):
    plan(sampling).check_rows(1000)
    for rows in (999, 1001):
        with pytest.raises(UserError, match=f"expected {rows} training rows"):
            plan(sampling).check_rows(rows)
    for other in (PoissonSampling(), BALLS):
        plan(other).check_rows(999)


def test_shuffled_lots_at_the_price_of_poisson_are_never_certified():
    figures = plan_figures(plan(PARTITION))
    [as_if] = [bound for bound in figures.at_end if bound.accountant == "as_if_poisson"]
    assert as_if.kind is Kind.HEURISTIC
    assert float(as_if) == epsilon(plan(PoissonSampling()))
    assert float(as_if) < float(figures.at_end[0])
    assert not [b for b in plan_figures(plan(BALLS)).at_end if b.accountant == "as_if_poisson"]


@by_epoch
def test_without_privacy_epochs_are_the_same(sampling):
    made = NoPrivacy(lot_size=100, steps=None, epochs=2).plan(
        num_examples=1000, sampling=sampling, accountant=RenyiAccountant(), releases=()
    )
    assert made.steps == 20
    assert made.step(3).event is None


@pytest.mark.parametrize("name", ["moments", "rdp", "pld", "exact", "gdp", "strong_composition"])
def test_nothing_costs_nothing(name):
    accountant = as_accountant(name)
    made = plan(PARTITION)
    cost = accountant.price(NOTHING, made.guarantee.relation)
    assert float(accountant.epsilon(cost, 1e-5, made.guarantee.relation)) == 0
