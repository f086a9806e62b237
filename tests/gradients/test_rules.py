import importlib
import math
from functools import partial
from math import prod

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils import _pytree

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, clipped_sum, explain, grouped_clipped_sum
from dpexp.gradients.interception import Interception
from dpexp.gradients.loop import loop
from dpexp.gradients.rules.product import chunks
from tests.gradients.models import assert_equal, trainable


class Head(nn.Module):
    """A layer, then random but fixed projections to a loss that is not linear in its outputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        outputs = self.layer(inputs)
        return (outputs[0] if isinstance(outputs, tuple) else outputs).flatten(1)


def curved_loss(outputs, targets):
    weights = torch.linspace(-1, 2, outputs.shape[1], dtype=outputs.dtype)
    return ((outputs * weights).tanh() + 0.1 * outputs.square()).sum(dim=1) * (1 + targets)


def check(layer, inputs, by_torch_func=False, size=None):
    """The engine equals the loop, and the layer goes by its own rule."""
    torch.manual_seed(0)
    model = Head(layer).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    targets = torch.arange(len(inputs)) % 3
    groups = [ClipGroup(trainable(model), FlatClipping(2.0))]
    found = grouped_clipped_sum(model, curved_loss, inputs, targets, groups, size)
    assert_equal(found, loop(model, curved_loss, inputs, targets, groups))
    rules = set(explain(model, inputs).values())
    assert any("torch.func" in rule for rule in rules) == by_torch_func, rules


def rows(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


sizes = st.integers(1, 3)


@given(st.lists(st.integers(1, 6), max_size=3), st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_linear_layers_over_any_leading_dimensions(between, in_features, out_features, bias):
    check(nn.Linear(in_features, out_features, bias), rows(4, *between, in_features))


@pytest.mark.parametrize(("length", "width"), [(1, 40), (3, 40), (40, 3), (70, 70)])
def test_both_forms_of_a_linear_layer_over_positions(length, width):
    check(nn.Linear(width, width + 1), rows(3, length, width), size=2)


@settings(max_examples=60)
@given(
    st.integers(1, 3), sizes, sizes, sizes, st.integers(0, 2), sizes, sizes, sizes, st.booleans(), st.data()
)
def test_convolutions(dims, groups, ins, outs, padding, stride, dilation, window, bias, data):
    mode = data.draw(st.sampled_from(["zeros", "reflect", "circular", "replicate"]))
    module = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    side = dilation * (window - 1) + 3
    layer = module(
        groups * ins,
        groups * outs,
        window,
        stride,
        padding,
        dilation,
        groups,
        bias,
        mode if padding else "zeros",
    )
    check(layer, rows(3, groups * ins, *range(side, side + dims)))


@pytest.mark.parametrize("channels", [3, 8, 9])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_convolutions_with_named_padding_and_many_channels(channels, padding):
    check(nn.Conv2d(channels, 5, (4, 3), padding=padding, dilation=2), rows(5, channels, 9, 8))


def test_kernels_larger_than_what_they_are_made_from():
    check(nn.Conv2d(16, 16, 3, padding=1), rows(4, 16, 2, 2))
    check(nn.Conv2d(16, 16, 3), rows(4, 16, 5, 4))
    scales = torch.tensor([1.0, 3.0, 0.2, 10.0, 0.5]).view(-1, 1, 1, 1)  # no example's norm is another's
    check(nn.Conv2d(2, 40, 5), scales * rows(5, 2, 6, 6))
    check(nn.Conv2d(32, 32, 3, padding=1), scales * rows(5, 32, 7, 7))


@pytest.mark.parametrize("numbers", [1, 200, 700])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(5, 6), (5, 40, 5)),
        (nn.LayerNorm(6), (5, 7, 6)),
        (nn.GroupNorm(2, 4), (5, 4, 3, 5)),
        (nn.Conv2d(2, 3, 3), (5, 2, 6, 5)),
        (nn.Conv2d(32, 32, 3, padding=1), (5, 32, 7, 7)),
    ],
    ids=["written", "layer_norm", "group_norm", "windows", "norms_only"],
)
def test_work_done_in_parts_is_the_same(monkeypatch, layer, shape, numbers):
    monkeypatch.setattr("dpexp.gradients.rules.product._IN_CACHE", numbers)
    scales = torch.tensor([1.0, 3.0, 0.2, 10.0, 0.5]).view(-1, *[1] * (len(shape) - 1))
    check(layer, scales * rows(*shape))


def test_kernels_gradients_that_are_not_kept_have_room_for_a_part_only(monkeypatch):
    rules = importlib.import_module("dpexp.gradients.rules.convolution")
    written, sizes = rules._written, []

    def spy(images, gradients, geometry):
        sizes.append((len(images), images[:1].numel() + gradients[:1].numel(), prod(geometry.shape)))
        return written(images, gradients, geometry)

    monkeypatch.setattr(rules, "_written", spy)
    check(nn.Conv2d(32, 32, 3, padding=1), rows(7, 32, 7, 7))
    assert sum(count for count, _, _ in sizes) >= 7
    assert all(count * kernel <= 2 * 7 * made_from for count, made_from, kernel in sizes)


@example(50, 30_000, 1)
@example(7, 1, 4)
@given(st.integers(0, 50), st.integers(0, 2**22), st.integers(1, 60))
def test_parts_cover_the_rows_once_within_the_cache(count, numbers, at_least):
    parts = chunks(count, numbers, at_least=at_least)
    assert [row for part in parts for row in range(count)[part]] == list(range(count))
    longest = max((len(range(count)[part]) for part in parts), default=0)
    assert (longest - 1) * numbers < 2**20
    assert len(parts) >= min(count, at_least)


@given(st.integers(1, 3), sizes, sizes, sizes, st.integers(0, 1), sizes, sizes, sizes, st.booleans())
def test_transposed_convolutions(dims, groups, ins, outs, padding, stride, dilation, window, bias):
    module = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    extra = max(stride, dilation) - 1
    layer = module(groups * ins, groups * outs, window + 1, stride, padding, extra, groups, bias, dilation)
    check(layer, rows(3, groups * ins, *range(3, 3 + dims)))


@given(st.lists(st.integers(1, 5), max_size=2), st.sampled_from([None, 0, -1]))
def test_embeddings_look_up_the_same_row_many_times(between, padding_idx):
    generator = torch.Generator().manual_seed(0)
    check(nn.Embedding(4, 3, padding_idx=padding_idx), torch.randint(4, (5, *between), generator=generator))


def test_an_embedding_that_rewrites_its_rows_is_refused():
    model = Head(nn.Embedding(4, 3, max_norm=1.0))
    with pytest.raises(UserError, match=r"layer\.weight.*max_norm"):
        clipped_sum(model, curved_loss, torch.tensor([[1, 2]]), torch.tensor([0]), clip_norm=1.0)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LayerNorm(5), (4, 5)),
        (nn.LayerNorm([3, 5]), (4, 2, 3, 5)),
        (nn.LayerNorm(5, bias=False), (4, 3, 5)),
        (nn.RMSNorm(5), (4, 3, 5)),
        (nn.RMSNorm([3, 5]), (4, 2, 3, 5)),
        (nn.GroupNorm(2, 6), (4, 6)),
        (nn.GroupNorm(3, 6), (4, 6, 3, 2)),
        (nn.InstanceNorm1d(3, affine=True), (4, 3, 5)),
        (nn.InstanceNorm2d(3, affine=True), (4, 3, 5, 2)),
        (nn.BatchNorm2d(3).eval(), (4, 3, 5, 2)),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_scales_and_shifts_of_normalizations(layer, shape):
    check(layer, rows(*shape), size=3)


def test_batch_normalization_is_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with pytest.raises(UserError, match=r"1\.weight.*batch normalization"):
        clipped_sum(model, curved_loss, torch.rand(4, 3), torch.zeros(4), clip_norm=1.0)


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, **options)

    def forward(self, inputs):
        context = inputs[..., : self.attention.kdim] if self.attention.kdim != 6 else inputs
        return self.attention(inputs, context, context)[0].transpose(0, int(not self.attention.batch_first))


@pytest.mark.parametrize("options", [{"batch_first": True}, {}, {"bias": False}, {"kdim": 4, "vdim": 4}])
def test_attention_goes_through_its_linear_parts(options):
    attention = Attention(**options)
    check(attention if "batch_first" in options else TimeFirst(attention), rows(4, 4, 6))


class TimeFirst(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        return self.layer(inputs.transpose(0, 1))


class Sequences(TimeFirst):
    def forward(self, inputs):
        return super().forward(inputs)[0].transpose(0, 1)


class Cells(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(3, 4)

    def forward(self, inputs):
        state = None
        for step in inputs.unbind(1):
            state = self.cell(step, state)
        return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize(
    "layer",
    [
        nn.GRU(3, 4, batch_first=True),
        nn.GRU(3, 4, 2, bidirectional=True, batch_first=True),
        nn.LSTM(3, 4, batch_first=True, proj_size=2),
        nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2, bias=False, batch_first=True),
        nn.RNN(3, 4, nonlinearity="relu", batch_first=True),
        Sequences(nn.RNN(3, 4, bias=False)),
        Cells(nn.GRUCell),
        Cells(nn.LSTMCell),
        Cells(nn.RNNCell),
    ],
    ids=str,
)
def test_recurrent_layers_and_cells(layer):
    check(layer, rows(3, 4, 3))


@pytest.mark.parametrize("biased", [True, False], ids=["biased", "plain"])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True}], ids=str
)
@pytest.mark.parametrize(
    "kind", [nn.LSTM, nn.GRU, nn.RNN, partial(nn.LSTM, proj_size=2)], ids=["lstm", "gru", "rnn", "proj"]
)
def test_step_by_step_gives_what_torch_does(kind, options, biased):
    torch.manual_seed(0)
    layer, inputs = kind(3, 4, bias=biased, **options).double(), rows(5, 6, 3).double()
    with Stepwise() as seen:
        found = _pytree.tree_leaves(layer(inputs))
    torch.testing.assert_close(found, _pytree.tree_leaves(layer(inputs)))
    assert seen.linear > 5


@pytest.mark.parametrize("training", [True, False])
def test_dropout_between_recurrent_layers_is_that_of_torch(training):
    torch.manual_seed(0)
    layer, inputs = nn.GRU(3, 4, 2, dropout=1.0).double().train(training), rows(5, 6, 3).double()
    with Stepwise():
        found = layer(inputs)
    torch.testing.assert_close(found, layer(inputs))


def test_the_arguments_of_a_recurrent_function_may_have_names():
    layer, inputs = nn.LSTM(3, 4).double(), rows(5, 6, 3).double()
    state = (torch.zeros(1, 6, 4).double(), torch.zeros(1, 6, 4).double())
    names = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
    options = dict(zip(names, (True, 1, 0.0, True, False, False), strict=True))
    with Stepwise() as seen:
        found = torch.lstm(input=inputs, hx=state, params=layer._flat_weights, **options)
    torch.testing.assert_close(found[0], layer(inputs)[0])
    assert seen.linear > 5


def test_a_recurrent_layer_that_does_not_train_is_left_to_torch():
    with Stepwise() as seen:
        nn.GRU(3, 4).requires_grad_(False)(rows(5, 6, 3).float())
    assert seen.linear == 0


class Stepwise(Interception):
    """Counts linear layers."""

    linear = 0

    def observe(self, index, function, arguments, keywords):
        self.linear += function is functional.linear
        return function(*arguments, **keywords)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(3, 4, batch_first=True)

    def forward(self, inputs):
        lengths = torch.full((len(inputs),), inputs.shape[1])
        return self.layer(pack_padded_sequence(inputs, lengths, batch_first=True))[1][0]


def test_packed_sequences_are_refused():
    with pytest.raises(UserError, match="gru is given a packed sequence, expected a padded one"):
        explain(Packed().double(), rows(3, 4, 3))


class Twice(nn.Module):
    """Both inputs of a bilinear layer are the same."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(3, 3, 4)

    def forward(self, inputs):
        return self.layer(inputs, inputs)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.PReLU(4), (5, 4, 3)), (Twice(), (4, 3)), (nn.Conv2d(2, 3, 2), (3, 2, 4, 4))],
    ids=["prelu", "bilinear", "conv"],
)
def test_layers_without_a_rule_or_with_one_agree_with_the_loop(layer, shape):
    check(layer, rows(*shape), by_torch_func=not isinstance(layer, nn.Conv2d))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_words_go_to_torch_func(mode):
    bags = torch.tensor([[0, 1, 1], [2, 2, 2], [4, 0, 3]])
    check(nn.EmbeddingBag(5, 4, mode=mode), bags, by_torch_func=True)


def test_bfloat16_autocast_keeps_norms_and_sums_in_float32():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    inputs, targets = torch.randn(8, 6), torch.randint(3, (8,))

    def loss(outputs, targets):
        return functional.cross_entropy(outputs.float(), targets, reduction="none")

    plain = clipped_sum(model, loss, inputs, targets, clip_norm=0.5)
    with torch.autocast("cpu", torch.bfloat16):
        found = clipped_sum(model, loss, inputs, targets, clip_norm=0.5)
    assert found.norms.dtype == torch.float32
    assert all(total.dtype == torch.float32 for total in found.sums.values())
    moved = sum((found.sums[name] - plain.sums[name]).square().sum() for name in plain.sums)
    assert math.sqrt(moved) < 0.02 * 8 * 0.5  # bfloat16 has 8 bits
