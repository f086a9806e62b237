"""The one-liners: round trips, limits, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import api, calibration, registry, schemes
from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.bounds import Kind, Quantity
from dpexp.accounting.events import FixedSizeSampled, Gaussian, Partitioned, Relation

PAPER = {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10_000}
quick = settings(max_examples=15, deadline=None, derandomize=True)
names = st.sampled_from(["moments", "rdp"])
sigmas, probabilities = st.floats(0.5, 30), st.floats(1e-5, 1)


def paper(**changes):
    return {**PAPER, **changes}


def test_the_papers_figure():
    bound = api.epsilon(**PAPER, delta=1e-5)
    assert float(bound) == pytest.approx(1.2585747412527875, rel=1e-12)
    assert (bound.kind, bound.accountant, bound.sampler) == (Kind.CERTIFIED, "moments", "poisson")
    assert (bound.relation, bound.delta, bound.order) == (Relation.ADD_OR_REMOVE_ONE, 1e-5, 19)


def test_log_delta_and_delta_say_the_same():
    by_delta = api.epsilon(**PAPER, delta=1e-5)
    by_log = api.epsilon(**PAPER, log_delta=math.log(1e-5))
    assert float(by_delta) <= float(by_log) <= float(by_delta) * (1 + 1e-12)
    tiny = api.epsilon(**PAPER, log_delta=-300 * math.log(10) + 1e-9, accountant="rdp")
    assert float(tiny) == pytest.approx(9.89266, rel=1e-4)


@quick
@given(sigmas, probabilities, st.integers(1, 10**6), st.floats(-600, -1), names)
def test_delta_of_epsilon_of_delta_is_delta(sigma, q, steps, log_delta, accountant):
    run = {"noise_multiplier": sigma, "sampling_probability": q, "steps": steps, "accountant": accountant}
    epsilon = float(api.epsilon(**run, log_delta=log_delta))
    found = float(api.delta(**run, epsilon=epsilon))
    assert math.log(found) <= log_delta + 1e-9 * abs(log_delta)
    if epsilon > 0 and found >= 1e-290:
        again = float(api.epsilon(**run, delta=min(found, 0.999)))
        assert again == pytest.approx(epsilon, rel=1e-9, abs=1e-12)


@quick
@given(probabilities, st.integers(1, 10**6), st.floats(0.3, 50), names)
def test_solved_noise_meets_the_target_and_a_thousandth_less_does_not(q, steps, epsilon, accountant):
    run = {"sampling_probability": q, "steps": steps, "delta": 1e-5, "accountant": accountant}
    try:
        sigma = api.noise_multiplier(**run, epsilon=epsilon)
    except UserError:  # the largest order's floor
        assert accountant == "moments"
        assert epsilon < -math.log(1e-5) / 32 * 1.001
        return
    assert sigma.quantity is Quantity.NOISE_MULTIPLIER
    assert float(api.epsilon(**run, noise_multiplier=float(sigma))) <= epsilon
    if sigma > 1e-5:
        assert float(api.epsilon(**run, noise_multiplier=float(sigma) * 0.999)) > epsilon


@quick
@given(sigmas, probabilities, st.floats(0.4, 50), names)
def test_solved_steps_are_the_last_within_the_target(sigma, q, epsilon, accountant):
    run = {"sampling_probability": q, "noise_multiplier": sigma, "delta": 1e-5, "accountant": accountant}
    steps = api.steps(**run, epsilon=epsilon)
    assert float(steps) == int(steps)
    assert float(api.epsilon(**run, steps=steps)) <= epsilon
    if steps < 10**12:
        assert float(api.epsilon(**run, steps=steps + 1)) > epsilon


@quick
@given(sigmas, st.integers(1, 10**6), st.floats(0.4, 50), names)
def test_solved_sampling_probability_is_the_largest(sigma, steps, epsilon, accountant):
    run = {"noise_multiplier": sigma, "steps": steps, "delta": 1e-5, "accountant": accountant}
    q = float(api.sampling_probability(**run, epsilon=epsilon))
    assert float(api.epsilon(**run, sampling_probability=q)) <= epsilon
    if q < 1:
        assert float(api.epsilon(**run, sampling_probability=min(q * 1.001, 1))) > epsilon


def test_solved_lot_size_is_the_largest_whole_one():
    run = {"noise_multiplier": 4, "steps": 10_000, "delta": 1e-5, "accountant": "rdp"}
    lot = int(api.lot_size(**run, num_examples=60_000, epsilon=1))
    assert float(api.epsilon(**run, sampling_probability=lot / 60_000)) <= 1
    assert float(api.epsilon(**run, sampling_probability=(lot + 1) / 60_000)) > 1
    with pytest.raises(UserError, match="lots of one row"):
        api.lot_size(**run, num_examples=10, epsilon=0.1)


def test_noise_scale_makes_the_joint_release_meet_the_target():
    run = {"sampling_probability": 0.01, "steps": 1000, "delta": 1e-5, "accountant": "rdp"}
    scale = api.noise_scale(**run, noise_multipliers=[3, 4, 6], epsilon=1)
    joint = float(scale) * (3**-2 + 4**-2 + 6**-2) ** -0.5
    assert float(api.epsilon(**run, noise_multiplier=joint)) <= 1
    assert float(api.epsilon(**run, noise_multiplier=joint * 0.999)) > 1
    assert scale.quantity is Quantity.NOISE_SCALE


@pytest.mark.parametrize("accountant", ["moments", "rdp"])
def test_whole_trajectory_is_epsilon_step_by_step(accountant):
    run = {"noise_multiplier": 4, "sampling_probability": 0.01, "delta": 1e-5, "accountant": accountant}
    curve = api.epsilons(**run, steps=1000)
    some = api.epsilons(**run, steps=[1, 10, 1000])
    assert np.allclose(curve[[0, 9, 999]], some, rtol=1e-12)
    assert some[2] == float(api.epsilon(**run, steps=1000))


def test_trajectory_of_shuffled_lots_rises_once_an_epoch():
    run = {"noise_multiplier": 8, "sampling_probability": 0.01, "delta": 1e-5, "accountant": "rdp"}
    curve = api.epsilons(**run, steps=250, sampling="shuffle", relation="zero_out")
    assert curve.shape == (250,)
    assert set(np.flatnonzero(np.diff(curve))) == {99, 199}


# Limits: note 2.5.


@pytest.mark.parametrize("accountant", ["moments", "rdp"])
@pytest.mark.parametrize("sampling", ["poisson", "full"])
def test_nothing_released_costs_nothing(accountant, sampling):
    q = 1 if sampling == "full" else 0.01
    run = {"noise_multiplier": 4, "accountant": accountant, "sampling": sampling}
    assert api.epsilon(**run, steps=0, sampling_probability=q, delta=1e-5) == 0
    assert api.epsilon(**run, steps=0, sampling_probability=q, delta=0) == 0
    assert api.delta(**run, steps=0, sampling_probability=q, epsilon=0) == 0
    assert np.array_equal(api.epsilons(**run, steps=0, sampling_probability=q, delta=1e-5), [])


def test_no_sampling_probability_means_no_cost_and_no_noise_infinite_cost():
    assert api.epsilon(**paper(sampling_probability=0), delta=1e-5) == 0
    assert api.epsilon(**paper(sampling_probability=0, noise_multiplier=0), delta=1e-5) == 0
    assert math.isinf(api.epsilon(**paper(noise_multiplier=0), delta=1e-5))
    assert math.isinf(api.epsilon(**PAPER, delta=0))
    assert api.delta(**paper(noise_multiplier=0), epsilon=3) == 1
    assert np.array_equal(api.epsilons(**paper(sampling_probability=0), delta=1e-5), np.zeros(10_000))
    assert np.all(np.isinf(api.epsilons(**paper(noise_multiplier=0), delta=1e-5)))


def test_full_lots_need_no_sampling_probability():
    full = api.epsilon(noise_multiplier=4, steps=10, delta=1e-5, sampling="full")
    sampled = api.epsilon(noise_multiplier=4, steps=10, delta=1e-5, sampling_probability=1)
    assert float(full) == pytest.approx(float(sampled), rel=1e-12)
    with pytest.raises(UserError, match="sampling=full"):
        api.epsilon(**PAPER, delta=1e-5, sampling="full")
    with pytest.raises(UserError, match="sampling_probability = None"):
        api.epsilon(noise_multiplier=4, steps=10, delta=1e-5)


@pytest.mark.parametrize("accountant", ["moments", "rdp"])
@pytest.mark.parametrize(
    "run",
    [
        {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10**10, "delta": 1e-5},
        {"noise_multiplier": 4, "sampling_probability": 1e-12, "steps": 10**10, "delta": 1e-6},
        {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10_000, "delta": 1e-300},
        {"noise_multiplier": 0.05, "sampling_probability": 0.01, "steps": 1, "delta": 1e-5},
        {"noise_multiplier": 1e-160, "sampling_probability": 0.01, "steps": 1, "delta": 1e-5},
        {"noise_multiplier": 1e150, "sampling_probability": 1e-300, "steps": 10**12, "delta": 1e-5},
        {"noise_multiplier": 4, "sampling_probability": 1 - 1e-12, "steps": 1, "delta": 0.999},
    ],
)
def test_extreme_but_lawful_arguments_give_a_number(run, accountant):
    bound = api.epsilon(**run, accountant=accountant)
    assert float(bound) >= 0


def test_the_zero_test_sees_that_almost_nothing_was_released():
    run = {"noise_multiplier": 4, "sampling_probability": 1e-12, "steps": 10**10, "delta": 1e-6}
    assert api.epsilon(**run, accountant="rdp") == 0


@pytest.mark.parametrize("integer", [int, np.int32, np.int64, np.float32, np.float64, float])
def test_integers_and_short_floats_give_the_same_answer(integer):
    run = {"steps": integer(1000), "noise_multiplier": integer(4), "sampling_probability": integer(1)}
    assert api.epsilon(**run, delta=1e-5) == api.epsilon(
        noise_multiplier=4.0, sampling_probability=1.0, steps=1000, delta=1e-5
    )


def test_a_float32_means_the_decimal_it_was_typed_as():
    short = {"noise_multiplier": np.float32(1.1), "sampling_probability": np.float32(0.01)}
    assert api.epsilon(**short, steps=1000, delta=np.float32(1e-5)) == api.epsilon(
        noise_multiplier=1.1, sampling_probability=0.01, steps=1000, delta=1e-5
    )


BAD = [
    *[("sampling_probability", bad) for bad in (-0.01, 1.01, math.nan, math.inf, "0.01", True)],
    *[("noise_multiplier", bad) for bad in (-1, math.nan, math.inf, None, "4", 1j)],
    *[("steps", bad) for bad in (-1, 2.5, math.nan, math.inf, None, "10", True)],
    *[("delta", bad) for bad in (-1e-5, 1, 2, math.nan, 1e-301, "1e-5", None)],
    *[("log_delta", bad) for bad in (0, 1, math.nan, -1000)],
    ("accountant", "momentz"),
    ("sampling", "poison"),
    ("relation", "swap_one"),
]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_bad_arguments_are_refused_by_name(name, bad):
    arguments = {**PAPER, "delta": 1e-5, name: bad}
    if name == "log_delta":
        del arguments["delta"]
    with pytest.raises(UserError, match=f"^{name} = "):
        api.epsilon(**arguments)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1"])
def test_bad_targets_are_refused(bad):
    run = {"delta": 1e-5, "epsilon": bad}
    with pytest.raises(UserError, match=r"^epsilon = "):
        api.noise_multiplier(**run, steps=10, sampling_probability=0.1)
    with pytest.raises(UserError, match=r"^epsilon = "):
        api.steps(**run, noise_multiplier=1, sampling_probability=0.1)


def test_a_misspelt_name_is_met_with_a_suggestion():
    with pytest.raises(UserError, match="Did you mean moments"):
        api.epsilon(**PAPER, delta=1e-5, accountant="momentz")


def test_a_target_below_the_largest_orders_floor_is_refused_with_the_floor():
    with pytest.raises(UserError, match=r"above 0\.8635(?s:.)*accountant=rdp"):
        api.noise_multiplier(sampling_probability=0.01, steps=100, epsilon=0.5, delta=1e-12)


def test_solvers_end_where_nothing_is_ever_spent():
    nothing = {"sampling_probability": 0, "delta": 1e-5, "epsilon": 1}
    assert api.noise_multiplier(**nothing, steps=10) <= 1e-5
    assert api.steps(**nothing, noise_multiplier=1) == 10**12
    assert api.steps(noise_multiplier=0, sampling_probability=0.1, delta=1e-5, epsilon=1) == 0
    free = {"noise_multiplier": 4, "steps": 0, "delta": 1e-5, "epsilon": 1}
    assert api.sampling_probability(**free) == 1


def test_solvers_need_few_evaluations():
    calls = []

    def epsilon_at(sigma):
        calls.append(sigma)
        return RenyiAccountant().epsilon(
            RenyiAccountant().price(Gaussian(noise_multiplier=sigma), Relation.ADD_OR_REMOVE_ONE),
            1e-5,
            Relation.ADD_OR_REMOVE_ONE,
        )

    calibration.smallest_noise_multiplier(epsilon_at, 0.7, key="epsilon")
    assert len(calls) <= 20


@quick
@given(st.lists(st.floats(0.01, 5), min_size=2, max_size=2), st.integers(1, 10**9))
def test_most_steps_solves_any_rising_function(pair, solution):
    scale, power = pair
    threshold = scale * solution**power

    def rising(steps):
        return scale * steps**power

    found = calibration.most_steps(rising, threshold * (1 + 1e-13))
    assert rising(found) <= threshold * (1 + 1e-13)
    assert rising(found + 1) > threshold * (1 + 1e-13)


# Sampling by name.


def test_fixed_size_lots_have_exactly_the_share_that_was_typed():
    event = schemes.steps_event(Gaussian(noise_multiplier=1), 0.01, 5, "without_replacement").event
    assert event == FixedSizeSampled(gaussian=Gaussian(noise_multiplier=1), lot_size=1, population=100)
    odd = schemes.steps_event(Gaussian(noise_multiplier=1), 256 / 60_000, 5, "without_replacement").event
    assert odd.sampling_probability == 256 / 60_000


@pytest.mark.parametrize(
    ("q", "steps", "epochs"), [(0.01, 100, 1), (0.01, 101, 2), (1 / 3, 3, 1), (0.3, 4, 2)]
)
def test_a_begun_epoch_of_shuffled_lots_is_a_whole_one(q, steps, epochs):
    event = schemes.steps_event(Gaussian(noise_multiplier=1), q, steps, "shuffle")
    assert event == Partitioned(gaussian=Gaussian(noise_multiplier=1), epochs=epochs)


def test_balls_and_bins_need_a_whole_number_of_bins():
    assert schemes.steps_event(Gaussian(noise_multiplier=1), 0.01, 150, "balls_and_bins").epochs == 2
    with pytest.raises(UserError, match="whole number B"):
        schemes.steps_event(Gaussian(noise_multiplier=1), 0.3, 150, "balls_and_bins")


def test_every_accountant_has_a_name_and_is_itself_an_argument():
    assert registry.as_accountant("moments") == MomentsAccountant()
    own = MomentsAccountant(max_order=8)
    assert registry.as_accountant(own) is own
    assert api.epsilon(**PAPER, delta=1e-5, accountant=own).saturated
    assert set(schemes.SAMPLING) == set(schemes.SAMPLING_IN_WORDS)
