"""Which sampler can be priced under which neighboring relation, by which accountant: the table, as data.

Every accountant turns an event into dominating pairs here and nowhere else, so that none can price what
another knows to be unproven. Proofs: docs/theory/sampling.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Repeated,
)
from dpexp.accounting.pairs import (
    BallsAndBinsPair,
    FixedSizePair,
    GaussianPair,
    OpposedPair,
    PairCounts,
    PoissonPair,
)

__all__ = ["TABLE", "Rule", "Sampler", "dominating_pairs", "rule_of", "table_in_markdown"]

_ALL = ("moments", "rdp", "pld", "exact", "gdp", "strong_composition")
_NO_LIMIT = ("moments", "rdp", "pld", "exact")
_BY_MOMENTS = ("moments", "rdp", "pld")  # pld: the figure of rdp
_NO_NOISE, _MOST_NOISE, _LEAST_PROBABILITY = 1e-100, 1e12, 1e-30  # see `_noise` and `_rate`


class Sampler(StrEnum):
    """How a lot comes about."""

    FULL = "full"
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without_replacement"
    SHUFFLE = "shuffle"
    BALLS_AND_BINS = "balls_and_bins"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of the table.

    Attributes:
        sampler: How the lot comes about.
        relation: The neighboring relation.
        pair: The dominating pair in words; σ is noise std ÷ add-or-remove-one sensitivity.
        accountants: The names of those that have a bound; empty if none has.
        status: What is proven of the pair ("exact": two data sets attain it), or why the row is refused.
    """

    sampler: Sampler
    relation: Relation
    pair: str
    accountants: tuple[str, ...]
    status: str


_ADD, _ZERO, _REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE
_FULL, _POISSON, _FIXED = Sampler.FULL, Sampler.POISSON, Sampler.WITHOUT_REPLACEMENT
_SHUFFLE, _BALLS = Sampler.SHUFFLE, Sampler.BALLS_AND_BINS
_BOTH_WAYS = "(μ, μ₀) and (μ₀, μ), multiplier σ; the larger counts"
_CURVE = "curve of Zhu, Dong and Wang (2022) at σ/f, rate m/n"
_ONE_EPOCH = "(1/B Σ N(e_t, σ²I), N(0, σ²I)) and swapped, per epoch"


def _row(sampler: Sampler, relation: Relation, pair: str, accountants: tuple[str, ...], status: str) -> Rule:
    return Rule(sampler=sampler, relation=relation, pair=pair, accountants=accountants, status=status)


TABLE: tuple[Rule, ...] = (
    _row(_FULL, _ADD, "Gaussian, μ = 1/σ", _ALL, "exact"),
    _row(_FULL, _ZERO, "Gaussian, μ = 1/σ", _ALL, "exact"),
    _row(_FULL, _REPLACE, "Gaussian, μ = f/σ, f = replace_one_factor", _ALL, "exact"),
    _row(_POISSON, _ADD, _BOTH_WAYS, _ALL, "exact"),
    _row(_POISSON, _ZERO, _BOTH_WAYS, _ALL, "exact"),
    _row(_POISSON, _REPLACE, "(1-q)N(0)+qN(±1), multiplier σ", _NO_LIMIT, "upper bound; exact where f = 2"),
    _row(_FIXED, _REPLACE, _CURVE, (*_NO_LIMIT, "gdp"), "upper bound; the lower one is Poisson at σ/f"),
    _row(_FIXED, _ZERO, _CURVE, (*_NO_LIMIT, "gdp"), "upper bound: blanking is a replacement"),
    _row(_FIXED, _ADD, "none", (), "refused: the size of the lot depends on the number of rows"),
    _row(_SHUFFLE, _ZERO, "Gaussian, μ = √E/σ", _ALL, "upper bound: no amplification is proven"),
    _row(_SHUFFLE, _REPLACE, "Gaussian, μ = f√E/σ", _ALL, "upper bound: no amplification is proven"),
    _row(_SHUFFLE, _ADD, "none", (), "refused: one row more moves all others to other lots"),
    _row(_BALLS, _ADD, _ONE_EPOCH, _BY_MOMENTS, "moments: exact one way, a bound the other"),
    _row(_BALLS, _ZERO, _ONE_EPOCH, _BY_MOMENTS, "moments: exact one way, a bound the other"),
    _row(_BALLS, _REPLACE, "none", (), "refused: no bound is proven here"),
)


def rule_of(sampler: Sampler, relation: Relation) -> Rule:
    """The row of the table for a sampler under a relation."""
    sampler, relation = Sampler(sampler), Relation(relation)
    return next(rule for rule in TABLE if rule.sampler == sampler and rule.relation == relation)


