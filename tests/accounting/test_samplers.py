"""The sampler × relation × accountant table, and the laws of the pairs it leads to."""

from pathlib import Path

import numpy as np
import pytest

from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.balls_and_bins import add_log_moments, remove_log_moments
from dpexp.accounting.bounds import Kind
from dpexp.accounting.coarsening import _merged, at_most
from dpexp.accounting.composition import (
    StrongCompositionAccountant,
    dwork_rothblum_vadhan,
    naive_composition,
    paper_strong_composition,
)
from dpexp.accounting.contour import ExactAccountant
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Repeated,
)
from dpexp.accounting.gdp import GDPAccountant
from dpexp.accounting.lower import fixed_size_lower, shuffle_lower
from dpexp.accounting.pairs import FixedSizePair, OpposedPair, PairCounts, PoissonPair
from dpexp.accounting.pld import PLDAccountant
from dpexp.accounting.samplers import TABLE, Sampler, rule_of, table_in_markdown

NOISE = Gaussian(noise_multiplier=4)
EVENTS = {
    Sampler.FULL: NOISE,
    Sampler.POISSON: PoissonSampled(gaussian=NOISE, sampling_probability=0.01),
    Sampler.WITHOUT_REPLACEMENT: FixedSizeSampled(gaussian=NOISE, lot_size=10, population=1000),
    Sampler.SHUFFLE: Partitioned(gaussian=NOISE, epochs=3),
    Sampler.BALLS_AND_BINS: BallsAndBins(gaussian=NOISE, lots=100, epochs=3),
}
ACCOUNTANTS = (
    MomentsAccountant(),
    RenyiAccountant(),
    PLDAccountant(),
    ExactAccountant(),
    GDPAccountant(),
    StrongCompositionAccountant(),
)
RDP, PLD, EXACT, STRONG = ACCOUNTANTS[1], ACCOUNTANTS[2], ACCOUNTANTS[3], ACCOUNTANTS[5]
ADD, REPLACE, ZERO = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE, Relation.ZERO_OUT


def epsilon(accountant, event, relation, delta=1e-5):
    return float(accountant.epsilon(accountant.price(event, relation), delta, relation))


def test_the_table_has_every_sampler_under_every_relation_once():
    assert len(TABLE) == len(Sampler) * len(Relation)
    assert {(rule.sampler, rule.relation) for rule in TABLE} == {(s, r) for s in Sampler for r in Relation}
    assert table_in_markdown().count("\n") == len(TABLE) + 1


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda accountant: accountant.name)
@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: f"{rule.sampler}-{rule.relation}")
def test_an_accountant_prices_what_the_table_says_and_refuses_the_rest_by_name(accountant, rule):
    event = Composed((NOISE, Repeated(EVENTS[rule.sampler], 2)))
    if accountant.name in rule.accountants:
        bound = accountant.epsilon(accountant.price(event, rule.relation), 1e-5, rule.relation)
        assert 0 < bound < 1000
        assert bound.kind is accountant.kind
        assert 0 < accountant.delta(accountant.price(event, rule.relation), 1.0, rule.relation) <= 1
    else:
        with pytest.raises(UnsupportedEventError, match=type(EVENTS[rule.sampler]).__name__):
            accountant.price(event, rule.relation)


@pytest.mark.parametrize(
    "rule", [rule for rule in TABLE if rule.accountants], ids=lambda r: f"{r.sampler}-{r.relation}"
)
def test_tighter_certified_accountants_give_smaller_figures(rule):
    event = Repeated(EVENTS[rule.sampler], 200)
    figures = [epsilon(a, event, rule.relation) for a in (PLD, RDP, ACCOUNTANTS[0])]
    assert figures == sorted(figures)
    if STRONG.name in rule.accountants:
        assert epsilon(PLD, event, rule.relation) <= epsilon(STRONG, event, rule.relation)


@pytest.mark.parametrize(("sigma", "steps"), [(4.0, 10_000), (2.0, 1000), (1.0, 50)])
def test_without_replacement_the_upper_bound_is_above_the_lower_one_and_that_above_poisson(sigma, steps):
    noise = Gaussian(noise_multiplier=sigma)
    lot = FixedSizeSampled(gaussian=noise, lot_size=1, population=100)
    poisson = PoissonSampled(gaussian=noise, sampling_probability=0.01)
    lower = float(fixed_size_lower(lot, steps=steps, delta=1e-5))
    assert epsilon(PLD, Repeated(poisson, steps), ADD) < lower < epsilon(PLD, Repeated(lot, steps), REPLACE)


def test_replacing_costs_more_than_adding_and_less_than_twice_the_epsilon_of_group_privacy():
    lot = Repeated(PoissonSampled(gaussian=NOISE, sampling_probability=0.01), 1000)
    for accountant in (PLD, EXACT, RDP):
        assert epsilon(accountant, lot, ADD) < epsilon(accountant, lot, REPLACE)
    both = epsilon(EXACT, lot, ADD, 1e-7)
    assert epsilon(EXACT, lot, REPLACE, 1e-7 * (1 + np.exp(both))) <= 2 * both


def test_a_partition_is_the_gaussian_of_its_epochs():
    for relation, factor in ((ZERO, 1), (REPLACE, 2)):
        gaussian = Gaussian(noise_multiplier=4 / np.sqrt(3) / factor)
        assert epsilon(PLD, EVENTS[Sampler.SHUFFLE], relation) == pytest.approx(
            epsilon(PLD, gaussian, ADD), rel=1e-12
        )


