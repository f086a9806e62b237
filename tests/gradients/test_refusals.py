import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, check_model, clipped_sum, explain, grouped_clipped_sum
from dpexp.gradients.loop import loop
from tests.gradients.models import assert_equal, batch, loss, trainable


class Overwriting(nn.Module):
    """Writes into the input of a layer after the layer has read it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = self.first(inputs)
        result = self.second(hidden)
        hidden.add_(1)
        return self.output(result + hidden)


class Hidden(nn.Module):
    """Reentrant checkpoints keep their layers out of the graph."""

    def __init__(self):
        super().__init__()
        self.body, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs.detach().requires_grad_()
        return self.output(checkpoint(self.body, rows, use_reentrant=True))


class Opaque(torch.autograd.Function):
    """A product that no torch function sees."""

    @staticmethod
    def forward(inputs, weight):
        return inputs @ weight

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context, gradient):
        inputs, weight = context.saved_tensors
        return gradient @ weight.T, inputs.T @ gradient


class Sly(nn.Module):
    """Uses a layer's weight once where it is seen and once where it is not."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(Opaque.apply(self.layer(inputs).tanh(), self.layer.weight))


def test_an_input_that_is_overwritten_is_refused_by_the_parameter_that_needs_it():
    with pytest.raises(UserError, match=r"second\.weight"):
        clipped_sum(Overwriting().double(), loss, *batch(), clip_norm=1.0)


def test_an_overwritten_input_does_not_matter_to_a_bias():
    model = Overwriting().double()
    model.second.weight.requires_grad_(False)
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    assert_equal(grouped_clipped_sum(model, loss, *batch(), [group]), loop(model, loss, *batch(), [group]))


def test_a_reentrant_checkpoint_is_refused():
    with pytest.raises(UserError, match="use_reentrant=False"):
        clipped_sum(Hidden().double(), loss, *batch(), clip_norm=1.0)


def test_a_use_that_no_rule_saw_is_not_lost():
    torch.manual_seed(0)
    model = Sly().double()
    group = ClipGroup(trainable(model), FlatClipping(1.0))
    found = grouped_clipped_sum(model, loss, *batch(), [group])
    assert_equal(found, loop(model, loss, *batch(), [group]))
    assert "whole model" in str(explain(model, batch()[0]))


class Turning(nn.Module):
    """Has its examples in another dimension where there are many: the same calls, other arguments."""

    def __init__(self):
        super().__init__()
        self.scale, self.output = nn.Parameter(torch.ones(1)), nn.Linear(6, 3)

    def forward(self, inputs):
        order = (1, 0) if len(inputs) > 3 else (0, 1)
        return self.output((self.scale * inputs.permute(order)).tanh().permute(order))


@pytest.mark.parametrize("rows", [2, 5, 7])  # of six values each: in a square nothing would show
def test_a_batch_that_moves_between_lots_is_followed_or_given_another_way(rows):
    torch.manual_seed(0)
    model = Turning().double()
    inputs, targets = batch(rows)
    group = ClipGroup(trainable(model), FlatClipping(0.1))
    found = grouped_clipped_sum(model, loss, inputs, targets, [group])
    assert_equal(found, loop(model, loss, inputs, targets, [group]))


def test_a_group_of_a_parameter_that_is_not_there_is_refused():
    group = ClipGroup(("first.weigth",), FlatClipping(1.0))
    with pytest.raises(UserError, match="first\\.weigth"):
        grouped_clipped_sum(Overwriting().double(), loss, *batch(), [group])


@pytest.mark.parametrize("name", ["first.weight", "output.bias"])
def test_frozen_parameters_have_no_sum(name):
    model = Overwriting().double().requires_grad_(False)
    model.get_parameter(name).requires_grad_()
    group = ClipGroup((name,), FlatClipping(1.0))
    found = grouped_clipped_sum(model, loss, *batch(), [group])
    assert set(found.sums) == {name}
    assert_equal(found, loop(model, loss, *batch(), [group]))


