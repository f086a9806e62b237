"""The certified tight bound: never below the truth, close to it, and independent of the estimate."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp.accounting import api, contour
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.atoms import (
    Grid,
    fixed_size_atoms,
    opposed_atoms,
    poisson_add_atoms,
    poisson_remove_atoms,
)
from dpexp.accounting.composition import StrongCompositionAccountant
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
from dpexp.accounting.one_release import OneRelease, OpposedRelease
from dpexp.accounting.pairs import FixedSizePair, PairCounts
from dpexp.accounting.pld import PLDAccountant

PLD, EXACT, RDP = PLDAccountant(), ExactAccountant(), RenyiAccountant()
ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE


def poisson(q, sigma, steps):
    lot = PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=q)
    return Repeated(lot, steps)


def fixed_size(q, sigma, steps):
    gaussian = Gaussian(noise_multiplier=sigma)
    return Repeated(FixedSizeSampled(gaussian=gaussian, lot_size=round(q * 1000), population=1000), steps)


def epsilon(accountant, event, delta, relation=ADD):
    return float(accountant.epsilon(accountant.price(event, relation), delta, relation))


def hockey_stick(atoms, eps):
    finite = np.exp(atoms.log_mass) * np.maximum(-np.expm1(eps - atoms.loss), 0)
    return float(finite.sum() + np.exp(atoms.log_infinite))


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 4.0), (0.3, 0.5), (1e-6, 1.0), (0.999, 2.0)])
def test_atoms_dominate_one_release_at_every_epsilon(q, sigma):
    grid = Grid(np.linspace(-9 * sigma, 1 + 9 * sigma, 400), sigma)
    remove, add = poisson_remove_atoms(q, grid), poisson_add_atoms(q, grid)
    one = OneRelease(q=q, sigma=sigma)
    for eps in np.geomspace(1e-3, 3, 9) * q / sigma:
        assert hockey_stick(remove, eps) >= math.exp(one.remove(eps)) * (1 - 1e-12)
        assert hockey_stick(add, eps) >= math.exp(one.add(eps)) * (1 - 1e-12)
        assert hockey_stick(remove, eps) == pytest.approx(math.exp(one.remove(eps)), rel=0.1)


@pytest.mark.parametrize(
    ("make", "low"),
    [(poisson_remove_atoms, -30), (poisson_add_atoms, -30), (opposed_atoms, -30), (fixed_size_atoms, 0.5)],
)
def test_atoms_keep_the_mass_of_both_distributions(make, low):
    atoms = make(0.1, Grid(np.linspace(low, 31, 800), 3.0))
    assert np.exp(atoms.log_mass).sum() == pytest.approx(1, abs=1e-13)
    assert np.exp(atoms.log_mass - atoms.loss).sum() == pytest.approx(1, abs=1e-13)


def test_the_certified_bound_does_not_call_the_estimate(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the certified accountant asked the estimate")

    for name in ("_epsilon", "_log_delta", "_epsilon_of", "_log_delta_of", "_Sum", "quadrature"):
        monkeypatch.setattr(contour, name, refuse)
    monkeypatch.setattr(ExactAccountant, "epsilon", refuse)
    assert epsilon(PLD, poisson(0.0123, 3.21, 4321), 1e-5) > 0
    assert PLD.delta(PLD.price(poisson(0.0123, 3.21, 4321), ADD), 1.0, ADD) > 0


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    log_q=st.floats(-6, -0.01),
    sigma=st.floats(0.4, 20),
    log_steps=st.floats(0, 6),
    log_delta=st.floats(-12, -3),
)
def test_the_certified_bound_is_above_the_exact_figure_and_within_one_percent(
    log_q, sigma, log_steps, log_delta
):
    event, delta = poisson(10**log_q, sigma, int(10**log_steps)), 10**log_delta
    exact, certified = epsilon(EXACT, event, delta), epsilon(PLD, event, delta)
    assert certified >= exact * (1 - 1e-6)  # 1e-6 is what the estimate is good for where it extrapolates
    assert certified <= exact * 1.01 + 1e-4  # the second term: few releases, and an ε of next to nothing


@pytest.mark.parametrize("event", [poisson, fixed_size], ids=["poisson", "without_replacement"])
@pytest.mark.parametrize(
    ("q", "sigma", "steps"), [(0.01, 4.0, 10_000), (0.005, 1.0, 100), (0.2, 3.0, 40), (0.01, 8.0, 3)]
)
def test_under_replace_one_the_certified_bound_is_above_the_exact_figure_and_within_one_percent(
    event, q, sigma, steps
):
    exact = epsilon(EXACT, event(q, sigma, steps), 1e-5, REPLACE)
    certified = epsilon(PLD, event(q, sigma, steps), 1e-5, REPLACE)
    assert exact * (1 - 1e-6) <= certified <= exact * 1.01


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "relation"),
    [
        (0.01, 4.0, 500, ADD),
        (0.01, 4.0, 500, REPLACE),
        (0.2, 1.5, 20, REPLACE),
        (0.001, 0.8, 250, ADD),
        (0.9, 3.0, 5, REPLACE),
    ],
)
def test_dp_accountings_bracket_holds_the_certified_bound(q, sigma, steps, relation):
    way = NeighboringRelation.REPLACE_ONE if relation is REPLACE else NeighboringRelation.ADD_OR_REMOVE_ONE

    def theirs(pessimistic):
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            sigma,
            sampling_prob=q,
            value_discretization_interval=2e-4,
            neighboring_relation=way,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,  # they have no optimistic one
        )
        return loss.self_compose(steps).get_epsilon_for_delta(1e-6)

    ours = epsilon(PLD, poisson(q, sigma, steps), 1e-6, relation)
    assert theirs(pessimistic=False) <= ours <= theirs(pessimistic=True) * 1.0005


@pytest.mark.parametrize("steps", [10**8, 10**9, 10**10])
@pytest.mark.parametrize(("q", "sigma"), [(1e-12, 1.0), (1e-8, 1.0), (1e-4, 8.0), (0.01, 4.0), (0.01, 0.5)])
def test_no_number_of_releases_is_too_large(q, sigma, steps):
    certified, exact = (
        epsilon(PLD, poisson(q, sigma, steps), 1e-6),
        epsilon(EXACT, poisson(q, sigma, steps), 1e-6),
    )
    assert exact * (1 - 1e-6) <= certified <= exact * 1.01 + 1e-9


@pytest.mark.parametrize("log10_delta", [-3, -16, -50, -150, -300])
def test_any_delta_has_a_tight_answer(log10_delta):
    event, delta = poisson(0.01, 4.0, 10_000), 10.0**log10_delta
    exact, certified = epsilon(EXACT, event, delta), epsilon(PLD, event, delta)
    assert exact * (1 - 1e-9) <= certified <= exact * 1.001


def test_delta_of_epsilon_of_delta_is_not_more():
    for event in (
        poisson(0.01, 4.0, 10_000),
        Composed((Gaussian(noise_multiplier=5), poisson(0.1, 2.0, 30))),
    ):
        cost = PLD.price(event, ADD)
        for delta in (1e-3, 1e-7, 1e-12):
            at = float(PLD.epsilon(cost, delta, ADD))
            assert float(PLD.delta(cost, at, ADD)) == pytest.approx(delta, rel=5e-3)


def test_order_and_grouping_of_a_composition_do_not_matter():
    a, b = poisson(0.01, 2.0, 100), poisson(0.02, 4.0, 50)
    whole = epsilon(PLD, Composed((a, b)), 1e-6)
    assert whole == epsilon(PLD, Composed((b, a)), 1e-6)
    halves = Composed((poisson(0.01, 2.0, 40), b, poisson(0.01, 2.0, 60)))
    assert whole == pytest.approx(epsilon(PLD, halves, 1e-6), rel=1e-9)


def test_a_schedule_of_thousands_of_sigmas_takes_seconds_and_stays_within_one_percent():
    sigmas = np.linspace(2, 4, 1500)
    event = Composed(tuple(poisson(0.01, float(sigma), 1) for sigma in sigmas))
    certified = epsilon(PLD, event, 1e-5)
    few = Composed(tuple(poisson(0.01, float(sigma), 50) for sigma in sigmas[25::50]))
    assert epsilon(EXACT, few, 1e-5) * 0.999 <= certified <= epsilon(EXACT, few, 1e-5) * 1.01


def test_where_there_is_no_grid_the_figure_is_that_of_the_moments_or_of_strong_composition():
    bins = BallsAndBins(gaussian=Gaussian(noise_multiplier=4), lots=100, epochs=10)
    assert epsilon(PLD, bins, 1e-5) == epsilon(RDP, bins, 1e-5)
    faint = poisson(0.3, 0.01, 100)
    strong = epsilon(StrongCompositionAccountant(), faint, 1e-5)
    tight = epsilon(PLD, faint, 1e-5)
    assert float(tight) == pytest.approx(float(strong), rel=1e-12)
    assert tight < epsilon(RDP, faint, 1e-5)


@pytest.mark.parametrize("accountant", [PLD, EXACT, RDP], ids=lambda accountant: accountant.name)
def test_edge_cases_have_their_answers(accountant):
    assert epsilon(accountant, poisson(0.0, 4.0, 100), 1e-5) == 0
    assert epsilon(accountant, poisson(0.01, 4.0, 0), 1e-5) == 0
    assert epsilon(accountant, poisson(0.01, 0.0, 1), 1e-5) == math.inf
    assert epsilon(accountant, Composed(()), 1e-5) == 0
    assert epsilon(accountant, poisson(1e-12, 1.0, 10**10), 1e-6) == 0
    assert (
        epsilon(accountant, Partitioned(gaussian=Gaussian(noise_multiplier=4), epochs=0), 1e-5, REPLACE) == 0
    )
    assert float(accountant.delta(accountant.price(poisson(0.01, 0.0, 1), ADD), 1.0, ADD)) == 1
    assert float(accountant.delta(accountant.zero, 1.0, ADD)) == 0


@pytest.mark.parametrize(
    ("sigma", "q", "steps"), [(0.01, 0.3, 100), (0.015, 1e-3, 2), (0.3, 1e-3, 100), (2.0, 0.3, 2)]
)
def test_delta_of_epsilon_of_delta_is_delta_with_and_without_a_grid(sigma, q, steps):
    cost = PLD.price(Composed((Gaussian(noise_multiplier=3), poisson(q, sigma, steps))), ADD)
    for delta in (1e-3, 1e-9):
        at = float(PLD.epsilon(cost, delta, ADD))
        assert float(PLD.delta(cost, at, ADD)) <= delta * 1.01


ONCE = (
    (0.51, 0.000193, 2.32e-6),
    (2.0, 1.78e-4, 1.37e-6),
    (0.05, 0.3, 1e-3),
    (40.0, 0.9, 1e-9),
    (1e3, 0.5, 1e-4),
)


def opposed_oracle(q, sigma, eps):
    """log δ of N(±1) mixtures, by the root of the quadratic, to 200 digits."""
    with mpmath.workdps(200):
        q, s, e = mpmath.mpf(q), mpmath.mpf(sigma), mpmath.exp(mpmath.mpf(eps))
        c, x = mpmath.exp(-1 / (2 * s * s)), (1 - q) * (e - 1)
        z = s * s * mpmath.log((x + mpmath.sqrt(x * x + 4 * e * (q * c) ** 2)) / (2 * q * c))
        above = [mpmath.erfc((z - mean) / s / mpmath.sqrt(2)) / 2 for mean in (0, 1, -1)]
        return float(mpmath.log((1 - q) * above[0] + q * above[1] - e * ((1 - q) * above[0] + q * above[2])))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    q=st.one_of(st.floats(-12, -0.01).map(lambda x: 10**x), st.floats(-14, -1).map(lambda x: 1 - 10**x)),
    sigma=st.floats(-1.5, 5).map(lambda x: 10**x),
    eps=st.one_of(st.just(0.0), st.floats(-10, 2.5).map(lambda x: 10**x)),
)
def test_one_release_under_replace_one_is_the_closed_form_and_its_bound_is_above(q, sigma, eps):
    truth, one = opposed_oracle(q, sigma, eps), OpposedRelease(q=q, sigma=sigma)
    if truth > -690:
        assert truth <= one.log_delta_bound(eps) <= truth + 0.02
        assert one.log_delta(eps) == pytest.approx(truth, abs=1e-4)


@pytest.mark.parametrize(("sigma", "q", "delta"), ONCE)
def test_one_lot_of_fixed_size_has_the_curve_of_removal(sigma, q, delta):
    pairs = PairCounts({FixedSizePair(q=q, sigma=sigma): 1})
    eps = float(PLD.epsilon(pairs, delta, REPLACE))
    assert float(EXACT.epsilon(pairs, delta, REPLACE)) <= eps
    if eps > 0:
        assert OneRelease(q=q, sigma=sigma).remove(eps) == pytest.approx(math.log(delta), rel=1e-6)


@pytest.mark.parametrize(("sigma", "q", "delta"), ONCE)
@pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])
@pytest.mark.parametrize("accountant", ["pld", "exact"])
def test_one_release_costs_no_more_than_two(accountant, sampling, sigma, q, delta):
    run = {"noise_multiplier": sigma, "sampling_probability": q, "delta": delta, "relation": "replace_one"}
    once, twice = (
        float(api.epsilon(**run, steps=steps, sampling=sampling, accountant=accountant)) for steps in (1, 2)
    )
    assert once <= twice * (1 + 1e-6)


def test_one_release_under_replace_one_is_priced_by_its_closed_form():
    run = {"steps": 1, "relation": "replace_one"}
    poisson_lot = {"noise_multiplier": 0.51, "sampling_probability": 0.000193, "delta": 2.32e-6}
    fixed_lot = {"noise_multiplier": 2, "sampling_probability": 1.78e-4, "delta": 1.37e-6}
    for accountant in ("pld", "exact"):
        mixture = api.epsilon(**run, **poisson_lot, accountant=accountant)
        assert float(mixture) == pytest.approx(0.0555613434, rel=1e-6)
        fixed = api.epsilon(**run, **fixed_lot, sampling="without_replacement", accountant=accountant)
        assert float(fixed) == pytest.approx(0.0018272296, rel=1e-6)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("sigma", "steps", "delta"), [(0.325, 2, 0.7), (1.0, 3, 1e-5), (4.0, 100, 1e-8)])
@pytest.mark.parametrize("accountant", [PLD, EXACT], ids=lambda accountant: accountant.name)
def test_epsilon_rises_with_the_sampling_probability_up_to_the_full_batch(
    accountant, sigma, steps, delta, relation
):
    rates = [0.01, 0.1, 0.5, 0.9, 0.99, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1.0]
    curve = [epsilon(accountant, poisson(q, sigma, steps), delta, relation) for q in rates]
    assert all(low <= 1.01 * high for low, high in itertools.pairwise(curve))
    assert curve[-2] == pytest.approx(curve[-1], rel=1e-2)


@pytest.mark.parametrize("accountant", [PLD, EXACT], ids=lambda accountant: accountant.name)
def test_almost_full_sampling_tends_to_the_full_batch(accountant):
    full = epsilon(accountant, Repeated(Gaussian(noise_multiplier=1), 10), 1e-5)
    almost = epsilon(accountant, poisson(1 - 1e-12, 1.0, 10), 1e-5)
    assert almost == pytest.approx(full, rel=1e-9 if accountant is EXACT else 1e-3)
    assert epsilon(accountant, poisson(1.0, 1.0, 10), 1e-5) == full


@pytest.mark.parametrize("accountant", [PLD, EXACT, RDP], ids=lambda accountant: accountant.name)
def test_ints_and_float32_give_the_same_figures_as_floats(accountant):
    wanted = epsilon(accountant, poisson(0.5, 4.0, 10), 1e-5)
    assert epsilon(accountant, poisson(np.float32(0.5), 4, np.int64(10)), 1e-5) == wanted
    assert epsilon(accountant, poisson(0.5, np.float32(4), 10.0), 1e-5) == wanted


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta"),
    [
        (0.9826, 3.1, 2_524_030_187, 3.2e-10),  # ε of 1e8, a thousand times the spread of the loss
        (2.4e-4, 0.514, 37, 6.2e-9),  # a rare and large loss
        (0.00116, 19.0, 7, 3.5e-4),  # δ above the total variation distance
        (0.1418, 7.54, 8, 0.0613),  # the same for replace-one
    ],
)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_unusual_shapes_of_the_loss_have_tight_figures_too(q, sigma, steps, delta, relation):
    event = poisson(q, sigma, steps)
    exact, certified = epsilon(EXACT, event, delta, relation), epsilon(PLD, event, delta, relation)
    assert exact * (1 - 1e-9) <= certified <= exact * 1.001
    assert exact <= epsilon(RDP, event, delta, relation)
