"""Adaptive clipping's extra query."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting.events import Gaussian, Relation
from dpexp.accounting.fraction_query import (
    fraction_query,
    gradient_multiplier_beside_fraction_query,
    with_fraction_query,
)

quick = settings(max_examples=100, deadline=None, derandomize=True)


@pytest.mark.parametrize(("z", "needed"), [(1, 1.001252), (4, 4.082483)])
def test_the_gradients_take_a_little_more_noise_to_pay_for_the_query(z, needed):
    assert gradient_multiplier_beside_fraction_query(z, 10) == pytest.approx(needed, abs=1e-6)


@quick
@given(st.floats(0.1, 50), st.floats(0.501, 100))
def test_gradients_and_query_together_cost_what_was_asked(z, ratio):
    needed = gradient_multiplier_beside_fraction_query(z, ratio * z)
    both = with_fraction_query(Gaussian(noise_multiplier=needed), ratio * z).noise_multiplier
    assert z <= both <= z * (1 + 1e-12)


@quick
@given(st.floats(0.1, 50), st.floats(0.1, 100))
def test_replacing_one_changes_gradients_and_bit_twice_as_much(z, noise):
    event = with_fraction_query(Gaussian(noise_multiplier=z), noise)
    inverse = event.effective_multiplier(Relation.REPLACE_ONE) ** -2
    assert inverse == pytest.approx(4 / z**2 + 1 / noise**2, rel=1e-12)


def test_a_query_that_alone_costs_more_is_refused():
    for noise in (2.0, 1.0, 0.0):
        with pytest.raises(UserError, match="count_noise"):
            gradient_multiplier_beside_fraction_query(4, noise)


def test_a_noiseless_query_makes_the_step_noiseless():
    assert with_fraction_query(Gaussian(noise_multiplier=4), 0).noise_multiplier == 0
    assert fraction_query(0.0).noise_multiplier == 0
