"""Budgets: what has been spent, what one more release would make of it, how many a budget admits."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from dpexp import _validate
from dpexp.accounting import calibration
from dpexp.accounting.accountant import AnyAccountant, Cost
from dpexp.accounting.accountants import AbstractLogMomentAccountant, LogMoments
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import NOTHING, Event, Relation

__all__ = ["Account", "Budget", "Phase", "delta_warning", "lots_within", "require_certified", "total"]

_BLOCK, _FEW = 2048, 64  # phases priced together, and how many are worth it


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An (ε, δ) that must not be passed; ε = None sets no limit.

    Attributes:
        epsilon: ε > 0 or None.
        delta: δ in (0, 1), at which every ε of the run is stated.
    """

    epsilon: float | None
    delta: float

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            epsilon = _validate.number("privacy.epsilon", self.epsilon, above=0)
            object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", _validate.fraction("privacy.delta", self.delta))


def require_certified(accountant: AnyAccountant) -> AnyAccountant:
    """Returns the accountant if it may be a run's configured one: its figures are proven upper bounds.

    Raises:
        UserError: It gives estimates, asymptotic or heuristic figures. They may stand beside, named so.
    """
    if accountant.kind is not Kind.CERTIFIED:
        hint = (
            f"A run stops and is quoted by what is proven; {accountant.name} may be shown beside it. "
            "Set accountant=pld (tightest), rdp or moments."
        )
        expected = f"an accountant whose figures are certified; its figures are {accountant.kind}"
        raise _validate.refuse("accountant", accountant.name, expected, hint)
    return accountant


def delta_warning(delta: float, num_examples: int) -> str | None:
    """What is wrong with a δ of 1/N or more, or None.

    Args:
        delta: δ in (0, 1).
        num_examples: N >= 1, declared and public.
    """
    if delta * num_examples < 1:
        return None
    return (
        f"privacy.delta = {delta:g} is not below 1/N = {1 / num_examples:.3g}: publishing one of the "
        f"{num_examples} rows, drawn at random, would satisfy it. Lower privacy.delta."
    )


@final
class Account:
    """A running total of releases under one accountant and relation.

    This is plain composition: valid because the parameters of every release are fixed before the first
    one (Abadi et al., 2016, Theorem 2.1). Parameters chosen from earlier results need a filter.
    """

    def __init__(self, accountant: AnyAccountant, relation: Relation, budget: Budget) -> None:
        self.accountant, self.relation, self.budget = accountant, Relation(relation), budget
        self._settled: Cost = accountant.zero
        self._price: Cost = accountant.zero
        self._event: Event | None = None
        self._count = 0

    def affords(self, event: Event) -> bool:
        """Whether the budget still holds after one more `event`."""
        if self.budget.epsilon is None:
            return True
        after = self.cost + self.accountant.price(event, self.relation)
        return float(self._epsilon(after)) <= self.budget.epsilon

    def charge(self, event: Event, times: int = 1) -> None:
        """Adds `times` of one event to the total."""
        if event == NOTHING:
            return
        if event != self._event:
            self.settle()
            self._event, self._price = event, self.accountant.price(event, self.relation)
        self._count += times

    def settle(self) -> None:
        """Closes what was charged: equal events that follow are counted apart, as `lots_within` does."""
        self._settled, self._count, self._event = self.cost, 0, None

    @property
    def cost(self) -> Cost:
        """The total, with equal events in a row counted and not summed.

        One by one, rounding would add up to another total than that of `lots_within`, and the last lot of
        a budget that is used up to the last digit would be refused.
        """
        return self._settled + self._count * self._price

    def epsilon(self) -> PrivacyBound:
        """ε of everything charged so far, at the budget's δ."""
        return self._epsilon(self.cost)

    def delta_at_budget(self) -> PrivacyBound | None:
        """δ of everything charged so far at the budget's ε; None where no ε is set."""
        if self.budget.epsilon is None:
            return None
        return self.accountant.delta(self.cost, self.budget.epsilon, self.relation)

    def _epsilon(self, cost: Cost) -> PrivacyBound:
        return self.accountant.epsilon(cost, self.budget.delta, self.relation)


@dataclass(frozen=True)
class Phase:
    """A stretch of lots that all release the same event, each or together.

    Attributes:
        event: What a lot releases; where `every` is above 1, what so many lots in a row release together.
        lots: How many lots there are.
        every: B >= 1, how many lots one event covers. It is charged at the first of them, and whole also
            where the stretch ends before the last.
    """

    event: Event
    lots: int
    every: int = 1

    @property
    def charges(self) -> int:
        """How often `event` is charged: ⌈lots/B⌉."""
        return -(-self.lots // self.every)

    def events(self) -> Iterator[Event]:
        """What each lot is charged as."""
        return (NOTHING if lot % self.every else self.event for lot in range(self.lots))


def lots_within(account: Account, phases: Iterable[Phase]) -> int:
    """How many lots, in order, the account's budget admits on top of what it has been charged.

    Args:
        account: Holds the budget and what was released before the first lot. It is not charged.
        phases: The lots in order; their parameters must be fixed in advance.

    Returns:
        The number of lots T such that ε after T lots is within the budget and after T+1 is not, or the
        number of lots there are.
    """
    spent, admitted = account.cost, 0
    for phase, price in _priced(account, phases):
        fit = _repetitions(account, spent, price, phase.charges)
        admitted += min(fit * phase.every, phase.lots)
        if fit < phase.charges:
            break
        spent = spent + phase.charges * price
    return admitted


def total(account: Account, phases: Sequence[Phase]) -> PrivacyBound:
    """ε after all the phases on top of what the account has been charged."""
    cost = account.cost
    for phase, price in _priced(account, phases):
        cost = cost + phase.charges * price
    return account._epsilon(cost)


def _priced(account: Account, phases: Iterable[Phase]) -> Iterator[tuple[Phase, Cost]]:
    """Each phase with the cost of its event; long schedules of distinct lots are priced together."""
    accountant, rest = account.accountant, iter(phases)
    while block := list(itertools.islice(rest, _BLOCK)):
        if isinstance(accountant, AbstractLogMomentAccountant) and len(block) > _FEW:
            alphas = accountant.price_many([phase.event for phase in block], account.relation)
            yield from zip(block, map(LogMoments, alphas), strict=True)
        else:
            yield from ((phase, accountant.price(phase.event, account.relation)) for phase in block)


def _repetitions(account: Account, spent: Cost, price: Cost, most: int) -> int:
    """The largest n <= most with ε(spent + n·price) within the budget (ε rises with n)."""
    epsilon = account.budget.epsilon

    def after(count: int) -> float:
        return float(account._epsilon(spent + count * price))

    if epsilon is None or most == 0 or after(most) <= epsilon:
        return most
    return calibration.most_steps(after, epsilon, at_most=most)
