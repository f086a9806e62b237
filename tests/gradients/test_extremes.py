"""Numbers whose squares leave float32: no example gets past its clip."""

import pytest
import torch
from torch import nn

from dpexp.gradients import clipped_sum
from dpexp.gradients.clipped import together
from dpexp.gradients.per_example import Factors, Outer, Rows, Whole, norms_of
from dpexp.gradients.rules.product import writing_pays
from dpexp.gradients.total import total


def weighted(outputs, targets):
    return (outputs * targets).flatten(1).sum(dim=1)


def positions(width):
    return nn.Sequential(nn.Linear(width, width), nn.Flatten())


@pytest.mark.parametrize("clip_norm", [1e-6, 1e-5, 1.0])
@pytest.mark.parametrize("scale", [1e-30, 1e-23, 1e-19, 1e-10, 1.0, 1e10, 1e18, 1e19, 1e30])
@pytest.mark.parametrize("activation", [1e-20, 1.0, 1e10, 5e18, 1e19, 1e37])
def test_one_example_contributes_at_most_the_clip_norm_at_any_magnitude(activation, scale, clip_norm):
    model = nn.Linear(4, 3)
    inputs, targets = torch.full((1, 4), activation), torch.full((1, 3), scale)
    found = clipped_sum(model, weighted, inputs, targets, clip_norm=clip_norm)
    contribution = torch.cat([total.double().flatten() for total in found.sums.values()]).norm()
    assert float(contribution) <= clip_norm * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-25, 1e-19, 1.0, 1e19])
@pytest.mark.parametrize("length", [2, 40])
def test_nor_does_one_with_positions(length, scale):
    model = positions(4)
    inputs, targets = torch.full((1, length, 4), 1e15), torch.full((1, 4 * length), scale)
    found = clipped_sum(model, weighted, inputs, targets, clip_norm=1e-5)
    contribution = torch.cat([total.double().flatten() for total in found.sums.values()]).norm()
    assert float(contribution) <= 1e-5 * (1 + 1e-5)


@pytest.mark.parametrize("width", [1023, 1024, 1025, 16_384, 150_528, 10**6])
@pytest.mark.parametrize("constant", [0.7, 0.9, 1e-3])
def test_norms_of_long_rows_of_equal_numbers_are_right_to_a_few_ulps(width, constant):
    row = torch.full((2, width), constant)
    true = float(torch.tensor(constant).double()) * width**0.5
    torch.testing.assert_close(norms_of(row).double(), torch.full((2,), true).double(), rtol=1e-6, atol=0.0)


def test_long_rows_of_tiny_numbers_keep_their_norms():
    row = torch.full((1, 10**6), 1e-20)
    assert float(norms_of(row)) == pytest.approx(1e-17, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norms_of_several_tensors_add_up_at_any_magnitude(scale):
    joint = together([torch.tensor([3 * scale, 0.0]), torch.tensor([4 * scale, scale])])
    assert joint.dtype == torch.float32
    torch.testing.assert_close(joint / scale, torch.tensor([5.0, 1.0]))


@pytest.mark.parametrize("length", [2, 63, 64, 65, 130, 300])
def test_gram_norms_at_any_length(length):
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(3, length, 4, generator=generator),
        torch.rand(3, length, 5, generator=generator),
    )
    factors = Factors(left, right)
    true = (left.double().mT @ right.double()).flatten(1).norm(dim=1)
    torch.testing.assert_close(factors.norms().double(), true, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("tiny", "other"), [(1e-21, 1e10), (1e-25, 1e15)])
def test_gram_norms_where_one_factor_underflows(tiny, other):
    generator = torch.Generator().manual_seed(0)
    left, right = torch.rand(2, 70, 4, generator=generator), torch.rand(2, 70, 5, generator=generator)
    factors = Factors(tiny * left, other * right)
    true = ((tiny * left).double().mT @ (other * right).double()).flatten(1).norm(dim=1)
    torch.testing.assert_close(factors.norms().double(), true, rtol=1e-5, atol=0.0)


def test_uses_in_any_forms_add_up():
    generator = torch.Generator().manual_seed(0)
    left, right = torch.rand(3, 5, generator=generator), torch.rand(3, 4, generator=generator)
    outer, whole = Outer(left, right), Whole(torch.rand(3, 5, 4, generator=generator))
    rows = Rows(torch.tensor([[0, 4], [1, 1], [2, 0]]), torch.rand(3, 2, 4, generator=generator), 5)
    for terms in ([outer, outer], [outer, outer, rows], [rows, outer, outer, whole], [rows, rows]):
        true = torch.stack([term.whole().double() for term in terms]).sum(dim=0)
        found = total(terms)
        torch.testing.assert_close(found.whole().double(), true, rtol=1e-6, atol=1e-6)
        norms = true.flatten(1).norm(dim=1)
        torch.testing.assert_close(found.norms().double(), norms, rtol=1e-6, atol=0.0)
        weights = torch.tensor([1.0, 0.5, 2.0])
        weighted = (weights.double()[:, None, None] * true).sum(dim=0)
        torch.testing.assert_close(found.weighted_sum(weights).double(), weighted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("difference", [1e-2, 1e-4])  # beyond, the sum in float32 itself is lost
def test_rows_and_factors_of_one_table_may_almost_cancel(difference):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 1, 4, generator=generator)
    rows = Rows(torch.tensor([[0], [2]]), values, 3)
    looked_up = torch.nn.functional.one_hot(rows.indices, 3).float()
    terms = [rows, Factors(-looked_up, values * (1 + difference))]
    true = sum(term.whole().double() for term in terms).flatten(1).norm(dim=1)
    torch.testing.assert_close(total(terms).norms().double(), true, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("imbalance", [0.0, 1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-13, 1.0), (1e-19, 1e15), (1e6, 1e6)])
@pytest.mark.parametrize("length", [4, 16])
def test_gram_norms_hold_where_positions_almost_cancel(length, scales, imbalance):
    width, generator = 96, torch.Generator().manual_seed(0)
    assert not writing_pays(length, width, width)
    signs = torch.tensor([1.0, -1.0]).repeat(length // 2)[:, None] + imbalance
    targets = scales[0] * signs * torch.randn(2, 1, width, generator=generator)
    inputs = scales[1] * torch.randn(2, 1, width, generator=generator).expand(2, length, width)
    model = nn.Sequential(nn.Linear(width, width, bias=False), nn.Flatten())
    found = clipped_sum(model, weighted, inputs.clone(), targets.flatten(1), clip_norm=1.0)
    true = (targets.double().mT @ inputs.double()).flatten(1).norm(dim=1)
    rounding = 1e-9 * length * width * scales[0] * scales[1]  # of squares in float64, where all cancels
    torch.testing.assert_close(found.norms.double(), true, rtol=1e-5, atol=rounding)
