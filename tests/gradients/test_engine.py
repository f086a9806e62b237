import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._C import _len_torch_function_stack
from torch.nn.functional import cross_entropy, linear

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, clipped_sum, explain, grouped_clipped_sum
from dpexp.gradients.clipped import weights_of
from dpexp.gradients.functional import functional
from dpexp.gradients.loop import loop
from dpexp.models import MLP
from tests.gradients.models import MODELS, assert_equal, batch, loss, make, trainable

one_pass = grouped_clipped_sum


@pytest.mark.parametrize(("clip_norm", "physical_batch_size"), [(0.5, None), (1e6, 100), (0.5, 1), (0.5, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_the_clipped_sum_is_that_of_a_loop_over_examples(name, clip_norm, physical_batch_size):
    model, (inputs, targets) = make(name), batch()
    group = ClipGroup(trainable(model), FlatClipping(clip_norm))
    found = grouped_clipped_sum(model, loss, inputs, targets, [group], physical_batch_size)
    assert_equal(found, loop(model, loss, inputs, targets, [group]))


@pytest.mark.parametrize("engine", [one_pass, functional], ids=lambda engine: engine.__name__)
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
    found = one_pass(model, loss, inputs, targets, groups)
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
@pytest.mark.parametrize("engine", [one_pass, functional, loop], ids=lambda engine: engine.__name__)
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


class Everywhere(nn.Module):
    """A table tied with a linear layer over positions, a wide convolution, and a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.table, self.cells = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True)
        self.kernel = nn.Conv1d(6, 40, 3, padding=1)

    def forward(self, tokens):
        hidden = self.cells(self.table(tokens))[0]
        hidden = self.kernel(hidden.mT).mT[..., :6]
        return linear(hidden, self.table.weight).logsumexp(dim=1)


@pytest.mark.parametrize("row", [0, 2])
def test_non_finite_rows_leave_no_trace_in_any_form(row):
    torch.manual_seed(0)
    model, tokens, targets = Everywhere(), torch.randint(9, (4, 5)), torch.arange(4) % 3
    scale = torch.ones(4)
    scale[row] = torch.inf
    others = torch.arange(4) != row

    def scaled(outputs, targets):
        return loss(outputs, targets) * scale[: len(targets)]

    found = clipped_sum(model, scaled, tokens, targets, clip_norm=0.5)
    expected = clipped_sum(model, loss, tokens[others], targets[others], clip_norm=0.5)
    assert not found.norms[row].isfinite()
    torch.testing.assert_close(dict(found.sums), dict(expected.sums))


def test_an_infinite_loss_with_a_finite_gradient_counts_for_nothing():
    model, (inputs, targets) = make("mlp"), batch(5)

    def shifted(outputs, targets):
        return loss(outputs, targets) + torch.tensor([0.0, torch.inf, 0.0, 0.0, 0.0])[: len(targets)]

    found = clipped_sum(model, shifted, inputs, targets, clip_norm=0.5)
    others = torch.arange(5) != 1
    expected = clipped_sum(model, loss, inputs[others], targets[others], clip_norm=0.5)
    torch.testing.assert_close(dict(found.sums), dict(expected.sums))


def test_a_gradient_that_is_not_finite_in_one_group_counts_in_none():
    norms = torch.tensor([[1.0, torch.nan, 2.0], [1.0, 1.0, torch.inf]])
    weights = weights_of([ClipGroup(("a",), FlatClipping(1.0)), ClipGroup(("b",), FlatClipping(1.0))], norms)
    assert weights[:, 0].gt(0.99).all()
    assert not weights[:, 1:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wider", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["mlp", "branching", "sequences", "matrices"])
def test_losses_of_a_longer_type_get_no_gradient_past_its_clip(name, dtype, wider):
    model, (inputs, targets) = make(name).to(dtype), batch(1)

    def longer(outputs, targets):
        return 100 * loss(outputs.to(wider), targets)

    found = clipped_sum(model, longer, inputs.to(dtype), targets, clip_norm=1e-2)
    joint = torch.cat([total.double().flatten() for total in found.sums.values()]).norm()
    assert 0.99e-2 < float(joint) <= 1e-2


class TwoTypes(nn.Module):
    """A layer in float32, and one in float64."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 3).double()

    def forward(self, inputs):
        return self.second(self.first(inputs).relu().double())


@pytest.mark.parametrize("engine", [None, functional, loop], ids=["book_keeping", "functional", "loop"])
@pytest.mark.parametrize("split", [False, True], ids=["one_group", "two_groups"])
def test_float32_is_clipped_with_its_own_rounding_beside_float64(split, engine):
    torch.manual_seed(0)
    model, clipping = TwoTypes(), FlatClipping(0.5)
    names = trainable(model)
    groups = [ClipGroup(part, clipping) for part in ([names[:2], names[2:]] if split else [names])]
    for inputs in 30 * torch.randn(200, 1, 64):
        found = grouped_clipped_sum(model, loss, inputs, torch.tensor([1]), groups, engine=engine)
        assert all(found.sums[name].dtype == parameter.dtype for name, parameter in model.named_parameters())
        for group in groups:
            clipped = torch.cat([found.sums[name].double().flatten() for name in group.parameters])
            assert float(clipped.norm()) <= 0.5


def test_modes_of_modules_may_change_between_lots():
    model, (inputs, targets) = Masked().double(), batch(4)
    for mode in (False, True, False, True):
        model.part.train(mode)
        groups = [ClipGroup(trainable(model), FlatClipping(0.5))]
        found = grouped_clipped_sum(model, loss, inputs, targets, groups)
        assert_equal(found, loop(model, loss, inputs, targets, groups))


class Masked(nn.Module):
    """A parameter that is used in another form in each mode of a part."""

    def __init__(self):
        super().__init__()
        self.part, self.scale, self.output = nn.Identity(), nn.Parameter(torch.ones(1, 6)), nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs.shape[0]  # in both modes, so that both make the same calls
        mask = torch.full((rows if self.part.training else 1, 6), 0.5, dtype=inputs.dtype)
        return self.output(inputs * (self.scale * mask))


def test_an_empty_batch_has_zero_sums():
    model = make("mlp")
    found = clipped_sum(model, loss, *batch(0), clip_norm=1.0)
    assert {name: total.shape for name, total in found.sums.items()} == {
        name: model.get_parameter(name).shape for name in trainable(model)
    }
    assert not any(total.any() for total in found.sums.values())
    assert found.norms.shape == (0,)


def test_a_loss_with_a_column_is_told_to_take_it_off():
    model = torch.nn.Linear(6, 3).double()

    def column(outputs, targets):
        return loss(outputs, targets)[:, None]

    with pytest.raises(UserError, match=r"shape \(7, 1\), expected \(7,\).*\n.*squeeze\(1\)"):
        clipped_sum(model, column, *batch(), clip_norm=1.0)


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


def test_nothing_is_left_behind_when_the_loss_fails():
    def failing(outputs, targets):
        raise ZeroDivisionError

    model, (inputs, targets) = make("mlp"), batch()
    with pytest.raises(ZeroDivisionError):
        clipped_sum(model, failing, inputs, targets, clip_norm=1.0)
    assert not any(module._forward_hooks for module in model.modules())
    assert not _len_torch_function_stack()
    assert_equal(
        grouped_clipped_sum(model, loss, inputs, targets, [ClipGroup(trainable(model), FlatClipping(1.0))]),
        loop(model, loss, inputs, targets, [ClipGroup(trainable(model), FlatClipping(1.0))]),
    )


def test_the_norms_of_the_simple_way_in_are_one_for_each_example():
    model, (inputs, targets) = make("mlp"), batch()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    found = clipped_sum(model, loss, inputs, targets, clip_norm=1.0)
    torch.testing.assert_close(found.norms, loop(model, loss, inputs, targets, [group]).norms[0])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_book_keeping_covers_all_but_a_few_models(name):
    model, (inputs, targets) = make(name), batch()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    grouped_clipped_sum(model, loss, inputs, targets, [group])
    whole = any("whole model" in rule for rule in explain(model, inputs).values())
    assert whole == (name == "branched")


def test_the_backward_pass_stops_at_the_lowest_layer_that_trains():
    model, (inputs, targets) = make("mlp"), batch()
    model.hidden.requires_grad_(False)
    seen = []
    inputs.requires_grad_().register_hook(seen.append)
    clipped_sum(model, loss, inputs, targets, clip_norm=1.0)
    assert not seen
    assert inputs.grad is None


def test_a_layer_that_the_user_replaces_is_noticed():
    model, (inputs, targets) = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double(), batch()
    clipped_sum(model, loss, inputs, targets, clip_norm=1.0)
    model[1] = nn.Sequential(nn.LayerNorm(6, elementwise_affine=False), nn.Sigmoid()).double()
    model[2] = nn.Linear(6, 3).double()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    found = grouped_clipped_sum(model, loss, inputs, targets, [group])
    assert_equal(found, loop(model, loss, inputs, targets, [group]))
    assert "whole model" not in str(explain(model, inputs))


@pytest.mark.parametrize("name", ["mlp", "branching"])
def test_a_penalty_in_the_loss_is_refused(name):
    model, (inputs, targets) = make(name), batch()

    def penalized(outputs, targets):
        return loss(outputs, targets) + model.output.weight.square().sum()

    with pytest.raises(UserError, match="penalty"):
        clipped_sum(model, penalized, inputs, targets, clip_norm=1.0)


def test_random_layers_draw_once_for_each_forward_pass():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    inputs, targets = batch()
    clipped_sum(model, loss, inputs, targets, clip_norm=1.0)
    torch.manual_seed(3)
    found = clipped_sum(model, loss, inputs, targets, clip_norm=1e9)
    torch.manual_seed(3)
    loss(model(inputs), targets).sum().backward()
    torch.testing.assert_close(dict(found.sums), {n: p.grad for n, p in model.named_parameters()})
