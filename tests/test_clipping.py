import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import Relation
from dpexp.clip_rules import Adaptive, Automatic, Flat
from dpexp.clipping import AutomaticClipping, FlatClipping, clipping_at
from dpexp.gradients import ClipGroup, grouped_clipped_sum
from dpexp.gradients.loop import loop
from dpexp.models import MLP
from dpexp.module import classification_loss

NORMS = st.lists(st.floats(0, 1e30, allow_subnormal=False), min_size=1, max_size=20)
RULES = [Flat(), Automatic(), Adaptive(quantile=0.5, learning_rate=0.2, noise_std=None)]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(norms=NORMS, clip_norm=st.floats(1e-6, 1e6))
def test_clipped_norms_are_at_most_c_under_every_rule(rule, dtype, norms, clip_norm):
    norms = torch.tensor(norms, dtype=dtype)
    factors = clipping_at(rule, clip_norm).factors(norms)
    assert (factors.double() * norms.double() <= clip_norm).all()


@given(NORMS, st.floats(1e-6, 1e6))
def test_clipped_norms_are_at_most_c_and_small_gradients_are_kept(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float32)
    factors = FlatClipping(clip_norm).factors(norms)
    assert (factors.double() * norms.double() <= clip_norm).all()
    assert (factors[norms < clip_norm * (1 - 1e-4)] == 1).all()


@given(NORMS, st.floats(1e-6, 1e6))
def test_large_gradients_are_scaled_to_c_and_not_below(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64)
    clipped = FlatClipping(clip_norm).factors(norms) * norms
    large = norms > clip_norm
    torch.testing.assert_close(clipped[large], torch.full_like(clipped[large], clip_norm))


@given(NORMS, st.floats(1e-6, 1e6))
def test_auto_s_keeps_the_order_of_the_norms(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64).sort().values
    clipped = AutomaticClipping(clip_norm).factors(norms) * norms
    assert (clipped.diff() >= -1e-12 * clip_norm).all()


def test_auto_s_is_the_formula_of_the_paper():
    norms = torch.tensor([0.0, 1e-3, 0.01, 1.0, 50.0], dtype=torch.float64)
    torch.testing.assert_close(AutomaticClipping(3.0).factors(norms), 3 / (norms + 0.01), rtol=1e-13, atol=0)


@given(st.lists(st.floats(1e-3, 1e30), min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_auto_s_tends_to_normalized_gradients_as_gamma_vanishes(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64)
    clipped = AutomaticClipping(clip_norm, stability=1e-15).factors(norms) * norms
    torch.testing.assert_close(clipped, torch.full_like(clipped, clip_norm), rtol=1e-11, atol=0)


def test_auto_s_tends_to_plain_gradients_as_gamma_and_c_grow_together():
    norms = torch.tensor([0.0, 0.3, 20.0], dtype=torch.float64)
    factors = AutomaticClipping(1e9, stability=1e9).factors(norms)
    torch.testing.assert_close(factors, torch.ones_like(norms), rtol=1e-7, atol=0)


@each_rule
def test_infinite_and_nan_norms_get_factor_zero_under_every_rule(rule):
    norms = torch.tensor([torch.inf, torch.nan, 5.0])
    factors = clipping_at(rule, 1.0).factors(norms)
    assert factors[:2].tolist() == [0.0, 0.0]
    assert factors[2] > 0


def test_infinite_and_nan_norms_get_factor_zero_and_an_infinite_c_clips_nothing():
    norms = torch.tensor([torch.inf, torch.nan, 0.0, 5.0])
    assert FlatClipping(1.0).factors(norms).tolist()[:3] == [0.0, 0.0, 1.0]
    assert FlatClipping(torch.inf).factors(norms).tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("clip_norm", [torch.inf, 0.0, -1.0, torch.nan])
def test_auto_s_refuses_a_c_that_bounds_nothing(clip_norm):
    with pytest.raises(UserError, match="clip_norm"):
        AutomaticClipping(clip_norm)


@each_rule
def test_replacing_an_example_moves_the_sum_twice_as_far(rule):
    clipping = clipping_at(rule, 4.0)
    assert clipping.sensitivity(Relation.ADD_OR_REMOVE_ONE) == clipping.sensitivity(Relation.ZERO_OUT) == 4
    assert clipping.sensitivity(Relation.REPLACE_ONE) == 8


@each_rule
@given(
    gradients=st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=2, max_size=2),
    clip_norm=st.floats(0.01, 100),
)
def test_neighbors_differ_by_at_most_the_sensitivity(rule, gradients, clip_norm):
    clipping = clipping_at(rule, clip_norm)
    rows = torch.tensor(gradients, dtype=torch.float64)
    one, other = clipping.factors(rows.norm(dim=1))[:, None] * rows
    rounding = 1 + 1e-12
    for relation in (Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT):
        assert one.norm() <= clipping.sensitivity(relation) * rounding
    assert (one - other).norm() <= clipping.sensitivity(Relation.REPLACE_ONE) * rounding


@each_rule
def test_the_sensitivity_is_reached(rule):
    clipping = clipping_at(rule, 4.0)
    opposite = clipping.factors(torch.tensor([1e9], dtype=torch.float64)) * 1e9 * 2
    assert float(opposite) == pytest.approx(clipping.sensitivity(Relation.REPLACE_ONE), rel=1e-10)


@each_rule
@pytest.mark.parametrize("size", [None, 2])
def test_the_engine_sums_what_a_loop_over_examples_does_under_every_rule(rule, size):
    torch.manual_seed(0)
    model = MLP(6, [5], 3).double()
    inputs, targets = torch.randn(7, 6, dtype=torch.float64), torch.randint(3, (7,))
    names = [name for name, _ in model.named_parameters()]
    groups = [
        ClipGroup(tuple(names[:2]), clipping_at(rule, 0.3)),
        ClipGroup(tuple(names[2:]), clipping_at(rule, 2.0)),
    ]
    found = grouped_clipped_sum(model, classification_loss, inputs, targets, groups, size)
    expected = loop(model, classification_loss, inputs, targets, groups)
    for name in names:
        torch.testing.assert_close(found.sums[name], expected.sums[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("clip_norm", "norm", "factor"), [(1e-40, 1e-39, 0.1), (1e39, 1.0, 1.0), (1e39, math.inf, 0.0)]
)
def test_clip_norms_beyond_the_type_of_the_norms(clip_norm, norm, factor):
    assert float(FlatClipping(clip_norm).factors(torch.tensor([norm]))) == pytest.approx(factor, rel=1e-3)
