"""Recurrent layers step by step, from linear layers, for which there is a rule.

Torch's own `lstm`, `gru`, `rnn_tanh` and `rnn_relu` are one call for all steps, which tells nothing of the
gradients between. These take the same arguments, compute the same numbers up to rounding, and call
`torch.nn.functional.linear` on the way. Equations: `torch.nn.LSTM`, `GRU`, `RNN`, torch 2.6.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dpexp import _validate

__all__ = ["UNROLLED", "unrolled"]

_State = tuple[Tensor, ...]
_Step = Callable[[Tensor, Tensor, _State], _State]
"""From both linear parts (B, gates·H) and the state, its hidden part first, to the next state."""


def unrolled(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Callable[..., Any]:
    """The same function step by step; itself where it is none of these, or nothing in it trains.

    Raises:
        UserError: Its input is a packed sequence, which mixes the examples.
    """
    if function not in UNROLLED or not _trains([*arguments[1:], *keywords.values()]):
        return function
    if "data" in keywords or (len(arguments) > 3 and isinstance(arguments[3], list | tuple)):
        raise _validate.UserError(
            f"model: {function.__name__} is given a packed sequence, expected a padded one, (B, T, d).\n"
            "Packing sorts the steps of all examples into one. Leave out pack_padded_sequence, and take of "
            "each example's outputs the one at its last step."
        )
    return UNROLLED[function]


def _trains(values: Sequence[Any]) -> bool:
    return any(
        _trains(value) if isinstance(value, list | tuple) else getattr(value, "requires_grad", False)
        for value in values
    )


def _lstm_step(given: Tensor, recurrent: Tensor, state: _State) -> _State:
    inlet, forget, cell, outlet = (given + recurrent).chunk(4, dim=1)
    memory = forget.sigmoid() * state[1] + inlet.sigmoid() * cell.tanh()
    return outlet.sigmoid() * memory.tanh(), memory


def _gru_step(given: Tensor, recurrent: Tensor, state: _State) -> _State:
    (reset, update, new), (own_reset, own_update, own_new) = given.chunk(3, dim=1), recurrent.chunk(3, dim=1)
    fresh = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return ((state[0] - fresh) * (update + own_update).sigmoid() + fresh,)


def _tanh_step(given: Tensor, recurrent: Tensor, state: _State) -> _State:
    return ((given + recurrent).tanh(),)


def _relu_step(given: Tensor, recurrent: Tensor, state: _State) -> _State:
    return ((given + recurrent).relu(),)


def _cell(step: _Step) -> Callable[..., Any]:
    """One step of one layer: input (B, in), state (B, H)."""

    def cell(
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        states = hx if isinstance(hx, list | tuple) else (hx,)
        given, recurrent = functional.linear(input, w_ih, b_ih), functional.linear(states[0], w_hh, b_hh)
        found = step(given, recurrent, tuple(states))
        return found if len(found) > 1 else found[0]

    return cell


def _layers(step: _Step) -> Callable[..., Any]:
    """All steps of all layers: input (T, B, in), states (layers · directions, B, H)."""

    def layers(
        input: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        states = hx if isinstance(hx, list | tuple) else (hx,)
        sequence = input.transpose(0, 1) if batch_first else input
        directions = 2 if bidirectional else 1
        each = len(params) // (num_layers * directions)
        ends: list[_State] = []
        for layer in range(num_layers):
            if layer and dropout and train:
                sequence = functional.dropout(sequence, dropout)
            outputs = []
            for place in range(layer * directions, (layer + 1) * directions):
                own = params[place * each : (place + 1) * each]
                weights = _Weights(own, has_biases)
                backwards = place % directions == 1
                start = tuple(part[place] for part in states)
                output, end = weights.run(step, sequence, start, backwards)
                outputs.append(output)
                ends.append(end)
            sequence = torch.cat(outputs, dim=2) if bidirectional else outputs[0]
        last = [torch.stack(parts) for parts in zip(*ends, strict=True)]
        return (sequence.transpose(0, 1) if batch_first else sequence, *last)

    return layers


class _Weights:
    """Those of one layer in one direction: input, recurrent, their biases, and a projection of the output."""

    def __init__(self, parameters: Sequence[Tensor], has_biases: bool) -> None:
        self._weights = parameters[:2]
        self._biases = tuple(parameters[2:4]) if has_biases else (None, None)
        rest = parameters[4:] if has_biases else parameters[2:]
        self._projection = rest[0] if rest else None

    def run(self, step: _Step, sequence: Tensor, state: _State, backwards: bool) -> tuple[Tensor, _State]:
        """Outputs (T, B, H) of a sequence (T, B, in), and the last state."""
        given = functional.linear(sequence, self._weights[0], self._biases[0]).unbind()
        outputs = []
        for part in reversed(given) if backwards else given:
            hidden, *others = step(
                part, functional.linear(state[0], self._weights[1], self._biases[1]), state
            )
            if self._projection is not None:
                hidden = functional.linear(hidden, self._projection)
            state = (hidden, *others)
            outputs.append(hidden)
        return torch.stack(outputs[::-1] if backwards else outputs), state


UNROLLED: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.lstm: _layers(_lstm_step),
    torch.gru: _layers(_gru_step),
    torch.rnn_tanh: _layers(_tanh_step),
    torch.rnn_relu: _layers(_relu_step),
    torch.lstm_cell: _cell(_lstm_step),
    torch.gru_cell: _cell(_gru_step),
    torch.rnn_tanh_cell: _cell(_tanh_step),
    torch.rnn_relu_cell: _cell(_relu_step),
}
