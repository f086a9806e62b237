"""The price of choosing among runs."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import selection
from dpexp.accounting.accountants import MomentsAccountant, RenyiAccountant
from dpexp.accounting.events import Gaussian, PoissonSampled, Relation, Repeated
from dpexp.accounting.gupta import GuptaSearch
from dpexp.accounting.selection import RenyiCurve

ADD = Relation.ADD_OR_REMOVE_ONE
RUN = Repeated(PoissonSampled(gaussian=Gaussian(noise_multiplier=4), sampling_probability=0.01), 10_000)
quick = settings(max_examples=25, deadline=None, derandomize=True)


def golden():
    path = Path(__file__).parents[1] / "golden" / "accounting.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["accountant"] == "select_best"]
    found = []
    for row in rows:
        mean, shape = re.match(r"mean (\d+) runs, shape eta=(\S+)", row["case"]).groups()
        oracle = re.search(r"RepeatAndSelectDpEvent: (\S+)", row["note"]).group(1)
        found.append((float(mean), float(shape), float(row["value"]), float(oracle)))
    return found


def run_on_orders_2_to_128(event=RUN):
    alpha = MomentsAccountant(max_order=127).price(event, ADD).alpha
    lambdas = np.arange(1.0, 128)
    return RenyiCurve(orders=lambdas + 1, divergences=alpha / lambdas, relation=ADD)


def select(run, mean, shape):
    if math.isinf(shape):
        return selection.best_of_poisson(run, mean)
    return selection.best_of_negative_binomial(run, mean, shape)


@pytest.mark.parametrize(("mean", "shape", "value", "library"), golden())
def test_selection_matches_the_golden_value_and_dp_accounting(mean, shape, value, library):
    found = float(select(run_on_orders_2_to_128(), mean, shape).epsilon(1e-5))
    assert found == pytest.approx(value, rel=1e-9)
    assert found >= value * (1 - 1e-12)  # certified: rounded up
    assert found == pytest.approx(library, rel=1e-9)


@pytest.mark.parametrize("shape", [0, 0.5, 1, 3])
def test_selection_agrees_with_dp_accounting_off_the_golden_grid(shape):
    from dp_accounting import dp_event, rdp

    step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(3.0))
    once = dp_event.SelfComposedDpEvent(step, 500)
    accountant = rdp.RdpAccountant(list(range(2, 129)))
    accountant.compose(dp_event.RepeatAndSelectDpEvent(once, 7, shape))
    event = Repeated(PoissonSampled(gaussian=Gaussian(noise_multiplier=3), sampling_probability=0.02), 500)
    ours = select(run_on_orders_2_to_128(event), 7, shape).epsilon(1e-6)
    assert float(ours) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-7)


def test_composing_all_runs_is_naive_composition():
    run = selection.curve_of(RUN, ADD)
    accountant = RenyiAccountant()
    for count, value in ((10, 3.701802), (100, 14.482140)):
        found = float(selection.compose_all(run, count).epsilon(1e-5))
        plain = float(accountant.epsilon(count * accountant.price(RUN, ADD), 1e-5, ADD))
        assert found == pytest.approx(plain, rel=1e-9)
        assert found == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("runs", "rule"),
    [(1, "compose_all"), (2, "select_poisson"), (10, "select_negative_binomial")],
)
def test_the_cheapest_rule_is_compose_then_poisson_then_logarithmic(runs, rule):
    event = Repeated(PoissonSampled(gaussian=Gaussian(noise_multiplier=8), sampling_probability=0.01), 10_000)
    assert selection.cheapest_selection(selection.curve_of(event, ADD), runs, 1e-5).accountant == rule


@quick
@given(st.floats(1, 500), st.floats(1, 500), st.floats(-0.9, 5))
def test_selection_costs_more_than_one_run_and_rises_with_the_number_of_runs(one, other, shape):
    run = selection.curve_of(RUN, ADD)
    low, high = sorted((one, other))
    epsilons = [float(select(run, mean, shape).epsilon(1e-5)) for mean in (1, low, high)]
    assert epsilons[0] <= epsilons[1] * (1 + 1e-11)
    assert epsilons[1] <= epsilons[2] * (1 + 1e-11)
    assert float(run.epsilon(1e-5)) <= epsilons[0]


@quick
@given(st.floats(1.001, 30), st.floats(-0.5, 5))  # below, the tail is longer than the sum here
def test_the_solved_gamma_gives_the_mean_asked_for(mean, shape):
    gamma = math.exp(-selection.log_inverse_gamma(mean, shape))
    k = np.arange(1, 400_000)
    steps = np.log1p((shape - 1) / np.arange(2, 400_000))  # (l+η)/(l+1), l = 1, 2, …
    weights = np.exp(np.concatenate([[0.0], np.cumsum(steps)]) + k * math.log1p(-gamma))
    assert np.sum(k * weights) / np.sum(weights) == pytest.approx(mean, rel=1e-6)


def test_nothing_released_costs_nothing_to_select():
    nothing = selection.curve_of(Repeated(RUN, 0), ADD)
    assert selection.compose_all(nothing, 50).epsilon(1e-5) == 0


def test_infinite_divergence_gives_infinite_epsilon():
    naked = selection.curve_of(Gaussian(noise_multiplier=0), ADD)
    for curve in (
        selection.compose_all(naked, 3),
        selection.best_of_poisson(naked, 3),
        selection.best_of_logarithmic(naked, 3),
    ):
        assert math.isinf(curve.epsilon(1e-5))
    assert selection.compose_all(naked, 0).epsilon(1e-5) == 0


def test_mean_and_shape_out_of_range_are_refused():
    run = selection.curve_of(RUN, ADD)
    for bad in (0.5, -3, math.nan, math.inf):
        with pytest.raises(UserError, match="mean_runs"):
            selection.best_of_poisson(run, bad)
        with pytest.raises(UserError, match="mean_runs"):
            selection.best_of_logarithmic(run, bad)
    with pytest.raises(UserError, match="shape"):
        selection.best_of_negative_binomial(run, 10, -1)


def test_the_papers_search_covers_6700_settings_at_epsilon_4():
    search = GuptaSearch.largest(score_epsilon=0.5, failure=0.05, score_loss=100)
    assert search.settings == 6708  # the paper rounds to 6,700
    assert search.score_loss <= 100
    cost = search.epsilon(2.0, ADD)
    assert float(cost) == 4
    assert cost.kind == "heuristic"


def test_the_papers_search_would_take_absurdly_many_runs():
    hundred = GuptaSearch(score_epsilon=0.5, failure=0.05, settings=100)
    assert hundred.runs == pytest.approx(1.3e8, rel=0.03)
    assert GuptaSearch(score_epsilon=0.5, failure=0.05, settings=6700).runs == pytest.approx(9e11, rel=0.01)
    assert "1.3e+08 training runs" in hundred.warning


def test_a_search_too_precise_for_one_setting_is_refused():
    with pytest.raises(UserError, match="score_loss"):
        GuptaSearch.largest(score_epsilon=0.5, failure=0.05, score_loss=1)
