import pytest

from dpexp.accounting import PoissonSampled, Repeated
from dpexp.ledger import BudgetSpentError, Ledger
from dpexp.schedules import Step
from tests.plans import PCA, PER_LAYER, plain_plan, private_plan


def test_every_lot_of_the_plan_can_be_charged_and_not_one_more():
    plan = private_plan(noise_multiplier=1, epsilon=3, releases=(PCA,), layers=PER_LAYER)
    ledger = Ledger(plan)
    ledger.charge(PCA)
    for t in range(plan.steps):
        ledger.reserve(plan.step(t))
    assert ledger.lots == plan.steps
    assert ledger.releases == ["dp_pca"]
    assert float(ledger.epsilon()) <= 3
    with pytest.raises(BudgetSpentError, match="not paid for"):
        ledger.reserve(plan.step(plan.steps))
    assert ledger.lots == plan.steps  # what was refused was not charged


def test_a_solved_plan_can_be_charged_to_its_last_lot():
    plan = private_plan(noise_multiplier=None, steps=777, epsilon=1.5, layers=PER_LAYER)
    ledger = Ledger(plan)
    for t in range(777):
        ledger.reserve(plan.step(t))
    assert ledger.lots == 777


def test_epsilon_after_each_lot_is_that_of_so_many_lots():
    plan = private_plan(steps=50)
    ledger = Ledger(plan)
    accountant, relation = plan.guarantee.accountant, plan.guarantee.relation
    for t in range(50):
        ledger.reserve(plan.step(t))
        cost = accountant.price(Repeated(plan.step(0).event, t + 1), relation)
        assert float(ledger.epsilon()) == pytest.approx(
            float(accountant.epsilon(cost, 1e-5, relation)), rel=1e-12
        )


def test_a_lot_that_releases_other_than_it_was_priced_as_is_refused(monkeypatch):
    plan = private_plan(steps=5, noise_multiplier=Step(start=8, factor=0.5, every=2))
    monkeypatch.setattr(Step, "changes_after", lambda self, lot, epoch: lot + 3)  # a schedule that lies
    ledger = Ledger(plan)
    for t in range(2):
        ledger.reserve(plan.step(t))
    plan.step(4)  # forgets the stretch in which the lie was consistent
    with pytest.raises(RuntimeError, match="was priced as"):
        ledger.reserve(plan.step(2))
    assert ledger.lots == 2


def test_where_a_schedule_lies_what_runs_is_what_was_priced(monkeypatch):
    plan = private_plan(steps=5, noise_multiplier=Step(start=8, factor=0.5, every=2))
    monkeypatch.setattr(Step, "changes_after", lambda self, lot, epoch: lot + 3)
    ledger, steps = Ledger(plan), [plan.step(t) for t in range(5)]
    for step in steps:
        ledger.reserve(step)
    priced = [event for phase in plan.phases(5) for event in phase.events()]
    assert [step.event for step in steps] == priced


def test_a_lot_of_another_plan_is_not_charged():
    ledger = Ledger(private_plan(steps=5))
    with pytest.raises(ValueError, match="next lot is 0"):
        ledger.reserve(private_plan(steps=5, clip_norm=3).step(0))
    assert ledger.lots == 0


def test_lots_are_charged_in_order_and_once():
    plan = private_plan(steps=5)
    ledger = Ledger(plan)
    ledger.reserve(plan.step(0))
    for wrong in (0, 2):
        with pytest.raises(ValueError, match="next lot is 1"):
            ledger.reserve(plan.step(wrong))


def test_without_privacy_lots_are_counted_and_there_is_no_epsilon():
    plan = plain_plan()
    ledger = Ledger(plan)
    ledger.reserve(plan.step(0))
    assert ledger.lots == 1
    assert ledger.account is None
    with pytest.raises(ValueError, match="no ε"):
        ledger.epsilon()


def test_the_release_charged_is_the_lot_drawn():
    plan = private_plan(steps=5)
    step = plan.step(3)
    assert isinstance(step.event, PoissonSampled)
    assert step.event.sampling_probability == step.lots[0].sampling_probability
    assert step.event.gaussian.noise_multiplier == step.groups[0].noise_std / step.groups[0].clip_norm
