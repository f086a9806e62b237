"""The `privacy` config group: what a user asks for, checked, and made into a plan."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, final

from dpexp import _validate
from dpexp.accounting import (
    Account,
    AnyAccountant,
    Budget,
    Kind,
    Relation,
    Release,
    RenyiAccountant,
    lots_within,
)
from dpexp.accounting.budget import total
from dpexp.accounting.calibration import smallest_noise_multiplier
from dpexp.lots import PoissonSampling
from dpexp.plan import COMMON_LOT, Group, Guarantee, LotSpec, PrivacyPlan
from dpexp.schedules import AbstractSchedule, Constant, as_schedule

__all__ = ["DPSGD", "AbstractPrivacy", "NoPrivacy"]

_ENTRY_KEYS = ("parameters", "clip_norm", "noise_multiplier", "lot_size", "lot")
# Where ε alone ends training, the search for T stops here; where σ or C change at every lot, sooner.
_MOST_LOTS = 10**9
_MOST_LOTS_IN_MOTION = 200_000


class AbstractPrivacy(Protocol):
    """Either DP-SGD or none: turns a configuration into a plan."""

    def plan(
        self,
        *,
        num_examples: int,
        sampling: PoissonSampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
    ) -> PrivacyPlan:
        """The plan, before any data is touched."""
        ...

    def ignored(self) -> Mapping[str, Any]:
        """Keys that were set and have no effect."""
        ...


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
        clipping: `flat`.
        noise: `default`.
        deterministic: Keys lots and noise by the seed: for tests, and claims no guarantee.
        layers: None for one joint clip over all parameters, or named groups of parameters.
    """

    noise_multiplier: Any
    clip_norm: Any
    lot_size: Any
    steps: int | None
    epochs: float | None
    epsilon: float | None
    delta: float
    relation: str
    clipping: str
    noise: str
    deterministic: bool
    layers: Mapping[str, Mapping[str, Any]] | None

    def __post_init__(self) -> None:
        _validate.fraction("privacy.delta", self.delta)
        _validate.one_of("privacy.relation", self.relation, [str(relation) for relation in Relation])
        _validate.one_of("privacy.clipping", self.clipping, ["flat"])
        _validate.one_of("privacy.noise", self.noise, ["default"])
        if not isinstance(self.deterministic, bool):
            raise _validate.refuse("privacy.deterministic", self.deterministic, "true or false")
        if self.epsilon is not None:
            _validate.number("privacy.epsilon", self.epsilon, above=0, hint="null sets no limit.")
        _check_length(self.steps, self.epochs)
        if self.noise_multiplier is None:
            self._check_solvable()

    def plan(
        self,
        *,
        num_examples: int,
        sampling: PoissonSampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
    ) -> PrivacyPlan:
        """The plan: σ solved where it is null, T cut to what the budget pays for.

        Args:
            num_examples: N, declared and public.
            sampling: How lots are drawn.
            accountant: The configured accountant.
            releases: What is released once, before the first lot.

        Raises:
            UserError: A value is impossible, T is undetermined, or the budget pays for no lot.
        """
        guarantee = self._guarantee(accountant, releases)
        draft = self._draft(num_examples, sampling, guarantee)
        if self.noise_multiplier is None:
            sigma = self._solve_noise_multiplier(draft)
            return replace(self, noise_multiplier=sigma).plan(
                num_examples=num_examples, sampling=sampling, accountant=accountant, releases=releases
            )
        return replace(draft, steps=self._affordable(draft))

    def ignored(self) -> Mapping[str, Any]:
        """`epochs`, where `steps` is set as well."""
        return {"epochs": self.epochs} if None not in (self.steps, self.epochs) else {}

    def _guarantee(self, accountant: AnyAccountant, releases: tuple[Release, ...]) -> Guarantee:
        if accountant.kind is not Kind.CERTIFIED:
            raise _validate.refuse(
                "accountant", accountant.name, "a certified upper bound", f"It gives an {accountant.kind}."
            )
        beside = [other for other in (RenyiAccountant(),) if other.name != accountant.name]
        return Guarantee(
            accountant=accountant,
            companions=tuple(beside),
            relation=Relation(self.relation),
            budget=Budget(epsilon=self.epsilon, delta=self.delta),
            releases=releases,
        )

    def _draft(self, num_examples: int, sampling: PoissonSampling, guarantee: Guarantee) -> PrivacyPlan:
        size = as_schedule("privacy.lot_size", self.lot_size)
        groups, lots = self._groups(size)
        asked = _asked_steps(self.steps, self.epochs, size, num_examples)
        draft = PrivacyPlan(
            num_examples=num_examples,
            sampling=sampling,
            lots=lots,
            groups=groups,
            steps=asked or _MOST_LOTS,
            steps_asked=asked,
            deterministic=self.deterministic,
            guarantee=guarantee,
        )
        draft.step(0)  # every value is checked before anything is solved
        return draft

    def _groups(self, size: AbstractSchedule) -> tuple[tuple[Group, ...], tuple[LotSpec, ...]]:
        common = LotSpec(name=COMMON_LOT, size=size)
        if self.layers is None:
            everything = {"all": {"parameters": ["*"]}}
            return tuple(self._group(name, entry, COMMON_LOT) for name, entry in everything.items()), (
                common,
            )
        entries = _check_entries(self.layers)
        own = {
            name: LotSpec(name=name, size=_own(name, "lot_size", entry["lot_size"]))
            for name, entry in entries.items()
            if entry.get("lot_size") is not None
        }
        groups = tuple(self._group(name, entry, _lot_of(name, entry, own)) for name, entry in entries.items())
        used = {group.lot for group in groups}
        return groups, tuple(lot for lot in (common, *own.values()) if lot.name in used)

    def _group(self, name: str, entry: Mapping[str, Any], lot: str) -> Group:
        patterns = entry["parameters"]
        return Group(
            name=name,
            patterns=(patterns,) if isinstance(patterns, str) else tuple(patterns),
            clip_norm=self._inherit(name, entry, "clip_norm", self.clip_norm),
            noise_multiplier=self._inherit(name, entry, "noise_multiplier", self._common_sigma()),
            lot=lot,
        )

    def _inherit(self, name: str, entry: Mapping[str, Any], key: str, common: Any) -> AbstractSchedule:
        if entry.get(key) is not None:
            return _own(name, key, entry[key])
        return as_schedule(f"privacy.{key}", common)

    def _common_sigma(self) -> Any:
        return 1.0 if self.noise_multiplier is None else self.noise_multiplier

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

        def epsilon_at(sigma: float) -> float:
            assert draft.guarantee is not None
            candidate = replace(self, noise_multiplier=sigma)._draft(
                draft.num_examples, draft.sampling, draft.guarantee
            )
            account = charged(draft.guarantee, draft.guarantee.accountant)
            return float(total(account, list(candidate.phases(candidate.steps))))

        return smallest_noise_multiplier(epsilon_at, self.epsilon, key="privacy.epsilon")

    def _affordable(self, draft: PrivacyPlan) -> int:
        if self.epsilon is None and draft.steps_asked is None:
            raise _validate.refuse(
                "privacy.steps", None, "a number, or privacy.epochs or privacy.epsilon, to end training"
            )
        assert draft.guarantee is not None
        account = charged(draft.guarantee, draft.guarantee.accountant)
        most = draft.steps if draft.steps_asked or draft.settles else _MOST_LOTS_IN_MOTION
        admitted = lots_within(account, draft.phases(most))
        if admitted == 0:
            raise _cannot_afford(account.epsilon(), draft)
        if admitted == most and draft.steps_asked is None:
            raise _validate.refuse(
                "privacy.steps", None, f"a number, since privacy.epsilon alone admits over {most:,} lots"
            )
        return admitted