def table_in_markdown() -> str:
    """The table, for the documentation."""
    lines = ["| sampler | relation | dominating pair | accountants | status |", "|---|---|---|---|---|"]
    lines += [
        f"| {rule.sampler} | {rule.relation} | {rule.pair} | {', '.join(rule.accountants) or 'none'} "
        f"| {rule.status} |"
        for rule in TABLE
    ]
    return "\n".join(lines)


@lru_cache(maxsize=65_536)
def dominating_pairs(accountant: str, event: Event, relation: Relation) -> PairCounts:
    """The dominating pairs of an event, with their counts.

    Args:
        accountant: Name of the accountant that asks.
        event: What is released.
        relation: The neighboring relation.

    Raises:
        UnsupportedEventError: The table has no bound of this accountant for a part of the event.
    """
    relation = Relation(relation)
    match event:
        case Repeated():
            return event.count * dominating_pairs(accountant, event.event, relation)
        case Composed():
            return PairCounts.total(dominating_pairs(accountant, part, relation) for part in event.events)
    sampler, to_pairs = _sampling(event)
    rule = rule_of(sampler, relation)
    if accountant not in rule.accountants:
        raise UnsupportedEventError(_refusal(accountant, event, rule))
    return to_pairs(event, relation)


def _refusal(accountant: str, event: Event, rule: Rule) -> str:
    same = [other for other in TABLE if other.sampler == rule.sampler]
    others = [other.relation for other in same if accountant in other.accountants]
    advice = [f"accountant={', '.join(rule.accountants)}"] if rule.accountants else []
    advice += [f"privacy.relation={', '.join(others)}"] if others else []
    hint = f"\nPossible: {' or '.join(advice)}." if advice else ""
    return (
        f"The accountant {accountant} has no bound for the sampler {rule.sampler} under {rule.relation} "
        f"({rule.status}): {event!r} cannot be priced.{hint}"
    )


_ToPairs = Callable[[Any, Relation], PairCounts]


def _sampling(event: Event) -> tuple[Sampler, _ToPairs]:
    match event:
        case Gaussian():
            return Sampler.FULL, _full
        case PoissonSampled():
            return Sampler.POISSON, _poisson
        case FixedSizeSampled():
            return Sampler.WITHOUT_REPLACEMENT, _without_replacement
        case Partitioned():
            return Sampler.SHUFFLE, _shuffle
        case BallsAndBins():
            return Sampler.BALLS_AND_BINS, _balls_and_bins
        case _:
            raise UnsupportedEventError(f"No bound is known for {event!r}.")


def _noise(sigma: float) -> float:
    """σ as it is priced: 0 below 1e-100 and 1e12 above that, which costs more, so that σ² is a number."""
    return 0.0 if sigma < _NO_NOISE else min(sigma, _MOST_NOISE)


def _rate(q: float) -> float:
    """The q > 0 that is priced: 1e-30 below that, which costs more."""
    return max(q, _LEAST_PROBABILITY)


def _full(event: Gaussian, relation: Relation) -> PairCounts:
    return PairCounts({GaussianPair(sigma=_noise(event.effective_multiplier(relation))): 1})


def _poisson(event: PoissonSampled, relation: Relation) -> PairCounts:
    q, sigma = event.sampling_probability, _noise(event.gaussian.noise_multiplier)
    if q == 0:
        return PairCounts()
    if q == 1 or sigma == 0:
        return _full(event.gaussian, relation)
    if relation != Relation.REPLACE_ONE:
        return PairCounts({PoissonPair(q=_rate(q), sigma=sigma): 1})
    if event.gaussian.replace_one_factor > 2:  # replacing is removing and adding: the triangle inequality
        raise UnsupportedEventError(f"replace_one_factor cannot be above 2: {event!r} cannot be priced.")
    return PairCounts({OpposedPair(q=_rate(q), sigma=sigma): 1})


def _without_replacement(event: FixedSizeSampled, relation: Relation) -> PairCounts:
    factor = event.gaussian.replace_one_factor
    if relation != Relation.REPLACE_ONE:
        factor = max(factor, 1.0)  # a blank row is at distance 1 from the row it replaces
    q, sigma = event.sampling_probability, _noise(event.gaussian.noise_multiplier / factor)
    if q == 1 or sigma == 0:
        return _full(event.gaussian, relation)
    return PairCounts({FixedSizePair(q=_rate(q), sigma=sigma): 1})


def _shuffle(event: Partitioned, relation: Relation) -> PairCounts:
    return event.epochs * _full(event.gaussian, relation)


def _balls_and_bins(event: BallsAndBins, relation: Relation) -> PairCounts:
    sigma = _noise(event.gaussian.noise_multiplier)
    if event.lots == 1 or sigma == 0:
        return event.epochs * _full(event.gaussian, relation)
    return PairCounts({BallsAndBinsPair(lots=event.lots, sigma=sigma): event.epochs})
