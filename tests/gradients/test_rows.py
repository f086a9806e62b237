"""Every example stays in its row, or the model goes another way: also where only some contents move it."""

import pytest
import torch
from torch import nn

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, check_model, clipped_sum, explain, grouped_clipped_sum
from dpexp.gradients.backward import Place, Sketches
from dpexp.gradients.batch import Batch
from dpexp.gradients.layout import Unexpected, layout_of
from dpexp.gradients.loop import loop
from tests.benchmarks.models import MODELS as BENCHMARKED
from tests.gradients.models import assert_equal, loss, trainable
from tests.gradients.movers import HIDDEN, MOVES, halves, index, rolled, rolled_by_a_shift, rolled_by_sizes


class ByLength(nn.Module):
    """Brings its rows into the order of their lengths, and back: right for every example, in any batch."""

    def __init__(self, move):
        super().__init__()
        self.table, self.layer, self.output = nn.Embedding(30, 6), nn.Linear(6, 5), nn.Linear(5, 3)
        self.move = move

    def forward(self, tokens):
        lengths = (tokens != 0).sum(dim=1)
        if self.move in (rolled, halves):
            first = lengths.argmax()
            order = (torch.arange(len(tokens)) + first) % len(tokens)
            back = (torch.arange(len(tokens)) - first) % len(tokens)
        else:
            order = lengths.argsort(descending=True, stable=True)
            back = order.argsort()
        hidden = self.layer(self.table(self.move(tokens, order))).tanh().mean(dim=1)
        return self.output(self.move(hidden, back))


