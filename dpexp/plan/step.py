"""What happens at one step: its lots, its groups of parameters, and what they release."""

from dataclasses import dataclass, replace

from dpexp.accounting import (
    Event,
)
from dpexp.clip_rules import ClipRule, Flat, FractionQuery
from dpexp.lots import LotStep
from dpexp.schedules import AbstractSchedule

__all__ = ["Group", "GroupStep", "LotSpec", "StepPlan"]

_FLAT = Flat()


@dataclass(frozen=True, kw_only=True)
class LotSpec:
    """A lot that is drawn independently of the others; `size` is its expected size L over time."""

    name: str
    size: AbstractSchedule


@dataclass(frozen=True, kw_only=True)
class Group:
    """Parameters with one joint clip norm.

    Attributes:
        name: The entry's name in `privacy.layers`.
        patterns: Shell-style patterns of parameter names.
        clip_norm: C > 0 over time (∞ without privacy).
        noise_multiplier: σ over time: noise std ÷ C (0 without privacy).
        lot: Name of the lot its gradients come from.
        clipping: How gradients are bounded by C; where it is adaptive, C is where it starts.
    """

    name: str
    patterns: tuple[str, ...]
    clip_norm: AbstractSchedule
    noise_multiplier: AbstractSchedule
    lot: str
    clipping: ClipRule = _FLAT


@dataclass(frozen=True, kw_only=True)
class GroupStep:
    """One group at one step.

    Attributes:
        clip_norm: C, the bound on one example's gradient over the group. Where clipping is adaptive, C_0: the
            sanitizer knows the C in force.
        noise_multiplier: σ.
        noise_std: σC, the std of the noise on the *sum* of clipped gradients (0 without privacy).
        lot: The lot that its sum runs over.
        divisor: L, the lot's *expected* size.
        clipping: How gradients are bounded by C.
    """

    name: str
    clip_norm: float
    noise_multiplier: float
    noise_std: float
    lot: str
    divisor: float
    clipping: ClipRule = _FLAT

    @property
    def query(self) -> FractionQuery | None:
        """What is asked of the lot beside its gradients."""
        return self.clipping.query(self.divisor)

    def at_clip_norm(self, clip_norm: float) -> "GroupStep":
        """The same with another C, and so another noise std: σ stays."""
        return replace(self, clip_norm=clip_norm, noise_std=self.noise_multiplier * clip_norm)


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """All that happens to the data at one optimizer step, `index` = 0, 1, 2 and so on.

    `event` is what the step is charged as: None without privacy, `NOTHING` where the first lot of its epoch
    was charged for the whole epoch.
    """

    index: int
    lots: tuple[LotStep, ...]
    groups: tuple[GroupStep, ...]
    event: Event | None
