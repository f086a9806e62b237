import pytest
import torch
from torch import nn

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, check_model
from dpexp.models import MLP
from tests.gradients.models import loss, trainable


class CenteredInBatch(nn.Module):
    """Batch normalization in a costume: no parameter, no buffer, no known type."""

    def forward(self, inputs):
        return inputs - inputs.mean(dim=0)


class Memory(nn.Module):
    """Keeps a running mean of what it saw."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, inputs):
        self.seen = 0.9 * self.seen + 0.1 * inputs.detach().mean(dim=0)
        return inputs


def between(*middle):
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 3))


def check(model):
    torch.manual_seed(0)
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    check_model(model, loss, torch.rand(5, 6), torch.randint(3, (5,)), [group])


@pytest.mark.parametrize(
    "model",
    [
        MLP(6, [5], 3),
        between(nn.Dropout(0.5), nn.ReLU()),
        between(nn.LayerNorm(8)),
        between(nn.Unflatten(1, (8, 1)), nn.GroupNorm(4, 8), nn.Flatten()),
    ],
    ids=["mlp", "dropout", "layer_norm", "group_norm"],
)
def test_models_that_keep_examples_apart_pass_unchanged(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(8, affine=False, track_running_stats=False),
        CenteredInBatch(),
        nn.BatchNorm1d(8, affine=False),
        Memory(),
    ],
    ids=["batch_norm", "costume", "running_statistics", "memory"],
)
def test_models_that_mix_examples_are_refused(norm):
    with pytest.raises((UserError, ValueError)) as error:
        check(between(norm))
    assert "GroupNorm or LayerNorm" in str(error.value) or "more than 1 value per channel" in str(error.value)