@final
@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The same training without clipping and noise; claims nothing, and no ε is computed anywhere.

    Takes every key of `DPSGD`, so that `privacy=none` can follow any experiment; uses `lot_size` and
    `steps` or `epochs`, and ignores the others.
    """

    lot_size: Any
    steps: int | None
    epochs: float | None
    noise_multiplier: Any = None
    clip_norm: Any = None
    epsilon: Any = None
    delta: Any = None
    relation: Any = None
    clipping: Any = None
    noise: Any = None
    deterministic: bool = False
    layers: Any = None

    def __post_init__(self) -> None:
        _check_length(self.steps, self.epochs)
        if self.steps is None and self.epochs is None:
            raise _validate.refuse(
                "privacy.steps", None, "a number, or privacy.epochs: without ε only they end training"
            )

    def plan(
        self,
        *,
        num_examples: int,
        sampling: PoissonSampling,
        accountant: AnyAccountant,
        releases: tuple[Release, ...],
    ) -> PrivacyPlan:
        """The plan; `accountant` and `releases` are not used."""
        size = as_schedule("privacy.lot_size", self.lot_size)
        steps = _asked_steps(self.steps, self.epochs, size, num_examples)
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
            if field.name not in used and getattr(self, field.name) is not None
        }


class _Infinite(AbstractSchedule):
    """C = ∞: nothing is clipped."""

    def at(self, lot: int, lots_per_epoch: float) -> float:
        return math.inf

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        return math.inf

    @property
    def in_words(self) -> str:
        return "∞"


def charged(guarantee: Guarantee, accountant: AnyAccountant) -> Account:
    """An account that has already paid for the releases before the first lot."""
    account = guarantee.open_account(accountant)
    for release in guarantee.releases:
        account.charge(release.event)
    return account


def _check_length(steps: Any, epochs: Any) -> None:
    if steps is not None:
        _validate.integer("privacy.steps", steps, at_least=1)
    if epochs is not None:
        _validate.number("privacy.epochs", epochs, above=0)


def _asked_steps(steps: Any, epochs: Any, size: AbstractSchedule, num_examples: int) -> int | None:
    if steps is not None:
        return int(steps)
    if epochs is None:
        return None
    if not isinstance(size, Constant):
        raise _validate.refuse(
            "privacy.epochs", epochs, "privacy.steps instead, since lot_size (and so the epoch) varies"
        )
    lots_per_epoch = num_examples / _validate.number("privacy.lot_size", size.value, above=0)
    return max(math.ceil(float(epochs) * lots_per_epoch * (1 - 1e-12)), 1)


def _check_entries(layers: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(layers, Mapping) or not layers:
        raise _validate.refuse("privacy.layers", layers, "null, or entries NAME: {parameters: …}")
    for name, entry in layers.items():
        key = f"privacy.layers.{name}"
        if not (isinstance(name, str) and name.isidentifier()) or name == COMMON_LOT:
            raise _validate.refuse("privacy.layers", name, f"an identifier other than {COMMON_LOT!r} as name")
        if not isinstance(entry, Mapping) or not entry.get("parameters"):
            raise _validate.refuse(key, entry, "a mapping with `parameters`, one or more name patterns")
        for unknown in set(entry) - set(_ENTRY_KEYS):
            hint = _validate.did_you_mean(str(unknown), _ENTRY_KEYS)
            raise _validate.refuse(
                f"{key}.{unknown}", entry[unknown], f"one of {', '.join(_ENTRY_KEYS)}", hint
            )
    return layers


def _own(name: str, key: str, value: Any) -> AbstractSchedule:
    return as_schedule(f"privacy.layers.{name}.{key}", value)


def _lot_of(name: str, entry: Mapping[str, Any], own: Mapping[str, LotSpec]) -> str:
    shared = entry.get("lot")
    key = f"privacy.layers.{name}.lot"
    if shared is None:
        return name if name in own else COMMON_LOT
    if name in own:
        raise _validate.refuse(key, shared, "either lot_size (its own lot) or lot (another entry's)")
    if shared not in own:
        hint = _validate.did_you_mean(str(shared), own)
        raise _validate.refuse(key, shared, f"an entry with a lot_size of its own ({', '.join(own)})", hint)
    return str(shared)


def _cannot_afford(before: float, draft: PrivacyPlan) -> _validate.UserError:
    assert draft.guarantee is not None
    budget, releases = draft.guarantee.budget, draft.guarantee.releases
    assert budget.epsilon is not None
    names = " and ".join(release.name for release in releases)
    if releases and float(before) > budget.epsilon:
        expected = f"at least {_round_up(before)}, what {names} alone costs"
    else:
        one = charged(draft.guarantee, draft.guarantee.accountant)
        event = draft.step(0).event
        assert event is not None
        one.charge(event)
        expected = f"at least {_round_up(one.epsilon())}, what {names + ' and ' if names else ''}one lot cost"
    hint = "Raise privacy.epsilon or the noise multipliers, lower privacy.lot_size, or set accountant=rdp."
    return _validate.refuse("privacy.epsilon", budget.epsilon, f"{expected} at δ = {budget.delta:g}", hint)


def _round_up(epsilon: float) -> str:
    return f"{math.ceil(float(epsilon) * 1e4) / 1e4:.4f}"
