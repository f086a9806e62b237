"""Training without privacy, on the same path."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

from dpexp import _validate
from dpexp.accounting import AnyAccountant, Release
from dpexp.budgets import FIXED, BudgetRule
from dpexp.lots import Sampling
from dpexp.plan import COMMON_LOT, Group, LotSpec, PrivacyPlan
from dpexp.privacy.privacy import asked_steps, check_length
from dpexp.schedules import AbstractSchedule, Constant, as_lot_size

__all__ = ["NoPrivacy"]


@final
@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The same training without clipping and noise; claims nothing, and no ε is computed anywhere.

    Takes every key of `DPSGD`, so that `privacy=none` can follow any experiment; uses `lot_size` and
    `steps` or `epochs`, and ignores the others.
    """

    lot_size: Any = 600
    steps: int | None = None
    epochs: float | None = None
    noise_multiplier: Any = None
    clip_norm: Any = None
    epsilon: Any = None
    delta: Any = None
    relation: Any = None
    clipping: Any = None
    adaptive: Any = None
    noise: Any = None
    deterministic: bool = False
    layers: Any = None

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs)
        if self.steps is None and self.epochs is None:
            raise _validate.refuse(
                "privacy.steps", None, "a number, or privacy.epochs: without ε only they end training"
            )

    def plan(
        self,
        *,
        num_examples: int,
        sampling: Sampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
        budget: BudgetRule = FIXED,
    ) -> PrivacyPlan:
        """The plan; `accountant` and `releases` are not used.

        Raises:
            UserError: The data set has a budget that runs share, which a run without privacy would pass.
        """
        if budget.shared:
            hint = "A run without privacy spends any budget at once. Train on data without data.budget_id."
            raise _validate.refuse("privacy", "none", "DP-SGD with budget=dataset", hint)
        size = as_lot_size("privacy.lot_size", self.lot_size)
        steps = asked_steps(self.steps, self.epochs, size, num_examples, sampling)
        assert steps is not None
        everything = Group(
            name="all",
            patterns=("*",),
            clip_norm=_Infinite(),
            noise_multiplier=Constant(0.0),
            lot=COMMON_LOT,
        )
        plan = PrivacyPlan(
            num_examples=num_examples,
            sampling=sampling,
            lots=(LotSpec(name=COMMON_LOT, size=size),),
            groups=(everything,),
            steps=steps,
            steps_asked=steps,
            noise="none",
            deterministic=self.deterministic,
            guarantee=None,
        )
        for index in (0, steps - 1):  # schedules are monotone: what holds at both ends holds between
            plan.step(index)
        return plan

    def ignored(self) -> Mapping[str, Any]:
        """Every key that is set and has no meaning without privacy."""
        used = ("lot_size", "steps", "epochs", "deterministic")
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in used and not _is_unset(getattr(self, field.name))
        }


def _is_unset(value: Any) -> bool:
    if isinstance(value, Mapping) and value:
        return all(part is None for part in value.values())
    return value is None


class _Infinite(AbstractSchedule):
    """C = ∞: nothing is clipped."""

    def at(self, lot: int, lots_per_epoch: float) -> float:
        return math.inf

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        return math.inf

    @property
    def in_words(self) -> str:
        return "∞"