def test_shuffled_lots_at_little_noise_are_provably_worse_than_poisson_lots():
    noise = Gaussian(noise_multiplier=0.5)
    lower = shuffle_lower(Partitioned(gaussian=noise, epochs=1), lots=100, delta=1e-5)
    assert lower.kind is Kind.LOWER
    poisson = Repeated(PoissonSampled(gaussian=noise, sampling_probability=0.01), 100)
    assert float(lower) > 1.5 * epsilon(PLD, poisson, ADD)


@pytest.mark.parametrize(("lots", "sigma"), [(100, 4.0), (10, 1.0), (2, 3.0), (1000, 0.6)])
def test_balls_and_bins_costs_at_most_poisson_one_way_and_about_that_the_other(lots, sigma):
    orders = tuple(range(1, 33))
    remove, add = remove_log_moments(lots, sigma, orders), add_log_moments(lots, sigma, orders)
    poisson = PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=1 / lots)
    assert (remove <= MomentsAccountant().price(Repeated(poisson, lots), ADD).alpha * (1 + 2e-11)).all()
    assert (add > 0).all()
    simulated = np.random.default_rng(0).standard_normal((20_000, lots))
    weight = np.exp(simulated / sigma - 0.5 / sigma**2).mean(axis=1)
    assert np.log(np.mean(1 / weight)) <= add[0] + 5 * np.std(1 / weight) / np.sqrt(20_000)


def test_coarser_levels_cost_more_and_not_much_more():
    sigmas = np.linspace(1, 3, 300)
    fine = PairCounts({PoissonPair(q=0.01, sigma=float(s)): 3 for s in sigmas})
    coarse = at_most(fine, 50)
    assert len(coarse) <= 50
    assert sum(coarse.values()) == 900
    by_moments = [RDP.epsilon(RDP.cost_of(cost), 1e-5, ADD) for cost in (fine, coarse)]
    assert by_moments[0] <= by_moments[1] <= 1.02 * float(by_moments[0])


@pytest.mark.parametrize("pair", [PoissonPair, OpposedPair, FixedSizePair])
@pytest.mark.parametrize("most", [4, 50, 100])
def test_coarser_cells_dominate_what_they_stand_for_and_as_many_are_used_as_there_may_be(pair, most):
    rng = np.random.default_rng(0)
    sigmas, rates = rng.uniform(1, 3, 400), 10 ** rng.uniform(-3, -1, 400)
    fine = [pair(q=q, sigma=s) for q, s in zip(rates.tolist(), sigmas.tolist(), strict=True)]
    for one in (fine, [pair(q=0.01, sigma=each.sigma) for each in fine]):
        merged = _merged(one, most)
        assert most / 2 <= len(set(merged)) <= most
        assert all(new.q >= old.q and new.sigma <= old.sigma for new, old in zip(merged, one, strict=True))


@pytest.mark.parametrize(
    ("rates", "sigmas"),
    [
        (np.linspace(0.01, 0.02, 101), np.linspace(1, 2, 101)),
        (np.geomspace(0.01, 0.03, 150), np.linspace(4, 1, 150)),
    ],
    ids=["both rise", "one falls"],
)
def test_a_joint_ramp_of_rates_and_noise_stays_within_two_percent(rates, sigmas):
    lots = tuple(
        Repeated(PoissonSampled(gaussian=Gaussian(noise_multiplier=s), sampling_probability=q), 10)
        for q, s in zip(rates.tolist(), sigmas.tolist(), strict=True)
    )
    exact, certified = epsilon(EXACT, Composed(lots), ADD), epsilon(PLD, Composed(lots), ADD)
    assert exact <= certified <= 1.02 * exact


def test_the_curves_of_figure_two_are_the_papers_and_the_certified_one():
    for steps, paper, certified in ((10_000, 9.34, 14.18), (40_000, 24.2, 38.0)):
        heuristic = paper_strong_composition(
            sampling_probability=0.01, noise_multiplier=4, steps=steps, delta=1e-5
        )
        assert float(heuristic) == pytest.approx(paper, abs=0.01)
        assert heuristic.kind is Kind.HEURISTIC
        lots = Repeated(EVENTS[Sampler.POISSON], steps)
        assert epsilon(STRONG, lots, ADD) == pytest.approx(certified, abs=0.02)
    assert epsilon(ACCOUNTANTS[0], Repeated(EVENTS[Sampler.POISSON], 10_000), ADD) == pytest.approx(
        1.26, abs=0.005
    )


def test_composition_theorems_are_ordered():
    naive, _ = naive_composition([0.1] * 100, [1e-8] * 100)
    assert naive == pytest.approx(10, rel=1e-9)
    assert dwork_rothblum_vadhan(0.1, 100, 1e-5) < naive


def test_the_limit_of_fixed_size_lots_is_that_of_noisy_sgd():
    lots = Repeated(
        FixedSizeSampled(gaussian=Gaussian(noise_multiplier=40), lot_size=1, population=1000), 100_000
    )
    assert epsilon(ACCOUNTANTS[4], lots, REPLACE) == pytest.approx(epsilon(EXACT, lots, REPLACE), rel=2e-2)


def test_a_lot_size_above_the_population_is_refused():
    with pytest.raises(ValueError, match="lot_size"):
        FixedSizeSampled(gaussian=NOISE, lot_size=11, population=10)


def test_rules_can_be_looked_up():
    assert rule_of(Sampler.SHUFFLE, ADD).accountants == ()


def test_the_documentation_prints_this_table():
    page = Path(__file__).parents[2] / "docs" / "theory" / "sampling.md"
    assert table_in_markdown() in page.read_text(encoding="utf-8")
