"""The behavioural check at the start: examples must not mix, and sums must equal the oracle's.

Type lists miss what a batch norm wears as a costume; behaviour does not. Only random rows are used,
never private ones, on a copy of the model.
"""

import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from dpexp import _validate
from dpexp.gradients.calm import Calm, calm_copy
from dpexp.gradients.clipped import (
    ClipGroup,
    ClippedSum,
    ClippedSumFunction,
    Loss,
    per_example_losses,
)
from dpexp.gradients.engine import grouped_clipped_sum
from dpexp.gradients.explanation import explain
from dpexp.gradients.layout import layout_of
from dpexp.gradients.loop import loop

__all__ = ["Checked", "check_model"]

_MIXES = (
    "\nA layer or the loss mixes the examples of a batch (batch normalization in some form?), so one example "
    "can reach others' gradients past its clip: use GroupNorm or LayerNorm."
)


@final
@dataclass(frozen=True)
class Checked:
    """What the check found.

    Attributes:
        rows: Random examples used.
        deviation: Largest difference between engine and oracle, relative to the largest entry of its tensor.
        rules: The rule that each trained parameter goes by.
        proven: Whether calls of the model may move examples to other rows, so that each microbatch takes a
            second backward pass to prove that they do not.
    """

    rows: int
    deviation: float
    rules: Mapping[str, str]
    proven: bool = False


def check_model(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[ClipGroup],
    public_buffers: Collection[str] = (),
    *,
    engine: ClippedSumFunction | None = None,
) -> Checked:
    """Refuses a model whose per-example gradients depend on the other examples, or are wrong here.

    Args:
        model: The model in training mode; it is copied, and dropout in the copy is held off.
        loss: One value per example.
        inputs: Random rows of the declared shape and dtype, shape (B, …), B >= 2.
        targets: Random targets, shape (B, …).
        groups: The groups that will be clipped.
        public_buffers: Names of buffers and frozen parameters that may change, since what changes them is
            public.
        engine: What will sum the gradients, if not book-keeping.

    Returns:
        The result, to be shown.

    Raises:
        UserError: One row moves another row's gradient, the clipped sum differs from that of single examples,
            or a forward pass in training mode changes a buffer, a parameter or extra state.
    """
    inputs, targets = _of_unlike_size(inputs, targets)
    groups = [ClipGroup(group.parameters, group.clipping) for group in groups]
    names = [name for group in groups for name in group.parameters]
    trial = calm_copy(model)
    with Calm():
        _check_state(trial, inputs, public_buffers)
        checked = partial(_check_gradients, loss=loss, groups=groups, engine=engine)
        deviation = max(_deviation_of(checked, model, trial, rows, targets) for rows in _kinds(inputs))
        rules = explain(trial, inputs, names) if engine is None else dict.fromkeys(names, "torch.compile")
        layout = layout_of(trial, inputs, names)
        proven = engine is None and not layout.reason and not layout.rowwise
        return Checked(len(inputs), deviation, rules, proven)


def _check_gradients(
    trial: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: Loss,
    groups: Sequence[ClipGroup],
    engine: ClippedSumFunction | None,
) -> float:
    """How far engine and oracle are apart, where examples are."""
    names = [name for group in groups for name in group.parameters]
    _check_independence(trial, loss, inputs, targets, names)
    batch = grouped_clipped_sum(trial, loss, inputs, targets, groups, engine=engine)
    return _compare(batch, loop(trial, loss, inputs, targets, groups))


_Checked = Callable[[nn.Module, Tensor, Tensor], float]


def _deviation_of(
    checked: _Checked, model: nn.Module, trial: nn.Module, inputs: Tensor, targets: Tensor
) -> float:
    try:
        return checked(trial, inputs, targets)
    except _validate.UserError as error:
        return _unless_rounding(error, checked, model, inputs, targets)


def _unless_rounding(
    error: _validate.UserError,
    checked: _Checked,
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
) -> float:
    """Raises the error, unless these rows pass in float64 and other rows as they are.

    Rounding alone is large where a normalization divides by almost nothing. What mixes in one type only does
    so on the other rows, and what mixes on some rows only does so on these.
    """
    doubled = (rows.double() if rows.is_floating_point() else rows for rows in (inputs, targets))
    others = torch.stack([_another(inputs.roll(-i, dims=0)) for i in range(len(inputs))])
    try:
        checked(calm_copy(model).double(), *doubled)
        return checked(calm_copy(model), others, targets)
    except Exception:  # noqa: BLE001  # it mixes there too, or does not run: the first error stands
        raise error from None


def _kinds(inputs: Tensor) -> Iterator[Tensor]:
    """The rows, and token ids once more with unlike lengths: what a model does by length, it does then."""
    yield inputs
    if not inputs.is_floating_point() and inputs.ndim > 1:
        ends = torch.linspace(1, inputs.shape[-1], len(inputs)).round().flip(0)
        ends[0], ends[-1] = ends[-1].item(), ends[0].item()  # neither growing nor shrinking
        kept = torch.arange(inputs.shape[-1]) < ends.view(-1, *[1] * (inputs.ndim - 1))
        yield inputs * kept.to(inputs.device)


