"""Figures that know their kind."""

import copy
import itertools
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.events import Relation
from dpexp.console import shown_up

quick = settings(max_examples=200, deadline=None, derandomize=True)


def bound(value, kind=Kind.CERTIFIED, **attributes):
    attributes = {"delta": 1e-5, **attributes}
    return PrivacyBound(value, kind=kind, accountant="rdp", relation=Relation.ADD_OR_REMOVE_ONE, **attributes)


def test_a_bound_is_a_float():
    assert bound(2.5) + 1 == 3.5
    assert math.sqrt(bound(4)) == 2
    assert bound(2) < 3
    assert max(bound(1), bound(2)) == 2
    assert f"{bound(1.25):.1f}" == "1.2"


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(Kind, 2)))
def test_comparing_two_kinds_is_an_error(one, other):
    for compare in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        with pytest.raises(TypeError, match=f"{one}.*{other}"):
            getattr(bound(1, one), compare)(bound(2, other))
    with pytest.raises(TypeError):
        min(bound(1, one), bound(2, other))


def test_comparing_an_epsilon_with_a_delta_is_an_error():
    with pytest.raises(TypeError, match=r"epsilon.*delta"):
        _ = bound(1) < bound(0.5, delta=None)


def test_quantity_follows_from_delta_unless_it_is_said():
    assert bound(1).quantity is Quantity.EPSILON
    assert bound(1, delta=None).quantity is Quantity.DELTA
    assert bound(1, quantity=Quantity.STEPS).quantity is Quantity.STEPS


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles_keep_everything(clone):
    original = bound(1.5, Kind.ESTIMATE, order=7, saturated=True, sampler="poisson")
    twin = clone(original)
    assert twin == original
    assert vars(twin) == vars(original)


def test_described_replaces_attributes_and_keeps_the_rest():
    changed = bound(1.5, order=3).described(sampler="shuffle")
    assert (float(changed), changed.order, changed.sampler) == (1.5, 3, "shuffle")


def test_a_figure_from_the_last_order_says_so_and_which_accountants_have_more():
    assert bound(1, order=7).warning is None
    assert "λ = 32, is the last one" in bound(1, order=32, saturated=True).warning
    for accountant, tighter in (("moments", "rdp or pld"), ("rdp", "pld")):
        last = bound(1, order=32, saturated=True).described(accountant=accountant)
        assert last.warning.endswith(f"Set accountant={tighter}.")


@pytest.mark.parametrize(
    ("value", "words"), [(1.0773258, "1.0774"), (0.70567, "0.7057"), (2.0, "2"), (12.34567, "12.35")]
)
def test_a_figure_in_print_agrees_with_tables_of_four_decimals(value, words):
    found = bound(value).in_print
    assert found == words
    assert float(found) >= value
    assert value >= 10 or float(shown_up(value)) == float(found)


@pytest.mark.parametrize("bad", [-1e-300, math.nan, -math.inf])
def test_a_figure_below_zero_or_undefined_cannot_be_built(bad):
    with pytest.raises(ValueError, match="found"):
        bound(bad)


@quick
@given(st.floats(0, 1e300), st.integers(1, 12))
def test_rounding_for_print_never_goes_down_and_stays_close(value, digits):
    printed = float(bound(value).rounded_up(digits))
    assert value <= printed <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15) + 1e-320


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2585747, "1.26"),
        (9.3404, "9.35"),
        (2, "2"),
        (1e-5, "1e-5"),
        (123456, "124000"),
        (0, "0"),
        (math.inf, "∞"),
    ],
)
def test_printed_figures_look_like_this(value, text):
    assert bound(value).rounded_up(3) == text
