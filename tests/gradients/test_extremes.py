"""Numbers whose squares leave float32: no example gets past its clip."""

import pytest
import torch
from torch import nn

from dpexp.gradients import clipped_sum
from dpexp.gradients.rules.product import writing_pays


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
