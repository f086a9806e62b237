"""What several runs cost together: as one long run would, and no ε where there is none."""

import pytest

from dpexp.accounting import Phase, total
from dpexp.budgets import FilterBudget
from dpexp.ledger import Journal, Ledger, charged_phases
from dpexp.price import Charged, price_of
from tests.plans import PCA, plain_plan, private_plan

TERMS = b"t" * 32


def together(*plans):
    return price_of([Charged.whole(plan) for plan in plans])


def test_runs_together_cost_what_one_long_run_costs():
    one, two = private_plan(steps=300, epsilon=None), private_plan(steps=600, epsilon=None)
    for bound in together(one, one).bounds:
        guarantee = two.guarantee
        accountant = next(
            a for a in (guarantee.accountant, *guarantee.companions) if a.name == bound.accountant
        )
        assert float(bound) == float(total(guarantee.open_account(accountant), list(two.phases(600))))
    with_pca = private_plan(steps=300, epsilon=None, releases=(PCA,))
    assert float(together(with_pca).bounds[0]) > float(together(one).bounds[0])


def test_the_price_is_at_the_least_delta_and_never_below_the_dearest_run():
    dear, cheap = private_plan(noise_multiplier=2, delta=1e-6, epsilon=1), private_plan(steps=10)
    price = together(cheap, dear)
    assert price.bounds[0].delta == 1e-6
    assert float(price.bounds[0]) > float(together(dear).bounds[0])
    assert float(together(dear, cheap).bounds[0]) == pytest.approx(float(price.bounds[0]), rel=1e-12)


def test_where_no_epsilon_bounds_all_of_them_the_price_says_why():
    private = private_plan(steps=10, epsilon=None)
    replace_one = private_plan(steps=10, epsilon=None, relation="replace_one")
    filtered = private_plan(steps=10, budget=FilterBudget(order=None))
    for price, words in (
        (together(), "no run"),
        (together(plain_plan(), plain_plan()), "without privacy"),
        (together(private, plain_plan()), "1 of 2 runs are without privacy"),
        (together(private, replace_one), "add_or_remove_one and replace_one"),
        (together(private, filtered), "under a filter"),
    ):
        assert price.bounds == ()
        assert words in price.in_words("All")


def test_the_price_in_words_is_rounded_up_and_says_what_the_best_costs():
    plan = private_plan(steps=10, epsilon=None)
    price = together(plan, plan)
    words = price.in_words("Both")
    assert "2 runs" in words
    assert "publishing only the best of them costs as much" in words
    assert float(words.split("ε ≤ ")[1].split()[0]) >= float(price.bounds[0])
    keyed = private_plan(steps=10, epsilon=None, deterministic=True)
    assert "arithmetic and not a guarantee" in together(plan, keyed).in_words("Both")


def lots_in(phases):
    return sum(phase.lots for phase in phases)


def read(path, plan):
    return charged_phases(path, run_id="r", terms=TERMS, plan=plan)


def test_a_run_that_was_stopped_is_charged_whole_and_what_resumptions_lost_on_top(tmp_path):
    plan, path = private_plan(steps=20, epsilon=None, releases=(PCA,)), tmp_path / "r.ledger"
    with Journal.create(path, run_id="r", terms=TERMS, releases=1) as journal:
        ledger = Ledger(plan)
        ledger.keep(journal)
        ledger.charge(PCA)
        for step in range(5):
            ledger.reserve(plan.step(step))
    whole = read(path, plan)
    assert whole == Charged.whole(plan).phases

    with Journal.open(path, run_id="r", terms=TERMS, known={}) as journal:
        ledger = Ledger.resumed(plan, journal, steps=2, fitted=True)
        lost = ledger.forfeited_lots
        assert lost >= 3
        assert lots_in(read(path, plan)) == 1 + ledger.lots + lots_in(whole)  # it may be stopped for good
        for step in range(2, 20):
            ledger.reserve(ledger.plan.step(step))
        ledger.finish()
    assert lots_in(read(path, plan)) == 1 + 20 + lost
    assert Phase(PCA.event, 1) in read(path, plan)
