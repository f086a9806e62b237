"""The guarantee in words: what is protected, from whom, under which assumptions, and what is not covered."""

import math
from dataclasses import dataclass
from typing import final

from dpexp import _validate
from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.budget import delta_warning
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    Event,
    FixedSizeSampled,
    Partitioned,
    PoissonSampled,
    Relation,
    Release,
    Repeated,
)
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, squared_gdp
from dpexp.accounting.samplers import dominating_pairs

__all__ = [
    "ANY_LOT",
    "KEYED",
    "NOT_COVERED",
    "ONE_LOT_AN_EPOCH",
    "SECRET",
    "Statement",
    "without_amplification",
]

SECRET = "secret"
KEYED = "keyed by the seed"

ANY_LOT = "every row may have been in every lot"
ONE_LOT_AN_EPOCH = "every row was in one lot of every epoch, whatever the other rows"

NOT_COVERED = (
    "several rows of the same person (the privacy unit is one row)",
    "metrics under nonprivate/, and whatever else was computed from private rows without noise",
    "the choice of hyperparameters, or of this run among others, if private rows were looked at for it",
    "what is declared public: the configuration, the number of rows, public data",
)

_CLOSE_ENOUGH = 0.01  # an estimate may be quoted beside a certified figure within 1 %


def without_amplification(event: Event, *, delta: float, relation: Relation) -> PrivacyBound:
    """The certified ε of the same releases on lots about which nothing is secret.

    With lots known to the adversary, a row spends in every lot it may be in: all of them where lots are
    drawn afresh (`ANY_LOT`), one of every epoch where they are balls and bins or a partition
    (`ONE_LOT_AN_EPOCH`). Joint convexity covers lots that were drawn at random all the same.

    Args:
        event: Everything the run releases.
        delta: δ in (0, 1).
        relation: The neighboring relation.

    Returns:
        ε of μ-Gaussian differential privacy with μ² = Σ 1/σ².

    Raises:
        UnsupportedEventError: Lots of this sampler are no function of single rows under the relation.
    """
    relation, delta = Relation(relation), _validate.fraction("delta", delta)
    dominating_pairs("moments", event, relation)  # refuses what has no bound even with secret lots
    log_delta = math.log(delta)
    mu = math.sqrt(squared_gdp(_with_known_lots(event), relation)) * (1 + 1e-13)
    return PrivacyBound(
        epsilon_of_gdp(mu, log_delta) if math.isfinite(mu) else math.inf,
        kind=Kind.CERTIFIED,
        accountant="gaussian_profile",
        relation=relation,
        delta=delta,
        sampler="known",
    )


def _with_known_lots(event: Event) -> Event:
    match event:
        case PoissonSampled() | FixedSizeSampled():
            return event.gaussian
        case Partitioned() | BallsAndBins():
            return Repeated(event.gaussian, event.epochs)
        case Repeated(part, count):
            return Repeated(_with_known_lots(part), count)
        case Composed(parts):
            return Composed(tuple(_with_known_lots(part) for part in parts))
        case _:
            return event


