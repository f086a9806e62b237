"""What each option of `budget` claims, and what it refuses."""

import pytest

from dpexp.accounting import (
    Account,
    BallsAndBins,
    Budget,
    Composed,
    Gaussian,
    Partitioned,
    Phase,
    PoissonSampled,
    Quantity,
    Relation,
    RenyiAccountant,
    RenyiFilter,
    RenyiOdometer,
    Repeated,
    UnsupportedEventError,
    as_accountant,
    lots_within,
)
from dpexp.accounting.filter_accountant import FilterAccountant, OdometerAccountant
from dpexp.budgets import DatasetBudget, FilterBudget, OdometerBudget
from dpexp.budgets.fitting import smallest_scale, with_more_noise
from dpexp.budgets.lotwise import require_lotwise
from dpexp.ledger import BudgetSpentError, Ledger
from dpexp.planning import plan_figures
from dpexp.schedules import Linear
from tests.budgets.stores import spent
from tests.plans import PCA, private_plan

ADD = Relation.ADD_OR_REMOVE_ONE
LOT = PoissonSampled(gaussian=Gaussian(noise_multiplier=4), sampling_probability=0.01)
TWO = Budget(epsilon=2, delta=1e-5)


def filtered_plan(**changes):
    accountant = changes.pop("accountant", RenyiAccountant())
    return private_plan(accountant=accountant, budget=FilterBudget(), **changes)


def dataset(**changes):
    keys = {"id": "people", "epsilon": 1, "delta": 1e-5, "relation": str(ADD), "orders": None, "wait_s": 30}
    return DatasetBudget(**(keys | changes))


@pytest.mark.parametrize("order", [1, 9, 255])
def test_the_accountant_of_a_filter_admits_no_more_than_the_filter(order):
    oracle = RenyiFilter(budget=TWO, relation=ADD, orders=(order,)).admits(LOT)
    account = Account(FilterAccountant(order=order, budget=TWO), ADD, TWO)
    admitted = lots_within(account, [Phase(LOT, 10**9)])
    assert oracle - 1 <= admitted <= oracle


def test_the_claim_is_the_budget_whatever_was_spent_and_infinite_beyond():
    accountant = FilterAccountant(order=9, budget=TWO)
    little, much = (accountant.price(Repeated(LOT, count), ADD) for count in (1, 10**6))
    assert (float(accountant.epsilon(little, 1e-5, ADD)), accountant.epsilon(much, 1e-5, ADD)) == (
        2,
        float("inf"),
    )
    assert (accountant.delta(little, 2, ADD), accountant.delta(little, 1.9, ADD)) == (1e-5, 1)
    with pytest.raises(ValueError, match="which the filter was made for"):
        accountant.epsilon(little, 1e-6, ADD)


def test_with_t_fixed_a_filter_of_one_order_costs_nothing():
    assert filtered_plan(epsilon=2).steps == private_plan(accountant=RenyiAccountant(), epsilon=2).steps


def test_a_filters_t_can_be_prolonged_to_what_its_order_admits_and_the_claim_stays():
    plan = filtered_plan(epsilon=2, steps=100, releases=(PCA,))
    guarantee = plan.guarantee
    account = guarantee.charged_account(guarantee.accountant)
    assert plan.steps == 100
    assert lots_within(account, [Phase(plan.step(0).event, 10**9)]) == guarantee.terms.longest > 100
    assert float(account.epsilon()) == 2
    assert f"{guarantee.terms.longest:,} lots" in guarantee.terms.statement


def test_the_noise_solved_for_a_filter_is_admitted_to_the_last_lot():
    plan = filtered_plan(epsilon=2, steps=777, noise_multiplier=None, releases=(PCA,))
    assert plan.steps == 777
    assert plan.guarantee.terms.longest < 777 * 1.001
    ledger = Ledger(plan)
    ledger.charge(PCA)
    for index in range(777):
        ledger.reserve(plan.step(index))
    assert float(ledger.epsilon()) == 2


def test_a_schedule_under_a_filter_is_charged_to_the_last_lot_and_not_beyond():
    plan = filtered_plan(epsilon=0.5, noise_multiplier=Linear(start=8, end=4, over=2, unit="epochs"))
    ledger = Ledger(plan)
    for index in range(plan.steps):
        ledger.reserve(plan.step(index))
    with pytest.raises(BudgetSpentError):
        ledger.reserve(plan.step(plan.steps))


def test_figures_that_need_a_t_fixed_beforehand_are_not_given_under_a_filter():
    figures = plan_figures(filtered_plan(epsilon=2, steps=50, releases=(PCA,)))
    assert [bound.accountant for bound in figures.at_end] == ["filter"]
    assert all("fixed beforehand" in refusal.reason for refusal in figures.refusals)
    assert max(float(share.epsilon) for share in figures.shares) < 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": None, "steps": 5}, "budget=odometer says"),
        ({"accountant": as_accountant("pld")}, "accountant = 'pld'"),
        ({"accountant": as_accountant("strong_composition")}, "log moments"),
    ],
)
def test_what_a_filter_cannot_hold_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        filtered_plan(**changes)


