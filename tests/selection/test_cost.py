"""One price for the whole: the golden table, dp-accounting, and the dearest point."""

import math
import re

import numpy as np
import pytest

from dpexp.accounting import Gaussian, PoissonSampled, Relation, Repeated
from dpexp.accounting.selection import RenyiCurve, curve_of, maximum
from dpexp.console import shown_up
from dpexp.selection import NegativeBinomial, Poisson
from dpexp.selection.cost import Cost
from dpexp.selection.law import quantile
from tests.accounting.test_selection import golden, run_on_orders_2_to_128
from tests.conftest import REPOSITORY

ADD = Relation.ADD_OR_REMOVE_ONE


def law_of(mean, shape):
    return Poisson(mean_trials=mean) if math.isinf(shape) else NegativeBinomial(mean_trials=mean, shape=shape)


def steps(sigma, q, count):
    return Repeated(PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=q), count)


@pytest.mark.parametrize(("mean", "shape", "value", "library"), golden())
def test_the_price_is_that_of_the_golden_table_and_of_dp_accounting(mean, shape, value, library):
    found = Cost.of(run_on_orders_2_to_128(), law_of(mean, shape), 1e-5)
    assert float(found.whole) == pytest.approx(value, rel=1e-9)
    assert float(found.whole) == pytest.approx(library, rel=1e-9)
    assert float(found.trial) < float(found.whole)


@pytest.mark.parametrize(("mean", "shape"), [(10, 0), (20, 1), (3, math.inf)])
def test_the_price_of_a_space_is_that_of_its_dearest_point_at_each_order(mean, shape):
    from dp_accounting import dp_event, rdp

    # Few loud steps are dear at high orders, many quiet ones at low orders: neither point is the dearest.
    loud, quiet = steps(1.0, 0.001, 100), steps(8.0, 0.05, 3000)
    curves = [run_on_orders_2_to_128(event) for event in (loud, quiet)]
    whole = Cost.of(maximum(curves), law_of(mean, shape), 1e-5).whole
    single = [float(Cost.of(curve, law_of(mean, shape), 1e-5).whole) for curve in curves]
    assert float(whole) >= max(single)
    for curve, event, alone in zip(curves, [(1.0, 0.001, 100), (8.0, 0.05, 3000)], single, strict=True):
        sigma, q, count = event
        step = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma))
        accountant = rdp.RdpAccountant(curve.orders.tolist())
        accountant.compose(
            dp_event.RepeatAndSelectDpEvent(dp_event.SelfComposedDpEvent(step, count), mean, shape)
        )
        library = accountant.get_epsilon(1e-5)
        # Of δ at tiny ε, which the Poisson law asks for, we know Pinsker's bound too.
        at_least = 0.98 if math.isinf(shape) else 1 - 1e-6
        assert at_least * library <= alone <= (1 + 1e-6) * library


def test_the_maximum_is_taken_order_by_order():
    orders = np.array([2.0, 3.0, 4.0])
    first = RenyiCurve(orders=orders, divergences=np.array([1.0, 2.0, 9.0]), relation=ADD)
    second = RenyiCurve(orders=orders, divergences=np.array([3.0, 1.0, 4.0]), relation=ADD)
    assert maximum([first, second]).divergences.tolist() == [3, 2, 9]
    other = RenyiCurve(orders=orders, divergences=first.divergences, relation=Relation.REPLACE_ONE)
    with pytest.raises(ValueError, match="relations"):
        maximum([first, other])


def test_the_best_of_ten_costs_far_less_than_all_ten():
    cost = Cost.of(curve_of(steps(4, 0.01, 10_000), ADD), NegativeBinomial(mean_trials=10), 1e-5)
    assert float(cost.whole) < 0.6 * float(cost.all_of_mean)


def test_the_table_of_the_guide_is_what_is_computed():
    text = (REPOSITORY / "docs" / "guide" / "selection.md").read_text(encoding="utf-8")
    cells = [line.strip("| \n").split(" | ") for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(cells) == 6
    run = curve_of(steps(4, 0.01, 10_000), ADD)
    for mean, everything, poisson, logarithmic, geometric, median, most in cells:
        laws = [law_of(int(mean), shape) for shape in (math.inf, 0, 1)]
        costs = [Cost.of(run, law, 1e-5) for law in laws]
        shown = [shown_up(costs[0].all_of_mean), *(shown_up(cost.whole) for cost in costs)]
        assert [cell.strip("*") for cell in (everything, poisson, logarithmic, geometric)] == shown
        assert [quantile(laws[1], 0.5), quantile(laws[1], 0.99)] == [int(median), int(most.replace(",", ""))]
