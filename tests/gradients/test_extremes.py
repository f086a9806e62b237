"""Numbers whose squares leave float32: no example gets past its clip."""

import pytest
import torch
from torch import nn

from dpexp.gradients import clipped_sum


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