@pytest.mark.parametrize(
    "event",
    [
        Partitioned(gaussian=Gaussian(noise_multiplier=4), epochs=1),
        Composed((LOT, Repeated(BallsAndBins(gaussian=Gaussian(noise_multiplier=4), lots=10), 2))),
    ],
)
def test_lots_that_are_drawn_together_are_not_charged_one_by_one(event):
    require_lotwise([Phase(Composed((LOT, Repeated(LOT, 3))), 1)], "filter")
    with pytest.raises(UnsupportedEventError, match="draws the lots of an epoch together"):
        require_lotwise([Phase(LOT, 1), Phase(event, 1)], "filter")


def test_the_odometer_stands_beside_epsilon_and_is_none():
    plan = private_plan(accountant=RenyiAccountant(), budget=OdometerBudget(), epsilon=None, steps=20)
    ledger, oracle = Ledger(plan), RenyiOdometer(delta=1e-5, relation=ADD)
    for index in range(20):
        ledger.reserve(plan.step(index))
        oracle.charge(plan.step(index).event)
    loss = ledger.companions[-1].epsilon()
    assert loss.quantity is Quantity.REALIZED_LOSS
    assert float(loss) == pytest.approx(float(oracle.epsilon()), rel=1e-8)
    assert loss >= oracle.epsilon()
    plain = private_plan(accountant=RenyiAccountant(), epsilon=None, steps=20)
    assert plan.guarantee.accountant == plain.guarantee.accountant
    assert OdometerAccountant().epsilon(OdometerAccountant().zero, 1e-5, ADD) == 0
    with pytest.raises(ValueError, match=r"privacy\.epsilon = 2"):
        private_plan(budget=OdometerBudget(), epsilon=2)


def test_a_plan_that_fits_is_opened_and_spends_nothing_and_one_that_does_not_says_what_would(tmp_path):
    budget = dataset(store=str(tmp_path / "budgets.db"))
    plan = private_plan(
        budget=budget, accountant=RenyiAccountant(), epsilon=None, steps=1000, noise_multiplier=6
    )
    share = budget.open(plan, label="first")
    event = plan.step(0).event
    price = share.totals.price(event)
    share.reserve("lots 1–1000", [Phase(event, 1000)])
    while share.store.read("people")[0].totals.admits(spent(share.store).plus(price, 1000)):
        budget.open(plan, label="next").reserve("lots", [Phase(event, 1000)])
    with pytest.raises(BudgetSpentError, match="does not fit") as refused:
        budget.open(plan, label="one more")
    found, runs, _ = share.store.read("people")
    fit = found.totals.lots_within(found.spent, found.totals.priced([Phase(event, 1000)]))
    assert f"the first {fit:,} of the 1,000" in str(refused.value)
    scale = smallest_scale(found, [Phase(event, 1000)])
    assert found.totals.admits(found.spent.plus(found.totals.price(with_more_noise(event, scale)), 1000))
    assert not found.totals.admits(
        found.spent.plus(found.totals.price(with_more_noise(event, scale * 0.99)), 1000)
    )
    share.give_back("lots 401–1000", [Phase(event, 600)])
    budget.open(plan, label="fits again")
    assert runs[0].label == "first"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 2}, r"budget\.epsilon = 2\.0: expected 1\.0, as on record"),
        ({"epsilon": None}, "as on record"),
        ({"delta": 1e-6}, r"budget\.delta = 1e-06"),
        ({"relation": "zero_out"}, r"budget\.relation = 'zero_out'"),
        ({"orders": [2, 4]}, r"budget\.orders"),
        ({"id": "others", "epsilon": "recorded"}, "has no budget in"),
    ],
)
def test_terms_are_those_on_record(tmp_path, changes, message):
    store = str(tmp_path / "budgets.db")
    plan = private_plan(steps=2, epsilon=None, budget=dataset(store=store))
    dataset(store=store).open(plan, label="first")
    with pytest.raises(ValueError, match=message):
        dataset(store=store, **changes).open(plan, label="second")
    dataset(store=store, epsilon="recorded").open(plan, label="third")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": None}, r"data\.budget_id = None"),
        ({"id": "a b"}, r"data\.budget_id"),
        ({"epsilon": "record"}, "Did you mean recorded"),
        ({"epsilon": 0}, r"budget\.epsilon = 0"),
        ({"orders": [4, 2]}, "increasing"),
        ({"wait_s": 0}, r"budget\.wait_s"),
        ({"relation": None, "delta": None}, "privacy = 'none'"),
    ],
)
def test_mistakes_in_the_group_are_explained(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(store="budgets.db", **changes)


def test_keyed_noise_is_charged_to_no_budget():
    with pytest.raises(ValueError, match=r"privacy\.deterministic"):
        private_plan(steps=2, epsilon=None, budget=dataset(store="x.db"), deterministic=True)