def padded(rows, width):
    tokens = torch.randint(1, 30, (rows, width), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([2, 5, 1, 7, 4, 6, 3])[:rows]
    return tokens * (torch.arange(width) < lengths[:, None])


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_rows_that_some_contents_move_have_their_own_gradients(move):
    torch.manual_seed(0)
    model = ByLength(move).double()
    targets = torch.arange(7) % 3
    group = ClipGroup(trainable(model), FlatClipping(0.05))
    for tokens in (torch.full((7, 8), 3), padded(7, 8), padded(7, 8).flip(0)):  # of equal lengths first
        found = grouped_clipped_sum(model, loss, tokens, targets, [group])
        assert_equal(found, loop(model, loss, tokens, targets, [group]))


def test_a_model_that_sorts_by_length_moves_by_at_most_c():
    """What was once 64 C: with one more row, all norms belonged to other rows."""
    torch.manual_seed(0)
    model = ByLength(index).double()
    rows, clip_norm = 60, 0.1
    tokens = 7 * torch.ones(rows + 1, rows, dtype=torch.long).triu()  # lengths falling, the last 0
    tokens[rows] = 7
    targets = torch.arange(rows + 1) % 2
    sums = [
        clipped_sum(model, loss, tokens[:n], targets[:n], clip_norm=clip_norm).sums for n in (rows, rows + 1)
    ]
    moved = torch.cat([(sums[1][name] - sums[0][name]).flatten() for name in sums[0]])
    assert moved.norm() <= clip_norm


class Turning(nn.Module):
    """Has its examples in another dimension where a value is large: in a square, of the same shape."""

    def __init__(self):
        super().__init__()
        self.scale, self.output = nn.Parameter(torch.ones(1)), nn.Linear(6, 3)

    def forward(self, inputs):
        order = (1, 0) if inputs.abs().max() > 10 else (0, 1)
        return self.output((self.scale * inputs.permute(order)).tanh().permute(order))


def test_a_value_that_turns_a_square_of_examples_is_noticed():
    torch.manual_seed(0)
    model = Turning().double()
    group = ClipGroup(trainable(model), FlatClipping(0.1))
    inputs, targets = torch.randn(6, 6, dtype=torch.float64), torch.arange(6) % 3
    for rows in (inputs, torch.cat([inputs[:5], 20 * inputs[5:]])):
        found = grouped_clipped_sum(model, loss, rows, targets, [group])
        assert_equal(found, loop(model, loss, rows, targets, [group]))


class LastToken(nn.Module):
    """Takes, masks, splits and turns entries of each example: nothing of it moves examples."""

    def __init__(self):
        super().__init__()
        self.table, self.wide, self.output = nn.Embedding(30, 6), nn.Linear(6, 12), nn.Linear(12, 3)
        self.empty = nn.Parameter(torch.ones(6))

    def forward(self, tokens):
        rows, lengths = torch.arange(len(tokens)), (tokens != 0).sum(dim=1).clamp(min=1)
        hidden = self.table(tokens) * 1
        hidden[tokens == 0] = 0.0
        hidden[:, 0] = self.empty
        one, other = self.wide(hidden).chunk(2, dim=-1)
        last = torch.cat([one, other.flip(1)], dim=-1)[rows, lengths - 1]
        first = one.gather(1, torch.zeros_like(lengths)[:, None, None].expand(-1, 1, 6))[:, 0]
        return self.output(last * torch.cat([first, other.select(1, 0)], dim=-1).sort(dim=1)[0])


def test_entries_that_stay_with_their_example_keep_the_rules():
    torch.manual_seed(0)
    model = LastToken().double()
    tokens, targets = padded(7, 8), torch.arange(7) % 3
    rules = explain(model, tokens)
    assert rules["wide.weight"] == rules["output.weight"] == "linear"
    assert not any("whole model" in rule for rule in rules.values())
    group = ClipGroup(trainable(model), FlatClipping(0.05))
    found = grouped_clipped_sum(model, loss, tokens, targets, [group])
    assert_equal(found, loop(model, loss, tokens, targets, [group]))
    check_model(model.float(), loss, tokens, targets, [group])


class ByLargest(nn.Module):
    """Moves its rows between two layers, and back, where one has large entries: random rows have none."""

    def __init__(self, move):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.move = move

    def forward(self, inputs):
        large, rows = (inputs.abs() > 20).sum(dim=1), torch.arange(len(inputs))
        order = large.argsort(descending=True, stable=True)
        back = order.argsort()
        if self.move in (rolled_by_sizes, rolled_by_a_shift):
            order, back = ((rows + sign * large.argmax()) % len(inputs) for sign in (1, -1))
        hidden = self.second(self.move(self.first(inputs), order))
        return self.output(self.move(hidden.tanh(), back))


@pytest.mark.parametrize("move", HIDDEN, ids=lambda move: move.__name__)
def test_no_call_that_moves_rows_is_taken_for_one_that_does_not(move):
    torch.manual_seed(0)
    model = ByLargest(move).double()
    group = ClipGroup(trainable(model), FlatClipping(0.05))
    inputs, targets = torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 3
    large = inputs + 30 * torch.tensor([0, 1, 0, 0, 1, 0, 0])[:, None] * torch.eye(7, 6)
    large[4] *= 30
    for rows in (inputs, large, inputs.flip(0), large.flip(0)):
        found = grouped_clipped_sum(model, loss, rows, targets, [group])
        assert_equal(found, loop(model, loss, rows, targets, [group]))
    assert not layout_of(model, inputs, trainable(model)).rowwise


class Bare(nn.Module):
    """One layer, and then what is tried."""

    def __init__(self, call):
        super().__init__()
        self.layer, self.table, self.call = nn.Linear(6, 6), nn.Embedding(9, 6), call

    def forward(self, inputs):
        return self.call(self.layer(inputs))


class _Kept(torch.autograd.Function):
    """Returns what another call made, and has a backward pass of its own."""

    @staticmethod
    def forward(context, rows):
        return rows * 1

    @staticmethod
    def backward(context, gradient):
        return gradient.roll(1, 0)


def _hooked(rows):
    doubled = rows * 2
    doubled.grad_fn.register_prehook(lambda gradients: (gradients[0].roll(1, 0),))
    return doubled


@torch.overrides.wrap_torch_function(lambda rows: (rows,))
def relu(rows):
    """Another function of a known name."""
    return rows.roll(1, 0)


STAY = [
    lambda h: (
        (h.view(len(h), 2, 3).transpose(0, 1).reshape(2 * len(h), 3) * 2).view(2, len(h), 3).transpose(0, 1)
    ),
    lambda h: nn.functional.batch_norm(h, torch.zeros(6), torch.ones(6)),
    lambda h: h * 2 + h.relu(),
    lambda h: h.view(len(h), 2, 3).transpose(1, 2).flatten(1),
    lambda h: h[:, 0],
    lambda h: h[..., 1:],
    lambda h: h[:, None, ::2],
    lambda h: h.softmax(-1),
    lambda h: h.mean(dim=1),
    lambda h: torch.cat([h, h.sin()], dim=1),
    lambda h: torch.stack([h, h], dim=0),
    lambda h: h.chunk(2, dim=1)[1],
    lambda h: h @ torch.ones(6, 2),
    lambda h: h[:, :, None] @ h[:, None],
    lambda h: h.unbind(1)[2],
    lambda h: nn.functional.layer_norm(h, (6,)),
    lambda h: nn.functional.group_norm(h, 2),
    lambda h: torch.where(h > 0, h, 0.0),
    lambda h: h.transpose(0, 1).relu(),
    lambda h: nn.functional.conv1d(h[:, None], torch.ones(2, 1, 3)),
    lambda h: h.view(len(h) * 2, 3).tanh(),
]
MOVE = [
    lambda h: h.transpose(0, 1).reshape(len(h), 6),
    lambda h: h.transpose(0, 1).flatten().view(len(h), 6),
    lambda h: h.transpose(0, 1).flatten().unflatten(0, (len(h), 6)),
    lambda h: h.view(6, len(h)).transpose(0, 1),
    lambda h: nn.functional.batch_norm(h, None, None, training=True),
    lambda h: _Kept.apply(h),
    lambda h: _hooked(h),
    lambda h: relu(h),
    lambda h: h[torch.arange(len(h))],
    lambda h: h[0:],
    lambda h: h[:1],
    lambda h: h[0],
    lambda h: h.flip(0),
    lambda h: h.softmax(0),
    lambda h: h.mean(dim=0),
    lambda h: torch.cat([h, h]),
    lambda h: h.chunk(2)[0],
    lambda h: h @ h.transpose(0, 1),
    lambda h: h.transpose(0, 1) @ h,
    lambda h: h.sort(dim=0)[0],
    lambda h: torch.ones(2, len(h)) @ h,
    lambda h: h + h.transpose(0, 1)[:1, 0],
    lambda h: h * float(h.max()),
    lambda h: h.unbind()[0],
    lambda h: h[h > 0],
    lambda h: nn.functional.layer_norm(h.transpose(0, 1), (len(h),)),
    lambda h: nn.functional.embedding(torch.zeros(len(h), dtype=torch.long), h),
    lambda h: torch.ops.aten.relu.default(h),
    lambda h: h.gather(0, torch.zeros(len(h), 6, dtype=torch.long)),
    lambda h: h if bool(h.sum() > 0) else h * 1,
    lambda h: nn.functional.conv1d(h.transpose(0, 1)[None], torch.ones(6, 6, 1))[0].transpose(0, 1),
]


@pytest.mark.parametrize("stays", [*((call, True) for call in STAY), *((call, False) for call in MOVE)])
def test_which_calls_are_known_to_leave_examples_in_their_rows(stays):
    call, expected = stays
    model = Bare(call)
    assert layout_of(model, torch.zeros(5, 6), ("layer.weight",)).rowwise is expected


class Around(nn.Module):
    """The first result of a layer of torch."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        several = (inputs, inputs, inputs) if isinstance(self.layer, nn.MultiheadAttention) else (inputs,)
        found = self.layer(*several)
        return found[0] if isinstance(found, tuple) else found


LAYERS = [
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    nn.MultiheadAttention(8, 2, batch_first=True),
    nn.GRU(8, 5, batch_first=True),
    nn.GroupNorm(2, 4),
    nn.Conv1d(4, 3, 2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers_of_torch_need_no_second_backward_pass(layer):
    model = Around(layer)
    assert layout_of(model, torch.zeros(5, 4, 8), trainable(model)).rowwise


class OneByOne(nn.Module):
    """Passes a list as long as the batch."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs * torch.cat([torch.ones(1, 6)] * len(inputs)))


def test_a_list_as_long_as_the_batch_keeps_the_rules():
    assert explain(OneByOne(), torch.zeros(5, 6))["output.weight"] == "linear"


class ByNumber(nn.Module):
    """Mixes neighbors where there are many: the layout is found with two and three rows."""

    def __init__(self):
        super().__init__()
        self.first, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden, size = self.first(inputs), 1 if len(inputs) < 16 else 4
        split = hidden.view(len(inputs) // size, size, 6)
        return self.output(
            (hidden - split.mean(dim=1, keepdim=True).expand(-1, size, 6).reshape(len(inputs), 6) / 2).tanh()
        )


def test_a_reshape_that_depends_on_the_number_of_rows_is_noticed():
    torch.manual_seed(0)
    model = ByNumber().double()
    group = ClipGroup(trainable(model), FlatClipping(0.05))
    for rows in (7, 32):
        inputs, targets = torch.randn(rows, 6, dtype=torch.float64), torch.arange(rows) % 3
        found = grouped_clipped_sum(model, loss, inputs, targets, [group])
        assert_equal(found, loop(model, loss, inputs, targets, [group]))


def test_the_proof_finds_what_comes_to_other_entries_than_the_largest():
    place = Place(0, 0, None, torch.Size([2, 2]), Batch(0))
    plain, weighted = Sketches(1), Sketches(1)
    plain.note(place, torch.tensor([[1.0, 0.9], [0.0, 1.0]]))
    weighted.note(place, torch.tensor([[1024.0, 0.9], [0.0, 1.0]]))  # .9 came from the second loss
    with pytest.raises(Unexpected, match="move examples"):
        plain.prove(weighted, torch.tensor([1024.0, 1.0]))
    plain.prove(plain, torch.ones(2))
    alone, halved = Sketches(1), Sketches(1)
    alone.note(place, torch.eye(2))
    halved.note(place, torch.diag(torch.tensor([512.0, 1024.0])))  # by a weight that is one octave off
    with pytest.raises(Unexpected, match="move examples"):
        alone.prove(halved, torch.tensor([1024.0, 1024.0]))


@pytest.mark.parametrize("name", sorted(BENCHMARKED))
def test_the_networks_that_are_measured_need_no_second_backward_pass(name):
    model, inputs, _ = BENCHMARKED[name]()
    assert layout_of(model, inputs, trainable(model)).rowwise


def test_the_proof_minds_neither_vanishing_nor_infinite_gradients():
    """A model whose passes are proven: tiny rows round, and one that is not finite counts for nothing."""
    torch.manual_seed(0)
    model = Bare(lambda h: h[torch.arange(len(h))])
    group = ClipGroup(("layer.weight", "layer.bias"), FlatClipping(1.0))
    inputs, targets = torch.randn(6, 6), torch.arange(6)
    inputs[0], inputs[1], inputs[2] = 1e4, torch.inf, 1e-30

    def tiny(outputs, targets):
        return loss(outputs, targets) * torch.tensor([1.0, 1.0, 1e-38, 1e-25, 1.0, 1e10])

    found = grouped_clipped_sum(model, tiny, inputs, targets, [group])
    assert found.norms.isfinite().tolist() == [[True, False, True, True, True, True]]
    assert not layout_of(model, inputs, group.parameters).reason
    summed = torch.cat([total.flatten() for total in found.sums.values()])
    assert summed.isfinite().all()
