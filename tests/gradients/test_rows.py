"""Every example stays in its row, or the model goes another way: also where only some contents move it."""

import pytest
import torch
from torch import nn

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, check_model, clipped_sum, explain, grouped_clipped_sum
from dpexp.gradients.loop import loop
from dpexp.gradients.rows import keeps_rows, may_move_rows, moved_tensor
from tests.gradients.models import assert_equal, loss, trainable


def index(rows, order):
    return rows[order]


def select(rows, order):
    return rows.index_select(0, order)


def gather(rows, order):
    return rows.gather(0, order.view(-1, *[1] * (rows.ndim - 1)).expand_as(rows))


def along(rows, order):
    return torch.take_along_dim(rows, order.view(-1, *[1] * (rows.ndim - 1)), 0)


def matrix(rows, order):
    return (nn.functional.one_hot(order, len(order)).to(rows.dtype) @ rows.flatten(1)).view_as(rows)


def set_rows(rows, order):
    return torch.zeros_like(rows).index_put((order.argsort(),), rows)


def copied(rows, order):
    return torch.zeros_like(rows).index_copy(0, order.argsort(), rows)


def assigned(rows, order):
    result = torch.zeros_like(rows)
    result[order.argsort()] = rows
    return result


def one_by_one(rows, order):
    first = order.tolist()
    return torch.stack([rows.unbind(0)[i] for i in first])


def only_if_needed(rows, order):
    """The same call either way, with another argument."""
    ordered = bool((order == torch.arange(len(order))).all())
    return rows[:] if ordered else rows[order]


def rolled(rows, order):
    """Another function with the same number of calls, and halves that are swapped."""
    return rows.roll(0, 1) if int(order[0]) == 0 else rows.roll(int(order[0]), 0)


def looked_up(rows, order):
    """A table of examples."""
    return nn.functional.embedding(order, rows.flatten(1)).view_as(rows)


def halves(rows, order):
    return torch.cat([rows[int(order[0]) :], rows[: int(order[0])]])


MOVES = [
    index, select, gather, along, matrix, set_rows, copied, assigned, one_by_one, only_if_needed, rolled,
    halves, looked_up,
]  # fmt: skip


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


ROWS = torch.arange(4)
CALLS = {
    "h[:, 0]": lambda h: h[:, 0],
    "h[..., 0]": lambda h: h[..., 0],
    "h[None]": lambda h: h[None],
    "h[:, None, 1:]": lambda h: h[:, None, 1:],
    "h[own]": lambda h: h[ROWS, 1],
    "h[own column]": lambda h: h[ROWS[:, None], torch.tensor([[0, 2]])],
    "h.flip(1)": lambda h: h.flip(1),
    "h.flip(-1, 1)": lambda h: h.flip(-1, 1),
    "h.roll(1, 2)": lambda h: h.roll(1, 2),
    "h.sort()": lambda h: h.sort()[0],
    "h.split(2, 1)": lambda h: h.split(2, 1)[1],
    "h.topk(1)": lambda h: h.topk(1)[0],
    "h.gather(1)": lambda h: h.gather(1, torch.zeros(4, 1, 5, dtype=torch.long)),
    "h.unbind(2)": lambda h: h.unbind(2)[1],
    "h.transpose": lambda h: h.transpose(1, 2),
    "h[0]": lambda h: h[0],
    "h[1:]": lambda h: h[1:],
    "h[::2]": lambda h: h[::2],
    "h[[1, 0, 2, 3]]": lambda h: h[[1, 0, 2, 3]],
    "h[..., ROWS.flip(0), 0, 0]": lambda h: h[..., ROWS.flip(0), 0, 0],
    "h[mask]": lambda h: h[h[:, 0, 0] > 0],
    "h[deep mask]": lambda h: h[h[:, :, 0] > 0],
    "h.flip(0)": lambda h: h.flip(0),
    "h.flip(-1, 0)": lambda h: h.flip(-1, 0),
    "h.roll(1)": lambda h: h.roll(1),
    "h.roll(1, -3)": lambda h: h.roll(1, -3),
    "h.sort(0)": lambda h: h.sort(0)[0],
    "h.sort(dim=-3)": lambda h: h.sort(dim=-3)[0],
    "h.split(2)": lambda h: h.split(2)[0],
    "h.unbind()": lambda h: h.unbind()[0],
    "torch.select": lambda h: torch.select(input=h, dim=0, index=1),
    "h.narrow": lambda h: h.narrow(0, 0, 2),
    "h.unique()": lambda h: h.unique(),
    "h.repeat_interleave": lambda h: h.repeat_interleave(2, dim=0),
    "reversed": lambda h: reversed(h),
    "h.gather": lambda h: h.gather(0, ROWS[:, None, None]),
    "h.take": lambda h: h.take(ROWS),
}  # fmt: skip
STAY = 15


class _Asked(torch.overrides.TorchFunctionMode):
    def __init__(self, rows):
        super().__init__()
        self.rows, self.answers = rows, []

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if may_move_rows(function) and moved_tensor(function, arguments, keywords) is self.rows:
            self.answers.append(keeps_rows(function, arguments, keywords, 0, len(self.rows)))
        return function(*arguments, **keywords)


@pytest.mark.parametrize("call", CALLS)
def test_which_calls_leave_examples_in_their_rows(call):
    torch.manual_seed(0)
    rows = torch.randn(4, 3, 5)
    with _Asked(rows) as asked:
        found = CALLS[call](rows)
    stays = list(CALLS).index(call) < STAY
    assert all(asked.answers) is stays
    if stays and call != "h[None]":  # as said, and as it is: the first example moves the first row only
        others = rows.clone()
        others[0] += 1
        changed = (CALLS[call](others) != found).flatten(1).any(dim=1)
        assert changed.tolist() == [True, False, False, False]
