import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, clipped_sum
from dpexp.gradients.functional import functional
from dpexp.gradients.loop import loop
from dpexp.gradients.product_rule import product_rule
from dpexp.models import MLP


def loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


class Reused(nn.Module):
    """One layer called twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(self.layer(self.layer(inputs).tanh()).tanh())


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.output(self.second(self.first(inputs).tanh()).tanh())


class Penalized(nn.Module):
    """A weight that is used outside the call of its layer too."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = self.layer(inputs).tanh()
        return self.output(hidden) * (
            1 + nn.functional.linear(hidden, self.layer.weight).mean(1, keepdim=True)
        )


class InPlace(nn.Module):
    """Activations that overwrite what the hook saw."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.output(self.layer(inputs).relu_())


class Sequences(nn.Module):
    """A linear layer over positions."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.output(self.layer(inputs.view(-1, 3, 2)).tanh().mean(dim=1))


class Scaled(nn.Module):
    """A bare parameter."""

    def __init__(self):
        super().__init__()
        self.scale, self.output = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs * self.scale)


class Unused(nn.Module):
    """A layer that no example reaches."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs)


class Doubled(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


def frozen_first():
    model = MLP(6, [5], 3)
    model.hidden.requires_grad_(False)
    return model


def no_bias():
    return nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False))


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)
    )


def parametrized():
    model = MLP(6, [5], 3)
    nn.utils.parametrizations.weight_norm(model.hidden[0])
    return model


MODELS = {
    "mlp": lambda: MLP(6, [5, 4], 3),
    "linear": lambda: MLP(6, [], 3),
    "no_bias": no_bias,
    "frozen": frozen_first,
    "in_place": InPlace,
    "reused": Reused,
    "tied": Tied,
    "penalized": Penalized,
    "sequences": Sequences,
    "scaled": Scaled,
    "unused": Unused,
    "convolutional": convolutional,
    "parametrized": parametrized,
    "subclass": lambda: nn.Sequential(Doubled(6, 4), nn.Tanh(), nn.Linear(4, 3)),
}


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def batch(size=7, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = 3 * torch.randn(size, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (size,), generator=generator)


def trainable(model):
    return tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)


def assert_equal(found, expected):
    torch.testing.assert_close(dict(found.sums), dict(expected.sums), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.norms, expected.norms, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("physical_batch_size", [None, 1, 2, 100])
@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
@pytest.mark.parametrize("name", MODELS)
def test_the_clipped_sum_is_that_of_a_loop_over_examples(name, clip_norm, physical_batch_size):
    model, (inputs, targets) = make(name), batch()
    found = clipped_sum(
        model, loss, inputs, targets, clip_norm=clip_norm, physical_batch_size=physical_batch_size
    )
    group = ClipGroup(trainable(model), FlatClipping(clip_norm))
    assert_equal(found, loop(model, loss, inputs, targets, [group]))


@pytest.mark.parametrize("name", ["mlp", "linear", "no_bias", "frozen", "in_place"])
def test_plain_linear_models_need_no_per_example_gradient(name):
    model, (inputs, targets) = make(name), batch()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    assert product_rule(model, loss, inputs, targets, [group]) is not None


@pytest.mark.parametrize(
    "name", ["reused", "tied", "penalized", "sequences", "scaled", "parametrized", "subclass"]
)
def test_the_product_rule_steps_back_where_it_does_not_hold(name):
    model, (inputs, targets) = make(name), batch()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    assert product_rule(model, loss, inputs, targets, [group]) is None


@pytest.mark.parametrize("engine", [product_rule, functional], ids=lambda engine: engine.__name__)
def test_groups_clip_by_their_own_norm_and_count_their_own_members(engine):
    model, (inputs, targets) = make("mlp"), batch()
    names = trainable(model)
    members = torch.tensor([1, 0, 1, 1, 0, 0, 1], dtype=torch.bool)
    groups = [
        ClipGroup(tuple(n for n in names if n.endswith("bias")), FlatClipping(0.1), members),
        ClipGroup(tuple(n for n in names if n.endswith("weight")), FlatClipping(2.0), ~members),
    ]
    assert_equal(engine(model, loss, inputs, targets, groups), loop(model, loss, inputs, targets, groups))


def test_weights_and_biases_of_one_layer_may_be_in_different_groups():
    model, (inputs, targets) = make("linear"), batch()
    groups = [ClipGroup((name,), FlatClipping(0.3)) for name in trainable(model)]
    found = product_rule(model, loss, inputs, targets, groups)
    assert_equal(found, loop(model, loss, inputs, targets, groups))


@given(st.integers(0, 9), st.floats(1e-3, 1e3), st.integers(1, 12), st.integers(0, 5))
def test_no_example_moves_the_sum_by_more_than_the_clip_norm(row, clip_norm, size, seed):
    torch.manual_seed(seed)
    model, (inputs, targets) = MLP(6, [5], 3), batch(10, seed)
    inputs = inputs.float() * 10
    row = min(row, 9)
    others = torch.arange(10) != row
    whole = clipped_sum(model, loss, inputs, targets, clip_norm=clip_norm, physical_batch_size=size)
    rest = clipped_sum(model, loss, inputs[others], targets[others], clip_norm=clip_norm)
    difference = [whole.sums[name] - rest.sums[name] for name in whole.sums]
    moved = torch.cat([d.flatten() for d in difference]).double().norm()
    # Float32 sums of ten such vectors round by a few units in the last place.
    assert moved <= clip_norm * (1 + 1e-5) + 1e-5 * float(rest.norms.clamp(max=clip_norm).sum())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e38])
@pytest.mark.parametrize("engine", [product_rule, functional, loop], ids=lambda engine: engine.__name__)
def test_a_non_finite_gradient_contributes_nothing_and_leaves_the_others_alone(engine, bad):
    torch.manual_seed(0)
    model, (inputs, targets) = MLP(6, [5], 3), batch(7)
    inputs = inputs.float()
    inputs[2] = bad
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    found = engine(model, loss, inputs, targets, [group])
    others = torch.arange(7) != 2
    expected = loop(model, loss, inputs[others], targets[others], [group])
    assert not found.norms[0, 2].isfinite()
    torch.testing.assert_close(dict(found.sums), dict(expected.sums))


def test_an_empty_batch_has_zero_sums():
    model = make("mlp")
    found = clipped_sum(model, loss, *batch(0), clip_norm=1.0)
    assert {name: total.shape for name, total in found.sums.items()} == {
        name: model.get_parameter(name).shape for name in trainable(model)
    }
    assert not any(total.any() for total in found.sums.values())
    assert found.norms.shape == (1, 0)


@pytest.mark.parametrize("name", ["mlp", "convolutional"])
def test_a_scalar_loss_is_refused(name):
    with pytest.raises(UserError, match="one value per example"):
        clipped_sum(make(name), cross_entropy, *batch(), clip_norm=1.0)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan")])
def test_an_impossible_clip_norm_is_refused(clip_norm):
    with pytest.raises(UserError, match="clip_norm"):
        clipped_sum(make("mlp"), loss, *batch(), clip_norm=clip_norm)


def test_nothing_is_left_on_the_model():
    model, (inputs, targets) = make("mlp"), batch()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    clipped_sum(model, loss, inputs, targets, clip_norm=1.0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    assert not any(module._forward_hooks for module in model.modules())
