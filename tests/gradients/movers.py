"""Ways to bring the rows of a tensor into another order, seen and unseen."""

import torch
from torch import nn


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
    index,
    select,
    gather,
    along,
    matrix,
    set_rows,
    copied,
    assigned,
    one_by_one,
    only_if_needed,
    rolled,
    halves,
    looked_up,
]


def hidden_in_a_pad(rows, order):
    """A table as long for two examples as for three."""
    return nn.functional.pad(rows.flatten(1), (0, 0, 0, 64 - len(rows)))[order].view_as(rows)


def hidden_in_a_buffer(rows, order):
    table = rows.new_zeros(64, *rows.shape[1:])
    table[: len(rows)] = rows
    return table[order]


def added_to_a_buffer(rows, order):
    return rows.new_zeros(64, *rows.shape[1:]).index_add(0, order.argsort(), rows)[: len(rows)]


def two_products(rows, order):
    into = nn.functional.one_hot(torch.arange(len(rows)), 64).to(rows.dtype).T @ rows.flatten(1)
    return (nn.functional.one_hot(order, 64).to(rows.dtype) @ into).view_as(rows)


def attended(rows, order):
    """Attention over the examples, so sharp that each takes one."""
    queries = 1e3 * nn.functional.one_hot(order, 64).to(rows.dtype)
    keys = 1e3 * nn.functional.one_hot(torch.arange(len(rows)), 64).to(rows.dtype)
    values = rows.flatten(1)[None]
    return nn.functional.scaled_dot_product_attention(queries[None], keys[None], values)[0].view_as(rows)


def other_names(rows, order):
    return torch.index_select(x=rows, dim=0, index=order)


def operator(rows, order):
    """What no torch function sees."""
    return torch.ops.aten.index(rows, [order])


class _Ordered(torch.autograd.Function):
    @staticmethod
    def forward(context, rows, order):
        context.save_for_backward(order)
        return rows[order]

    @staticmethod
    def backward(context, gradient):
        return gradient[context.saved_tensors[0].argsort()], None


def own_function(rows, order):
    return _Ordered.apply(rows, order)


def rolled_by_sizes(rows, order):
    """Numbers that contents give to calls which could not move anything else."""
    first = int(order[0])
    flat = rows.flatten(1)
    wide = torch.cat(
        [flat.new_zeros(first, flat.shape[1]), flat, flat.new_zeros(len(rows) - first, flat.shape[1])]
    )
    return wide.view(2, len(rows), -1).sum(dim=0).view_as(rows)


def rolled_by_a_shift(rows, order):
    """A convolution of the examples with one of themselves, by Fourier's theorem."""
    shift = nn.functional.one_hot(order[:1], len(rows)).to(rows.dtype)[0]
    waves = torch.fft.fft(shift)[:, None] * torch.fft.fft(rows.flatten(1), dim=0)
    return torch.fft.ifft(waves, dim=0).real.view_as(rows)


HIDDEN = [
    hidden_in_a_pad,
    hidden_in_a_buffer,
    added_to_a_buffer,
    two_products,
    attended,
    other_names,
    operator,
    own_function,
    rolled_by_sizes,
    rolled_by_a_shift,
    *(move for move in MOVES if move not in (rolled, halves)),
]
