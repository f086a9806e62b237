"""`PrivacyPlan`: what training does with the data, step by step."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import final

from dpexp import _validate
from dpexp.accounting import (
    NOTHING,
    Composed,
    Event,
    Gaussian,
    Phase,
    joint,
)
from dpexp.clip_rules import released
from dpexp.lots import LotStep, Sampling
from dpexp.plan.guarantee import Guarantee
from dpexp.plan.step import Group, GroupStep, LotSpec, StepPlan

__all__ = ["COMMON_LOT", "LONGEST_SCHEDULE", "PrivacyPlan"]

COMMON_LOT = "common"
LONGEST_SCHEDULE = 50_000  # lots; a schedule that moves for longer needs a T to be priced


@final
@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What training does with the data, fixed before the first lot.

    Attributes:
        num_examples: N, declared and public.
        sampling: How lots are drawn.
        lots: The independent lots of each step.
        groups: The clipped groups; together they cover every trainable parameter.
        steps: T, the optimizer steps.
        steps_asked: T as configured, before the budget had its say; None where only ε limits it.
        noise: `none`, `default` or `secure`: what the noise is drawn with.
        deterministic: Lots and noise are keyed by the seed: figures are then arithmetic, no guarantee.
        guarantee: None without privacy.
    """

    num_examples: int
    sampling: Sampling
    lots: tuple[LotSpec, ...]
    groups: tuple[Group, ...]
    steps: int
    steps_asked: int | None
    noise: str
    deterministic: bool
    guarantee: Guarantee | None

    def __post_init__(self) -> None:
        if self.sampling.by_epoch:
            self._check_epochs()

    @property
    def lots_per_epoch(self) -> float:
        """Lots per epoch of the first lot at the first step: N/L, one epoch in expectation."""
        return self.sampling.lots_per_epoch(self.lots[0].size.at(0, math.nan), self.num_examples)

    @property
    def lots_per_charge(self) -> int:
        """How many lots one charge covers: those of an epoch where lots depend on each other, else 1."""
        return int(self.lots_per_epoch) if self.sampling.by_epoch else 1

    @property
    def settles(self) -> bool:
        """Whether all schedules are constant, or become so within `LONGEST_SCHEDULE` lots."""
        return self._changes_after(LONGEST_SCHEDULE) == math.inf

    @property
    def foreseeable(self) -> int:
        """How many lots can be priced beforehand: T as asked for, else as far as schedules are known."""
        return self.steps if self.steps_asked or self.settles else LONGEST_SCHEDULE

    def step(self, index: int) -> StepPlan:
        """What happens at step t = `index` >= 0."""
        stretch = next((kept for kept in self._kept if index in kept.indices), None)
        if stretch is None:
            first = self._step(index)  # checks its values
            stretch = _Stretch(range(index, self._next_unlike(index)), first)
            self._kept[:] = [stretch]
        return replace(stretch.first, index=index)

    @cached_property
    def _kept(self) -> list["_Stretch"]:
        """The stretch last asked for: several rooms ask at every lot."""
        return []

    def _next_unlike(self, index: int) -> int:
        every = self.lots_per_charge
        charged_next = math.inf if every == 1 else index + (1 if index % every == 0 else -index % every)
        return int(min(self._changes_after(index), charged_next, sys.maxsize))

    def lot_steps(self, index: int) -> tuple[LotStep, ...]:
        """The lots of step t = `index`, as in `step`, for who draws them ahead."""
        return tuple(self._lot_step(lot, index) for lot in self.lots)

    def _step(self, index: int) -> StepPlan:
        lots = self.lot_steps(index)
        sizes = {lot.name: lot.size for lot in lots}
        groups = tuple(self._group_step(group, sizes[group.lot], index) for group in self.groups)
        event = None if self.guarantee is None else self._event(index, lots, groups)
        return StepPlan(index=index, lots=lots, groups=groups, event=event)

    def phases(self, steps: int, *, first: int = 0) -> Iterator[Phase]:
        """The events of the steps from `first` until before `steps` in order, equal neighbors together.

        What begins inside an epoch that is priced as one is charged for the whole of it: its lots were drawn
        apart from those before.

        Raises:
            UserError: What is released changes within an epoch that is priced as one.
        """
        index, every = first, self.lots_per_charge
        while index < steps:
            begun = index % every
            event = self.step(index - begun).event
            if event is None:
                raise ValueError("A plan without privacy has no events.")
            # Whole epochs up to the one in which something changes, which is then looked at alone.
            change = min(self._changes_after(index), steps)
            whole = steps if change == steps else max(int(change) // every * every, index + every)
            until = min(index - begun + every if begun else whole, steps)
            yield Phase(event, until - index, every)
            index = until

    def assign(self, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The parameter names of each group.

        Raises:
            UserError: A pattern matches nothing, or a name is matched by no group or by two.
        """
        names = list(names)
        for group in self.groups:
            for pattern in group.patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    raise _no_match(group.name, pattern, names)
        owners = {name: [group.name for group in self.groups if _matches(name, group)] for name in names}
        for name, groups in owners.items():
            if len(groups) != 1:
                raise _not_one_owner(name, groups)
        return {
            group.name: tuple(name for name in names if owners[name] == [group.name]) for group in self.groups
        }

    def check_rows(self, num_rows: int) -> None:
        """Refuses data for which the lots are not what they were priced as.

        Args:
            num_rows: The true number of training rows.

        Raises:
            UserError: It is not N, and the sampler needs N to be true.
        """
        if self.sampling.needs_num_examples and num_rows != self.num_examples:
            hint = (
                f"Lots of sampling={self.sampling.name} are priced for a public and true number of rows; "
                "sampling=poisson holds for any."
            )
            raise _validate.refuse("data.num_examples", self.num_examples, f"{num_rows} training rows", hint)

    def _check_epochs(self) -> None:
        """One epoch for all lots, of so many lots from first to last."""
        name = self.sampling.name
        for lot in self.lots:
            if lot.size.changes_after(0, math.nan) != math.inf:
                raise _validate.refuse(
                    _size_key(lot), lot.size.in_words, f"a number: lots of sampling={name} come in epochs"
                )
            if lot.size.at(0, math.nan) != self.lots[0].size.at(0, math.nan):
                raise _validate.refuse(
                    _size_key(lot),
                    lot.size.at(0, math.nan),
                    f"the size of the other lots: with sampling={name} all have the same epoch",
                    "Leave it out to share one lot, or set sampling=poisson.",
                )
        self._lot_step(self.lots[0], 0)

    def _check_same_noise(self, index: int) -> None:
        """An epoch's event is that of one σ in all its lots."""
        for group in self.groups:
            until = group.noise_multiplier.changes_after(index, self.lots_per_epoch)
            if until < index + self.lots_per_charge:
                raise _validate.refuse(
                    "privacy.noise_multiplier",
                    group.noise_multiplier.in_words,
                    f"a σ that stays the same within an epoch; in group {group.name!r} it changes at step "
                    f"{int(until)}, and an epoch has {self.lots_per_charge} lots",
                    f"An epoch of sampling={self.sampling.name} has one price: use "
                    "dpexp.schedules.Step with unit: epochs, a constant, or sampling=poisson.",
                )

    def _lot_step(self, lot: LotSpec, index: int) -> LotStep:
        size = lot.size.at(index, math.nan)
        key = _size_key(lot)
        hint = f"q = L/N must be at most 1; N = data.num_examples = {self.num_examples}; at step {index}."
        _validate.number(key, size, above=0, at_most=self.num_examples, hint=hint)
        self.sampling.check(key, size, self.num_examples)
        return LotStep(name=lot.name, size=size, sampling_probability=size / self.num_examples)

    def _group_step(self, group: Group, divisor: float, index: int) -> GroupStep:
        clip_norm = group.clip_norm.at(index, self.lots_per_epoch)
        sigma = group.noise_multiplier.at(index, self.lots_per_epoch)
        if self.guarantee is not None:
            where = f"In group {group.name!r} at step {index}."
            _validate.number("privacy.clip_norm", clip_norm, above=0, hint=where)
            _validate.number("privacy.noise_multiplier", sigma, above=0, hint=f"{where} {_NO_NOISE}")
        return GroupStep(
            name=group.name,
            clip_norm=clip_norm,
            noise_multiplier=sigma,
            noise_std=sigma * clip_norm if sigma else 0.0,
            lot=group.lot,
            divisor=divisor,
            clipping=group.clipping,
        )

    def _event(self, index: int, lots: tuple[LotStep, ...], groups: tuple[GroupStep, ...]) -> Event:
        if index % self.lots_per_charge:
            return NOTHING  # the epoch was charged, whole, at its first lot
        if self.sampling.by_epoch:
            self._check_same_noise(index)
        # Groups on one lot, and what is asked beside them, are one Gaussian release; separate lots are
        # separate sampled releases.
        events = tuple(
            self.sampling.event(
                joint([part for g in groups if g.lot == lot.name for part in _released(g)]),
                lot.size,
                self.num_examples,
            )
            for lot in lots
        )
        return events[0] if len(events) == 1 else Composed(events)

    def _changes_after(self, index: int) -> float:
        schedules = [(lot.size, math.nan) for lot in self.lots]
        for group in self.groups:
            schedules += [(s, self.lots_per_epoch) for s in (group.clip_norm, group.noise_multiplier)]
        return min(schedule.changes_after(index, epoch) for schedule, epoch in schedules)


@dataclass(frozen=True)
class _Stretch:
    """Steps that differ in nothing but their index."""

    indices: range
    first: StepPlan


_NO_NOISE = "No noise means ε = ∞; train without privacy by setting privacy=none."


def _released(group: GroupStep) -> tuple[Gaussian, ...]:
    return released(group.clipping, group.noise_multiplier, group.divisor)


def _size_key(lot: LotSpec) -> str:
    return "privacy.lot_size" if lot.name == COMMON_LOT else f"privacy.layers.{lot.name}.lot_size"


def _matches(name: str, group: Group) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in group.patterns)


def _no_match(group: str, pattern: str, names: list[str]) -> _validate.UserError:
    layers = {f"{name.rpartition('.')[0].partition('.')[0]}.*" for name in names if "." in name}
    meant = _validate.did_you_mean(pattern, sorted({*layers, *names}))
    return _validate.refuse(
        f"privacy.layers.{group}.parameters",
        pattern,
        f"a pattern that matches a trainable parameter: {', '.join(names) or 'there is none'}",
        f"{meant} privacy.layers=null clips all of them together.".lstrip(),
    )


def _not_one_owner(name: str, groups: list[str]) -> _validate.UserError:
    found = f"matched by {' and '.join(groups)}" if groups else "matched by no group"
    return _validate.UserError(
        f"privacy.layers: parameter {name} is {found}, expected exactly one.\n"
        "Every trainable parameter belongs to one group: change `parameters` of the entries, freeze the "
        "parameter, or set privacy.layers=null for one joint clip norm over all of them."
    )