def _of_unlike_size(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, repeated or fewer, so that no other dimension has the size of the batch."""
    taken = {*inputs.shape[1:], *targets.shape[1:]}
    size = next(n for n in itertools.chain([len(inputs)], itertools.count(5)) if n not in taken and n > 1)
    rows = torch.arange(size) % len(inputs)
    return inputs[rows], targets[rows]


def _check_state(trial: nn.Module, inputs: Tensor, public: Collection[str]) -> None:
    """All that is kept of a model besides what trains: a forward pass must leave it as it is."""
    before = {name: copy.deepcopy(value) for name, value in _state(trial)}
    with torch.enable_grad():  # for models that differentiate themselves
        trial(inputs)
    for name, value in _state(trial):
        if name not in public and (name not in before or not _equal(value, before[name])):
            raise _validate.UserError(
                f"model: a forward pass in training mode changes {name}, expected its state to stay."
                "\nRunning statistics carry private data past the noise: use GroupNorm or LayerNorm, or a "
                "layer whose train() keeps it in the eval mode. "
                "(`check_model` takes public_buffers, the names of those that see only public data.)"
            )


def _state(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Parameters, frozen ones too, buffers, and what modules say beside them (`get_extra_state`)."""
    yield from ((name, parameter.detach()) for name, parameter in model.named_parameters())
    yield from model.named_buffers()
    for name, value in model.state_dict().items():
        if name.endswith("_extra_state"):
            yield name, value


def _equal(one: Any, other: Any) -> bool:
    """By values; what cannot be compared counts as changed."""
    leaves, structure = _pytree.tree_flatten(one)
    others, structure_of_other = _pytree.tree_flatten(other)
    try:
        return structure == structure_of_other and all(map(_same, leaves, others))
    except Exception:  # noqa: BLE001  # whatever a class of the user's raises
        return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        one, other = (value.to_dense() if value.is_sparse else value for value in (one, other))
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and (
            one.is_meta or bool(torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all())
        )
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
    equality: Any = type(one).__eq__
    if equality is object.__eq__ and hasattr(one, "__dict__"):  # it would compare a copy's place in memory
        return type(one) is type(other) and _equal(vars(one), vars(other))
    return bool(one == other) or (one != one and other != other)  # NaN


def _check_independence(
    trial: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, names: Sequence[str]
) -> None:
    """Another first row must leave the gradients of all other rows as they are, to the last bits."""
    other_inputs, other_targets = inputs.clone(), targets.clone()
    other_inputs[0], other_targets[0] = _another(inputs), targets[1]
    before = _gradients_of_the_rest(trial, loss, inputs, targets, names)
    after = _gradients_of_the_rest(trial, loss, other_inputs, other_targets, names)
    for name, one, other in zip(names, before, after, strict=True):
        if _deviation(one, other) > 1e-5:  # the same numbers in the same kernels: rounding is all there is
            raise _validate.UserError(
                f"model: the gradient of {name} for some examples changes with another example, expected it "
                f"to be independent.{_MIXES}"
            )


def _another(inputs: Tensor) -> Tensor:
    """A row unlike the first, of valid values: another row, rolled and, if it is of numbers, mirrored."""
    row = inputs[1].flatten().roll(1).view_as(inputs[1])
    return 1 - 2 * row if row.is_floating_point() else row


def _gradients_of_the_rest(
    trial: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, names: Sequence[str]
) -> tuple[Tensor, ...]:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        losses = per_example_losses(loss(trial(inputs), targets), len(inputs))
    # Unequal weights, lest opposite changes cancel.
    weights = torch.linspace(1, 2, len(inputs) - 1).to(losses)
    parameters = [trial.get_parameter(name) for name in names]
    found: tuple[Tensor, ...] = torch.autograd.grad(
        losses[1:] @ weights, parameters, allow_unused=True, materialize_grads=True
    )
    return found


def _compare(batch: ClippedSum, singles: ClippedSum) -> float:
    pairs = {"the norms of its per-example gradients": (batch.norms, singles.norms)}
    pairs |= {f"the clipped sum of {name}": (found, singles.sums[name]) for name, found in batch.sums.items()}
    deviations = {what: _deviation(found, expected) for what, (found, expected) in pairs.items()}
    for what, deviation in deviations.items():
        if deviation > 1e-3:
            raise _validate.UserError(
                f"model: {what} differ in a batch from those of single examples, expected them equal.{_MIXES}"
            )
    return max(deviations.values(), default=0.0)


def _deviation(found: Tensor, expected: Tensor) -> float:
    if not len(expected.flatten()):
        return 0.0
    scale = max(float(expected.abs().max()), 1e-3)
    return float((found - expected).abs().max()) / scale
