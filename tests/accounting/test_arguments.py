"""What every entry does with its arguments: short floats, words for relations, extreme and wrong values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import api, registry, selection
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.budget import Account, Budget, Phase
from dpexp.accounting.composition import paper_strong_composition, strong_composition_epsilon
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    Relation,
    Repeated,
    joint,
)
from dpexp.accounting.filters import RenyiFilter, RenyiOdometer, best_filter_order
from dpexp.accounting.gaussian_filter import GaussianFilter
from dpexp.accounting.grids import directions_of
from dpexp.accounting.lower import fixed_size_lower
from dpexp.accounting.pairs import FixedSizePair, OpposedPair, PoissonPair
from dpexp.accounting.quadrature import quadrature
from dpexp.accounting.samplers import Sampler, dominating_pairs, rule_of
from dpexp.accounting.statement import without_amplification
from dpexp.accounting.trajectory import epsilons_after, trajectory

ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE
FULL = Gaussian(noise_multiplier=1.4269159095608175)
LOT = PoissonSampled(gaussian=FULL, sampling_probability=0.1)
FIXED = FixedSizeSampled(gaussian=FULL, lot_size=1, population=10)
ACCOUNTANTS = {name: registry.as_accountant(name) for name in registry.accountants_by_name}
every_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=lambda each: each.name)
quick = settings(max_examples=10, deadline=None, derandomize=True)


# δ and ε.


@every_accountant
@quick
@given(delta=st.floats(2**-20, 0.5, width=32), event=st.sampled_from([FULL, LOT]))
def test_a_short_float_is_the_float_it_equals_whichever_is_asked_first(accountant, delta, event):
    cost, short = accountant.price(event, ADD), np.float32(delta)
    first, second = accountant.epsilon(cost, short, ADD), accountant.epsilon(cost, float(short), ADD)
    assert (float(first), first.delta) == (float(second), second.delta)
    assert type(first.delta) is float
    assert float(accountant.delta(cost, short, ADD)) == float(accountant.delta(cost, float(short), ADD))


@quick
@given(delta=st.floats(2**-20, 0.5, width=32))
def test_every_function_takes_a_short_float_for_the_float_it_equals(delta):
    moments, pairs = ACCOUNTANTS["rdp"], dominating_pairs("pld", LOT, ADD)
    curve = selection.curve_of(LOT, ADD)
    for entry in (
        lambda at: float(epsilons_after(ACCOUNTANTS["pld"], ADD, FULL, [1], delta=at)[0]),
        lambda at: float(trajectory(moments, ADD, [Phase(LOT, 3)], delta=at)[-1]),
        lambda at: float(moments.epsilons(moments.price(LOT, ADD).alpha[np.newaxis], at)[0]),
        lambda at: strong_composition_epsilon(pairs, at),
        lambda at: float(without_amplification(LOT, delta=at, relation=ADD)),
        lambda at: float(fixed_size_lower(FIXED, steps=3, delta=at)),
        lambda at: float(curve.epsilon(at)),
        lambda at: curve.log_delta(at),
        lambda at: float(RenyiOdometer(delta=at, relation=ADD).delta),
        lambda at: float(
            paper_strong_composition(sampling_probability=0.1, noise_multiplier=2, steps=3, delta=at)
        ),
    ):
        assert entry(np.float32(delta)) == entry(float(np.float32(delta)))


@every_accountant
@pytest.mark.parametrize("bad", [0, 1, 2, -1e-5, math.nan, "1e-5", None, True])
def test_no_accountant_has_an_epsilon_at_what_is_no_delta(accountant, bad):
    with pytest.raises(UserError, match=r"^delta = "):
        accountant.epsilon(accountant.price(LOT, ADD), bad, ADD)


@every_accountant
@pytest.mark.parametrize("bad", [-1, -1e-300, math.nan, math.inf, "1", None])
def test_no_accountant_has_a_delta_at_what_is_no_epsilon(accountant, bad):
    with pytest.raises(UserError, match=r"^epsilon = "):
        accountant.delta(accountant.price(LOT, ADD), bad, ADD)


@every_accountant
@pytest.mark.parametrize("sampling_probability", [0.01, 1])
def test_delta_falls_to_its_floor_and_never_to_zero_as_epsilon_rises(accountant, sampling_probability):
    run = {"noise_multiplier": 4, "sampling_probability": sampling_probability, "steps": 10}
    deltas = [
        float(api.delta(**run, epsilon=epsilon, accountant=accountant)) for epsilon in (1, 1e5, 1e20, 1.7e308)
    ]
    assert deltas == sorted(deltas, reverse=True)
    cost = accountant.price(Repeated(LOT, 10), ADD)  # something was released: δ is not 0
    assert 1e-300 <= deltas[-1] <= 1e-300 * (1 + 1e-12)
    assert 1e-300 <= float(accountant.delta(cost, 1e6, ADD)) <= 1e-300 * (1 + 1e-12)
    assert float(accountant.delta(accountant.zero, 1e6, ADD)) == 0


# The relation.


@every_accountant
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("event", [FULL, LOT, FIXED, Composed((FULL, Repeated(LOT, 2)))], ids=repr)
def test_a_word_is_the_relation_of_that_name_whichever_is_asked_first(accountant, relation, event):
    def answer(each):
        dominating_pairs.cache_clear()
        try:
            cost = accountant.price(event, each)
        except UnsupportedEventError as error:
            return str(error)
        bound = accountant.epsilon(cost, 1e-5, each)
        return float(bound), bound.relation, bound.relation.in_words, float(accountant.delta(cost, 1, each))

    assert answer(str(relation)) == answer(relation)
    assert FULL.effective_multiplier(str(relation)) == FULL.effective_multiplier(relation)


ENTRIES = {
    "account": lambda each: Account(ACCOUNTANTS["pld"], each, Budget(epsilon=1, delta=1e-5)).relation,
    "renyi_filter": lambda each: RenyiFilter(
        budget=Budget(epsilon=3, delta=1e-5), relation=each, orders=(8,)
    ).admits(LOT),
    "gaussian_filter": lambda each: _admitted(
        GaussianFilter(budget=Budget(epsilon=8, delta=1e-5), relation=each)
    ),
    "odometer": lambda each: _odometer(each),
    "filter_order": lambda each: best_filter_order([Phase(LOT, 9)], Budget(epsilon=3, delta=1e-5), each),
    "known_lots": lambda each: float(without_amplification(LOT, delta=1e-5, relation=each)),
    "pairs": lambda each: dominating_pairs("pld", LOT, each),
    "rule": lambda each: rule_of(Sampler.POISSON, each),
    "curve": lambda each: float(selection.curve_of(LOT, each).epsilon(1e-5)),
    "trajectory": lambda each: trajectory(
        ACCOUNTANTS["rdp"], each, [Phase(LOT, 2)], delta=1e-5, before=[FULL]
    ).tolist(),
    "epsilons_after": lambda each: epsilons_after(ACCOUNTANTS["pld"], each, LOT, [2], delta=1e-5).tolist(),
    "api": lambda each: float(
        api.epsilon(noise_multiplier=2, sampling_probability=0.1, steps=2, delta=1e-5, relation=each)
    ),
}


def _admitted(gaussian_filter):
    count = 0
    while gaussian_filter.affords(FULL):
        gaussian_filter.charge(FULL)
        count += 1
    return count


def _odometer(relation):
    odometer = RenyiOdometer(delta=1e-5, relation=relation)
    odometer.charge(LOT)
    return float(odometer.epsilon()), odometer.epsilon().relation.in_words


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_entry_takes_the_word_for_the_relation_and_refuses_another_with_the_one_meant(entry):
    for relation in (ADD, REPLACE):
        assert entry(str(relation)) == entry(relation)
    assert entry("add_or_remove_one") != entry("replace_one")
    with pytest.raises(UserError, match=r"^relation = (?s:.)*Did you mean replace_one"):
        entry("replace_on")


# Extreme and empty.


@every_accountant
@pytest.mark.parametrize("sigma", [5e-324, 1e-200, 1e-90, 1e100, 1e200, 1.7e308])
def test_any_noise_has_an_answer_without_a_warning(accountant, sigma):
    noise = Gaussian(noise_multiplier=sigma)
    for event in (
        noise,
        PoissonSampled(gaussian=noise, sampling_probability=0.1),
        PoissonSampled(gaussian=noise, sampling_probability=1e-200),
        FixedSizeSampled(gaussian=noise, lot_size=1, population=10),
        BallsAndBins(gaussian=noise, lots=10),
    ):
        for relation in Relation:
            for count in (1, 3):
                try:
                    cost = accountant.price(Repeated(event, count), relation)
                except UnsupportedEventError:
                    continue
                assert accountant.epsilon(cost, 1e-5, relation) >= 0
                assert 1e-300 <= float(accountant.delta(cost, 1.0, relation)) <= 1


@every_accountant
@pytest.mark.parametrize("sigma", [0, 1e-200, 1e200])
def test_any_noise_has_a_curve_without_a_warning(accountant, sigma):
    run = {"noise_multiplier": sigma, "sampling_probability": 0.1, "delta": 1e-5, "accountant": accountant}
    assert (api.epsilons(**run, steps=[1, 10]) >= 0).all()


@pytest.mark.parametrize("sigma", [0.026058129105664345, 0.3, 800.0])
@pytest.mark.parametrize("q", [2.5e-9, 0.3, 0.9987601200548933])
@pytest.mark.parametrize("pair", [PoissonPair, OpposedPair, FixedSizePair])
def test_a_side_of_a_pair_without_any_mass_gives_no_warning(pair, q, sigma):
    for direction in directions_of(pair(q=q, sigma=sigma)):
        for log_share in (-20.0, -5000.0):
            assert np.isfinite(quadrature(direction, log_share, 0.0, 0.0).loss).all()
            assert np.isfinite(direction.coarse(log_share).loss).all()


def test_a_loss_far_beyond_every_order_tried_gives_no_warning():
    run = {"noise_multiplier": 816.1862845950238, "sampling_probability": 2.5006486657249715e-09}
    assert 0 <= api.epsilon(**run, steps=13, delta=1.6583121986253338e-12, accountant="pld") < 1e-9


@pytest.mark.parametrize("steps", [10**12 + 1, 2**63, 2**64, 10**30, 1e300])
@every_accountant
def test_more_steps_than_can_be_counted_are_refused(accountant, steps):
    run = {"noise_multiplier": 4, "sampling_probability": 0.01, "accountant": accountant}
    for ask in (
        lambda: api.epsilon(**run, steps=steps, delta=1e-5),
        lambda: api.delta(**run, steps=steps, epsilon=1),
        lambda: api.epsilons(**run, steps=[steps], delta=1e-5),
    ):
        with pytest.raises(UserError, match=r"^steps = "):
            ask()


def test_joint_of_nothing_is_refused_and_of_next_to_no_noise_is_no_noise():
    with pytest.raises(UserError, match="gaussians"):
        joint([])
    for sigma in (0, 5e-324, 1e-310):
        together = joint([Gaussian(noise_multiplier=sigma), Gaussian(noise_multiplier=1)])
        assert together.noise_multiplier <= sigma


def test_releases_in_a_list_are_priced_as_those_in_a_tuple():
    listed, paired = Composed([FULL, LOT]), Composed((FULL, LOT))
    assert listed == paired
    assert dominating_pairs("pld", listed, ADD) == dominating_pairs("pld", paired, ADD)


@pytest.mark.parametrize("accountant", ["moments", "rdp", "gdp"])
def test_a_refusal_that_prints_an_epsilon_says_its_kind(accountant):
    kind = ACCOUNTANTS[accountant].kind
    run = {"delta": 1e-12, "epsilon": 1e-9, "accountant": accountant}
    with pytest.raises(UserError, match=rf"\({kind}, accountant {accountant}\)"):
        api.lot_size(**run, noise_multiplier=0.5, steps=100, num_examples=10)
    if accountant == "moments":  # the others have no floor
        with pytest.raises(UserError, match=rf"\({kind}, accountant {accountant}\)"):
            api.noise_multiplier(**run, sampling_probability=0.01, steps=100)
        with pytest.raises(UserError, match=rf"\({kind}, accountant {accountant}\)"):
            api.sampling_probability(**run, noise_multiplier=0.05, steps=10**12)
