"""ε after every lot of a run, at once."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountant import AnyAccountant, Cost
from dpexp.accounting.accountants import AbstractLogMomentAccountant, LogMoments
from dpexp.accounting.budget import Phase
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.moments import Array

__all__ = ["epsilons_after", "trajectory"]

_BLOCK = 256  # lots at once: a (256, 149) table of moments stays in the cache
_MOST_LOTS = 10**8
_MOST_CONVERSIONS = 1000  # one by one, for accountants that cannot convert a table


def trajectory(
    accountant: AnyAccountant,
    relation: Relation,
    phases: Sequence[Phase],
    *,
    delta: float,
    before: Sequence[Event] = (),
) -> Array:
    """ε after 1, 2, …, T lots.

    Args:
        accountant: One that adds up log moments; others convert too slowly for every lot (`epsilons_after`).
        relation: The neighboring relation.
        phases: The T lots in order, fixed in advance.
        delta: δ in (0, 1).
        before: What is released before the first lot.

    Returns:
        ε, shape (T,), of the accountant's kind.

    Raises:
        UserError: The accountant does not add up log moments, or T > 10⁸.
        UnsupportedEventError: The accountant has no bound for a part of an event.
    """
    if not isinstance(accountant, AbstractLogMomentAccountant):
        hint = "Use epsilons_after with the lots you want to see, or accountant=rdp."
        raise _validate.refuse("accountant", accountant.name, "moments or rdp for ε after every lot", hint)
    lots = sum(phase.lots for phase in phases)
    _validate.number("steps", lots, at_most=_MOST_LOTS)
    relation, delta = Relation(relation), _validate.fraction("delta", delta)
    spent = cast(LogMoments, _cost(accountant, relation, before)).alpha
    curves = [np.empty(0)]
    for phase in phases:
        alpha = accountant.price(phase.event, relation).alpha
        curves += _phase(accountant, spent, alpha, phase, delta)
        spent = spent + (phase.charges * LogMoments(alpha)).alpha
    return np.concatenate(curves)


def epsilons_after(
    accountant: AnyAccountant, relation: Relation, event: Event, counts: Iterable[int], *, delta: float
) -> Array:
    """ε of `event` repeated n times, for every n in `counts`, under any accountant.

    Args:
        accountant: Any.
        relation: The neighboring relation.
        event: What every lot releases.
        counts: n >= 0, at most 1000 of them, in any order.
        delta: δ in (0, 1).

    Returns:
        ε, shape (len(counts),), of the accountant's kind.
    """
    wanted = [_validate.integer("steps", count, at_least=0) for count in counts]
    _validate.number("number of steps asked for", len(wanted), at_most=_MOST_CONVERSIONS)
    relation, delta = Relation(relation), _validate.fraction("delta", delta)
    price: Cost = accountant.price(event, relation)
    return np.array([float(accountant.epsilon(count * price, delta, relation)) for count in wanted])


def _cost(accountant: AnyAccountant, relation: Relation, events: Sequence[Event]) -> Cost:
    cost: Cost = accountant.zero
    for event in events:
        cost = cost + accountant.price(event, relation)
    return cost


def _phase(
    accountant: AbstractLogMomentAccountant, spent: Array, alpha: Array, phase: Phase, delta: float
) -> list[Array]:
    curves = []
    for start in range(0, phase.lots, _BLOCK):
        lots = np.arange(start + 1.0, min(start + _BLOCK, phase.lots) + 1)
        counts = np.ceil(lots / phase.every)
        curves.append(accountant.epsilons(spent + counts[:, np.newaxis] * alpha, delta))
    return curves