@final
@dataclass(frozen=True, kw_only=True)
class Statement:
    """All facts of a privacy statement; `str()` puts them into sentences.

    Attributes:
        epsilon: The figure to quote: a certified ε.
        estimate: An estimate of the same ε, quoted beside it where the two differ by at most 1 %.
        sampler: How lots are drawn, in words ("every row enters every lot independently with …").
        releases: Everything that was computed from private rows with noise, by name.
        steps: Number of lots charged.
        num_examples: N, declared and public.
        if_sampling_fails: Certified ε at the same δ of *all* releases if the adversary knows the lots
            (`without_amplification`); None where ε assumes nothing about lots (all rows, or a partition).
        failed_sampling: What that figure still assumes, in words: `ANY_LOT`, `ONE_LOT_AN_EPOCH`.
        randomness: `SECRET`, or `KEYED` where a seed anyone may know determines noise and lots.
        not_covered: Sentences beyond `NOT_COVERED`, without a full stop.
        terms: What keeps ε where later choices follow earlier results; empty where all was fixed beforehand.
    """

    epsilon: PrivacyBound
    sampler: str
    releases: tuple[Release, ...]
    steps: int
    num_examples: int
    if_sampling_fails: PrivacyBound | None
    failed_sampling: str = ANY_LOT
    randomness: str = SECRET
    estimate: PrivacyBound | None = None
    not_covered: tuple[str, ...] = ()
    terms: str = ""

    def __post_init__(self) -> None:
        _require_certified_epsilon("epsilon", self.epsilon)
        _validate.one_of("randomness", self.randomness, (SECRET, KEYED))
        _validate.integer("num_examples", self.num_examples, at_least=1)
        _validate.integer("steps", self.steps, at_least=0)
        if self.if_sampling_fails is not None:
            _require_certified_epsilon("if_sampling_fails", self.if_sampling_fails)
            _require_same_question("if_sampling_fails", self.if_sampling_fails, self.epsilon)
        if self.estimate is not None:
            _require_same_question("estimate", self.estimate, self.epsilon)
            _require_close(self.estimate, self.epsilon)

    def __str__(self) -> str:
        parts = (
            self._caveat,
            self._figure,
            self._meaning,
            self.terms,
            self._included,
            self._assumption,
            self._excluded,
        )
        return "\n\n".join(part for part in parts if part)

    @property
    def _caveat(self) -> str:
        if self.randomness == SECRET:
            return ""
        return (
            "THIS IS ARITHMETIC, NOT A GUARANTEE. Lots and noise were keyed by the seed, and whoever knows "
            "it can subtract the noise. The figure below is that of the same run with secret randomness."
        )

    @property
    def _figure(self) -> str:
        bound = self.epsilon
        beside = ""
        if self.estimate is not None:
            beside = f" The accountant {self.estimate.accountant} estimates {float(self.estimate):.4g}."
        return (
            f"ε = {bound.in_print} at δ = {bound.delta!r}, for {bound.relation.in_words}: a "
            f"proven upper bound ({bound.kind}, accountant {bound.accountant}).{beside}{self._delta_note}"
        )

    @property
    def _delta_note(self) -> str:
        assert self.epsilon.delta is not None  # checked when built
        warning = delta_warning(self.epsilon.delta, self.num_examples)
        return f" {warning}" if warning else ""

    @property
    def _meaning(self) -> str:
        return (
            "Protected is one row of the data, against anyone who sees everything released, knows every "
            f"other row and has unlimited computing power: {self.epsilon.relation.in_words} changes the "
            "probability of any outcome by a factor of at most e^ε, plus δ."
        )

    @property
    def _included(self) -> str:
        names = "".join(f"{release.name}; " for release in self.releases)
        return f"Included: {names}{self.steps} lots charged, empty ones too."

    @property
    def _assumption(self) -> str:
        worse = self.if_sampling_fails
        if worse is None:
            return f"Lots: {self.sampler}. It is not assumed that lots are secret."
        return (
            f"Assumed: {self.sampler}, and nobody but the curator knows which rows were in which lot. If "
            f"that fails, and {self.failed_sampling}, what remains proven is ε = {worse.in_print} "
            f"at the same δ ({worse.kind}, accountant {worse.accountant})."
        )

    @property
    def _excluded(self) -> str:
        return "Not covered: " + "; ".join((*NOT_COVERED, *self.not_covered)) + "."


def _require_certified_epsilon(name: str, bound: PrivacyBound) -> None:
    if bound.kind is not Kind.CERTIFIED:
        expected = f"a certified figure; this one is {bound.kind} ({bound.accountant})"
        raise _validate.refuse(name, float(bound), expected, "Only proven bounds are quoted as a guarantee.")
    if bound.quantity is not Quantity.EPSILON or bound.delta is None:
        raise _validate.refuse(name, float(bound), f"an ε at some δ; this one is a {bound.quantity}")


def _require_same_question(name: str, found: PrivacyBound, quoted: PrivacyBound) -> None:
    if (found.delta, found.relation) != (quoted.delta, quoted.relation):
        raise _validate.refuse(
            name,
            f"{float(found):.4g} ({found.kind}, {found.accountant}) at δ = {found.delta}, {found.relation}",
            f"the same δ and relation as the figure quoted (δ = {quoted.delta}, {quoted.relation})",
        )


def _require_close(estimate: PrivacyBound, quoted: PrivacyBound) -> None:
    close = abs(float(quoted) - float(estimate)) <= _CLOSE_ENOUGH * float(quoted)
    if estimate.kind is not Kind.ESTIMATE or not close:
        expected = f"an estimate within 1 % of the certified {float(quoted):.4g}; this one is {estimate.kind}"
        raise _validate.refuse("estimate", float(estimate), expected, "Leave it out of the statement.")
