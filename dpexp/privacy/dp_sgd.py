"""DP-SGD as configured: checked, σ solved, T cut to the budget, made into a plan."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from dpexp import _validate
from dpexp.accounting import (
    AnyAccountant,
    Budget,
    PrivacyBound,
    Relation,
    Release,
    RenyiAccountant,
    lots_within,
    require_certified,
    total,
)
from dpexp.accounting.calibration import smallest_noise_multiplier
from dpexp.budgets import FIXED, BudgetRule
from dpexp.lots import Sampling
from dpexp.plan import Guarantee, PrivacyPlan
from dpexp.privacy.clip_rule import as_clip_rule, check_start
from dpexp.privacy.layers import Layers
from dpexp.privacy.privacy import asked_steps, check_length
from dpexp.schedules import as_lot_size

__all__ = ["DPSGD"]

_ADAPTIVE = {"quantile": 0.5, "learning_rate": 0.2, "noise_std": None}  # of Andrew et al. (2021)
_MOST_LOTS = 10**9  # where ε alone ends training, the search for T stops here


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """Differentially private SGD (Abadi et al., 2016, arXiv 1607.00133v2, Algorithm 1).

    Attributes:
        noise_multiplier: σ > 0, a number or schedule: noise std ÷ C of each group without one of its
            own. None solves one common σ so that the run meets `epsilon`.
        clip_norm: C > 0, a number or schedule: L2 bound on one example's gradient.
        lot_size: L in (0, N], a number or schedule: expected lot size, and the divisor.
        steps: T >= 1, or None.
        epochs: T in epochs of N/L lots, or None; `steps` wins where both are set.
        epsilon: ε > 0, or None for no limit. Training ends at T or when the next lot would pass ε.
        delta: δ in (0, 1).
        relation: add_or_remove_one, replace_one or zero_out.
        clipping: `flat`, `automatic` or `adaptive`.
        noise: `default`, or `secure` (a stream cipher, against prediction and floating-point attacks).
        deterministic: Keys lots and noise by the seed: for tests, and claims no guarantee.
        layers: None for one joint clip over all parameters, or named groups of parameters.
        adaptive: For adaptive clipping, which starts from `clip_norm`: `quantile`, `learning_rate` and
            `noise_std` of the count (None for L/20).
    """

    noise_multiplier: Any = 4
    clip_norm: Any = 4
    lot_size: Any = 600
    steps: int | None = None
    epochs: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    relation: str = "add_or_remove_one"
    clipping: str = "flat"
    noise: str = "default"
    deterministic: bool = False
    layers: Mapping[str, Mapping[str, Any]] | None = None
    adaptive: Mapping[str, Any] | None = field(default_factory=lambda: dict(_ADAPTIVE))

    def __post_init__(self) -> None:
        _validate.fraction("privacy.delta", self.delta)
        _validate.one_of("privacy.relation", self.relation, [str(relation) for relation in Relation])
        as_clip_rule(self.clipping, self.adaptive)
        _validate.one_of("privacy.noise", self.noise, ["default", "secure"])
        if not isinstance(self.deterministic, bool):
            raise _validate.refuse("privacy.deterministic", self.deterministic, "true or false")
        if self.epsilon is not None:
            _validate.number("privacy.epsilon", self.epsilon, above=0, hint="null sets no limit.")
        check_length(self.steps, self.epochs)
        if self.noise_multiplier is None:
            self._check_solvable()

    def plan(
        self,
        *,
        num_examples: int,
        sampling: Sampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
        budget: BudgetRule = FIXED,
    ) -> PrivacyPlan:
        """The plan: σ solved where it is null, T cut to what the budget pays for.

        Args:
            num_examples: N, declared and public.
            sampling: How lots are drawn.
            accountant: The configured accountant.
            releases: What is released once, before the first lot.
            budget: What the run's spending is held to.

        Raises:
            UserError: A value is impossible, T is undetermined, or the budget pays for no lot.
        """
        require_certified(accountant)
        guarantee = self._guarantee(budget.solver(accountant), releases)
        draft = self._draft(num_examples, sampling, guarantee)
        if self.noise_multiplier is None:
            sigma = self._solve_noise_multiplier(draft)
            return replace(self, noise_multiplier=sigma).plan(
                num_examples=num_examples,
                sampling=sampling,
                accountant=accountant,
                releases=releases,
                budget=budget,
            )
        draft = budget.settle(draft)
        plan = replace(draft, steps=self._affordable(draft))
        plan.step(plan.steps - 1)  # schedules are monotone: what holds at both ends holds between
        return plan

    def ignored(self) -> Mapping[str, Any]:
        """`epochs`, where `steps` is set as well."""
        return {"epochs": self.epochs} if None not in (self.steps, self.epochs) else {}

    def _guarantee(self, accountant: AnyAccountant, releases: tuple[Release, ...]) -> Guarantee:
        beside = [other for other in (RenyiAccountant(),) if other.name != accountant.name]
        return Guarantee(
            accountant=accountant,
            companions=tuple(beside),
            relation=Relation(self.relation),
            budget=Budget(epsilon=self.epsilon, delta=self.delta),
            releases=releases,
        )

    def _draft(self, num_examples: int, sampling: Sampling, guarantee: Guarantee) -> PrivacyPlan:
        size = as_lot_size("privacy.lot_size", self.lot_size)
        layers = Layers(
            entries=self.layers,
            clip_norm=self.clip_norm,
            noise_multiplier=1.0 if self.noise_multiplier is None else self.noise_multiplier,
            lot_size=size,
            clipping=as_clip_rule(self.clipping, self.adaptive),
        )
        check_start(layers.groups)
        asked = asked_steps(self.steps, self.epochs, layers.lots[0].size, num_examples, sampling)
        draft = PrivacyPlan(
            num_examples=num_examples,
            sampling=sampling,
            lots=layers.lots,
            groups=layers.groups,
            steps=asked or _MOST_LOTS,
            steps_asked=asked,
            noise=self.noise,
            deterministic=self.deterministic,
            guarantee=guarantee,
        )
        draft.step(0)  # every value is checked before anything is solved
        return draft

    def _check_solvable(self) -> None:
        if self.epsilon is None or (self.steps is None and self.epochs is None):
            raise _validate.refuse(
                "privacy.noise_multiplier",
                None,
                "a number, or privacy.epsilon and privacy.steps (or epochs) to solve it from",
            )
        entries = (self.layers or {}).values()
        if entries and all(entry.get("noise_multiplier") is not None for entry in entries):
            raise _validate.refuse(
                "privacy.noise_multiplier",
                None,
                "at least one group without a noise_multiplier of its own, to solve for",
                "Leave one entry's noise_multiplier out, or give privacy.noise_multiplier a number.",
            )

    def _solve_noise_multiplier(self, draft: PrivacyPlan) -> float:
        assert self.epsilon is not None

        def epsilon_at(sigma: float) -> PrivacyBound:
            assert draft.guarantee is not None
            candidate = replace(self, noise_multiplier=sigma)._draft(
                draft.num_examples, draft.sampling, draft.guarantee
            )
            account = draft.guarantee.charged_account(draft.guarantee.accountant)
            return total(account, list(candidate.phases(candidate.steps)))

        try:
            sigma = smallest_noise_multiplier(epsilon_at, self.epsilon, key="privacy.epsilon")
        except _validate.UserError as error:
            if self.clipping != "adaptive":
                raise
            hint = "The counts of privacy.clipping=adaptive are in it: raise privacy.adaptive.noise_std."
            raise _validate.UserError(f"{error}\n{hint}") from error
        _refuse_a_leap(epsilon_at(sigma / 1.001), self.epsilon, sigma)
        short = _rounded_up(sigma)  # so that the number that is printed is the one that is used
        return short if epsilon_at(short) <= self.epsilon else sigma

    def _affordable(self, draft: PrivacyPlan) -> int:
        if self.epsilon is None and draft.steps_asked is None:
            hint = "+experiment=NAME sets all that belongs together; python -m dpexp --help lists them."
            raise _validate.refuse(
                "privacy.steps", None, "a number, or privacy.epochs or privacy.epsilon, to end training", hint
            )
        assert draft.guarantee is not None
        account = draft.guarantee.charged_account(draft.guarantee.accountant)
        most = draft.foreseeable
        admitted = lots_within(account, draft.phases(most))
        if admitted == 0:
            raise _cannot_afford(account.epsilon(), draft)
        if admitted == most and draft.steps_asked is None:
            raise _validate.refuse(
                "privacy.steps", None, f"a number, since privacy.epsilon alone admits over {most:,} lots"
            )
        return admitted


def _refuse_a_leap(just_below: PrivacyBound, epsilon: float, sigma: float) -> None:
    """The moments accountant leaps from log(1/δ)/32 to 0 where noise hides all: no σ to train with."""
    if just_below > 1.05 * epsilon:
        hint = "A larger δ moves the limit down."
        raise _validate.refuse(
            "privacy.epsilon",
            epsilon,
            f"at least {1.001 * just_below:.3g}: below it {just_below.accountant} certifies nothing with a σ "
            f"under {sigma:.3g}",
            hint if just_below.accountant == "pld" else f"accountant=pld reaches further down. {hint}",
        )


def _rounded_up(sigma: float) -> float:
    """To seven significant digits."""
    unit = 10.0 ** (6 - math.floor(math.log10(sigma)))
    return math.ceil(sigma * unit) / unit


def _cannot_afford(before: float, draft: PrivacyPlan) -> _validate.UserError:
    assert draft.guarantee is not None
    budget, releases = draft.guarantee.budget, draft.guarantee.releases
    assert budget.epsilon is not None
    names = " and ".join(release.name for release in releases)
    hint = "Raise privacy.epsilon or the noise multipliers"
    if releases and float(before) > budget.epsilon:
        expected = f"at least {_round_up(before)}, what {names} alone costs"
        hint += " under features"
    else:
        one = draft.guarantee.charged_account(draft.guarantee.accountant)
        event = draft.step(0).event
        assert event is not None
        one.charge(event)
        one_charge = "one epoch" if draft.sampling.by_epoch else "one lot"
        together = f"{names} and {one_charge} cost" if names else f"{one_charge} costs"
        expected = f"at least {_round_up(one.epsilon())}, what {together}"
        hint += ", or set sampling=poisson" if draft.sampling.by_epoch else ", or lower privacy.lot_size"
    hint += "." if draft.guarantee.accountant.name == "pld" else ", or set accountant=pld, which is tighter."
    accountant = draft.guarantee.accountant
    expected += f" at δ = {budget.delta:g} ({accountant.kind}, accountant {accountant.name})"
    return _validate.refuse("privacy.epsilon", budget.epsilon, expected, hint)


def _round_up(epsilon: float) -> str:
    return f"{math.ceil(float(epsilon) * 1e4) / 1e4:.4f}"