class Score(nn.Module):
    """Its output is a gradient: the backward pass enters the inside of its layers."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs.detach().requires_grad_()
        energy = self.layer(rows).tanh().square().sum()
        return self.output(torch.autograd.grad(energy, rows, create_graph=True)[0])


class AddedToAView(nn.Module):
    """Its parameter reaches the losses past the result of the call that uses it."""

    def __init__(self):
        super().__init__()
        self.shift, self.output = nn.Parameter(torch.randn(3)), nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs.clone()
        view = rows[:, :3]
        view.add_(self.shift)
        return self.output(rows) + view


class Spectral(nn.Module):
    """Complex numbers in between, whose products conjugate on their way back."""

    def __init__(self):
        super().__init__()
        self.filter, self.mix = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(4, 4, 2))
        self.output = nn.Linear(6, 3)

    def forward(self, inputs):
        waves = torch.fft.rfft(inputs) * torch.view_as_complex(self.filter)
        return self.output(torch.fft.irfft(waves @ torch.view_as_complex(self.mix), n=6))


class Counting(nn.Module):
    """Calls that hold the number of examples."""

    def __init__(self, repeat):
        super().__init__()
        self.token, self.output, self.repeat = nn.Parameter(torch.randn(1, 6)), nn.Linear(6, 3), repeat

    def forward(self, inputs):
        return self.output((self.repeat(self.token, len(inputs)) * inputs).tanh())


class Attending(nn.Module):
    """Keys and values that attention repeats for each example."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, add_bias_kv=True, batch_first=True)
        self.output = nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs[:, None] * torch.ones(1, 4, 1)
        return self.output(self.attention(rows, rows, rows)[0].mean(dim=1))


REPEATS = [
    lambda token, size: token.repeat(size, 1),
    lambda token, size: token.tile(size, 1),
    lambda token, size: torch.broadcast_to(token, (size, 6)),
    lambda token, size: token.repeat_interleave(size, dim=0),
]
ROUNDABOUT = [Score, AddedToAView, Spectral, Attending, *(lambda r=repeat: Counting(r) for repeat in REPEATS)]


@pytest.mark.parametrize("number", range(len(ROUNDABOUT)))
def test_what_the_rules_cannot_follow_goes_another_way_and_passes_the_check(number):
    torch.manual_seed(0)
    model = ROUNDABOUT[number]().double()
    for rows in (7, 3):
        inputs, targets = batch(rows)
        group = ClipGroup(trainable(model), FlatClipping(0.1))
        found = grouped_clipped_sum(model, loss, inputs, targets, [group])
        assert_equal(found, loop(model, loss, inputs, targets, [group]))
    check_model(model.float(), loss, torch.randn(5, 6), torch.randint(3, (5,)), [group])


def test_what_gives_up_inside_no_grad_leaves_gradients_on():
    """Torch functions switch them off and on, and the switch is a call like any other."""

    class Moved(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(6, 3)

        def forward(self, inputs):
            with torch.no_grad():
                if inputs.abs().max() > 100:
                    inputs = (2 * inputs) / 2
                inputs = inputs * 1
            return self.output(inputs)

    model = Moved().double()
    inputs, targets = batch()
    group = ClipGroup(trainable(model), FlatClipping(0.1))
    for rows in (inputs, 100 * inputs):
        found = grouped_clipped_sum(model, loss, rows, targets, [group])
        assert torch.is_grad_enabled()
        assert_equal(found, loop(model, loss, rows, targets, [group]))


@pytest.mark.parametrize("change", ["freeze", "complex"])
def test_parameters_that_have_no_gradient_or_a_complex_one_are_refused_by_name(change):
    model = nn.Sequential(nn.Linear(6, 3))
    group = ClipGroup(trainable(model), FlatClipping(0.1))
    if change == "freeze":
        model.requires_grad_(False)
    else:
        model[0].weight = nn.Parameter(torch.zeros(3, 6, dtype=torch.complex64))
    with pytest.raises(UserError, match=r"0\.weight"):
        grouped_clipped_sum(model, loss, *batch(), [group])


@pytest.mark.parametrize(
    "inputs", [{"rows": torch.zeros(2, 6)}, torch.zeros(2, 6).numpy(), [torch.zeros(6)] * 2]
)
def test_inputs_that_are_not_one_tensor_are_refused(inputs):
    with pytest.raises(UserError, match=r"type of inputs = .*expected one tensor"):
        clipped_sum(nn.Linear(6, 3), loss, inputs, torch.zeros(2, dtype=torch.long), clip_norm=1.0)
