"""The interface of the `privacy` config group, and the length of training that all its options share."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from dpexp import _validate
from dpexp.accounting import AnyAccountant, Release
from dpexp.budgets import BudgetRule
from dpexp.lots import Sampling
from dpexp.plan import PrivacyPlan
from dpexp.schedules import AbstractSchedule, Constant

__all__ = ["Privacy", "asked_steps", "check_length"]


class Privacy(Protocol):
    """Either DP-SGD or none: turns a configuration into a plan."""

    def plan(
        self,
        *,
        num_examples: int,
        sampling: Sampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
        budget: BudgetRule,
    ) -> PrivacyPlan:
        """The plan, before any data is touched."""
        ...

    def ignored(self) -> Mapping[str, Any]:
        """Keys that were set and have no effect."""
        ...


def check_length(steps: Any, epochs: Any) -> None:
    """Refuses an impossible T."""
    if steps is not None:
        _validate.integer("privacy.steps", steps, at_least=1)
    if epochs is not None:
        _validate.number("privacy.epochs", epochs, above=0)


def asked_steps(
    steps: Any, epochs: Any, size: AbstractSchedule, num_examples: int, sampling: Sampling
) -> int | None:
    """T as configured: `steps`, else `epochs` of so many lots as the sampler has, else None."""
    if steps is not None:
        return int(steps)
    if epochs is None:
        return None
    if not isinstance(size, Constant):
        raise _validate.refuse(
            "privacy.epochs", epochs, "privacy.steps instead, since lot_size (and so the epoch) varies"
        )
    lot_size = _validate.number("privacy.lot_size", size.value, above=0)
    sampling.check("privacy.lot_size", lot_size, num_examples)
    lots_per_epoch = sampling.lots_per_epoch(lot_size, num_examples)
    return max(math.ceil(float(epochs) * lots_per_epoch * (1 - 1e-12)), 1)
