"""Every accountant at the edges of note 2.5: a number at once, no NaN, no warning, nothing out of order."""

import math

import pytest

from dpexp.accounting import api, registry

RUNS = [
    {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10**10, "delta": 1e-5},
    {"noise_multiplier": 4, "sampling_probability": 1e-12, "steps": 10**10, "delta": 1e-6},
    {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10**4, "delta": 1e-300},
    {"noise_multiplier": 0.05, "sampling_probability": 0.01, "steps": 1, "delta": 1e-5},
    {"noise_multiplier": 1e-8, "sampling_probability": 0.3, "steps": 100, "delta": 1e-5},
    {"noise_multiplier": 1e-160, "sampling_probability": 0.01, "steps": 1, "delta": 1e-5},
    {"noise_multiplier": 0.01, "sampling_probability": 0.3, "steps": 100, "delta": 1e-5},
    {"noise_multiplier": 1e5, "sampling_probability": 0.5, "steps": 10, "delta": 1e-5},
    {"noise_multiplier": 1e5, "sampling_probability": 0.01, "steps": 10**4, "delta": 1e-5},
    {"noise_multiplier": 1e8, "sampling_probability": 0.5, "steps": 10, "delta": 1e-5},
    {"noise_multiplier": 1e150, "sampling_probability": 1e-300, "steps": 10**12, "delta": 1e-5},
    {"noise_multiplier": 4, "sampling_probability": 1 - 1e-12, "steps": 1, "delta": 0.999},
    {"noise_multiplier": 0.5, "sampling_probability": 0.5, "steps": 10**12, "delta": 0.5},
    {"noise_multiplier": 1000, "sampling_probability": 0.01, "steps": 10**6, "delta": 1e-5},
    {"noise_multiplier": 4, "sampling_probability": 1, "steps": 10, "delta": 1e-5},
]


def name(run):
    return "-".join(f"{value:g}" for value in run.values())


@pytest.mark.parametrize("accountant", registry.accountants_by_name)
@pytest.mark.parametrize("run", RUNS, ids=name)
def test_epsilon_is_a_number_at_once(run, accountant):
    assert float(api.epsilon(**run, accountant=accountant)) >= 0


@pytest.mark.parametrize("accountant", registry.accountants_by_name)
@pytest.mark.parametrize("run", RUNS, ids=name)
def test_delta_is_a_probability_at_once(run, accountant):
    arguments = {key: value for key, value in run.items() if key != "delta"}
    assert 1e-300 <= float(api.delta(**arguments, epsilon=1, accountant=accountant)) <= 1


@pytest.mark.parametrize("run", RUNS, ids=name)
def test_no_certified_figure_is_below_the_exact_estimate(run):
    exact = float(api.epsilon(**run, accountant="exact"))
    for accountant in ("moments", "rdp", "pld", "strong_composition"):
        assert float(api.epsilon(**run, accountant=accountant)) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("accountant", registry.accountants_by_name)
def test_nothing_released_costs_nothing_and_no_noise_everything(accountant):
    lots = {"accountant": accountant, "delta": 1e-5}
    assert api.epsilon(**lots, noise_multiplier=4, sampling_probability=0.01, steps=0) == 0
    assert api.epsilon(**lots, noise_multiplier=4, sampling_probability=0, steps=10) == 0
    assert math.isinf(api.epsilon(**lots, noise_multiplier=0, sampling_probability=0.01, steps=10))
    certain = api.delta(
        accountant=accountant, noise_multiplier=0, sampling_probability=0.01, steps=1, epsilon=1
    )
    assert certain == 1


@pytest.mark.parametrize("accountant", registry.accountants_by_name)
def test_solved_noise_and_steps_meet_the_target_under_every_accountant(accountant):
    run = {"sampling_probability": 0.01, "delta": 1e-5, "accountant": accountant}
    sigma = float(api.noise_multiplier(**run, steps=1000, epsilon=1))
    assert float(api.epsilon(**run, steps=1000, noise_multiplier=sigma)) <= 1
    assert float(api.epsilon(**run, steps=1000, noise_multiplier=sigma * 0.999)) > 1
    count = int(api.steps(**run, noise_multiplier=4, epsilon=1))
    assert float(api.epsilon(**run, steps=max(count, 0), noise_multiplier=4)) <= 1
    assert float(api.epsilon(**run, steps=count + 1, noise_multiplier=4)) > 1
