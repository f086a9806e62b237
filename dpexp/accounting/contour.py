"""The accountant `exact`: δ(ε) by numerical inversion of the exact transform; an estimate, to about 1e-10.

    δ(ε) = (1/2πi) ∫ exp(K(s) - sε)/(s(s+1)) ds over Re s = c > 0, K(s) = Σ log E_P[e^(sL)],

by the trapezoidal rule, whose nodes do not depend on ε. Kin: Zhu, Dong and Wang (2022), arXiv 2106.08567v4
(analytical Fourier accountant). What keeps it an estimate is the end of the sum, for which no decay of
|exp K| is proven; `pld.PLDAccountant` is the certified companion. Where |exp K| does not decay (few sampled
releases with little noise), a small Gaussian release is added and extrapolated away: about 1e-6.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, final

import numpy as np

from dpexp.accounting.accountant import AbstractAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, log_delta_of_gdp
from dpexp.accounting.inversion import TERMS, Contour, Group, Inversion
from dpexp.accounting.one_release import OneRelease
from dpexp.accounting.pairs import GaussianPair, PairCounts, PoissonPair
from dpexp.accounting.pld import compositions, gaussian_variance
from dpexp.accounting.quadrature import quadrature
from dpexp.accounting.saddle import Composition, Line, Saddle
from dpexp.accounting.samplers import dominating_pairs

__all__ = ["ExactAccountant"]

_LOG_TAU = np.log(1e-14)
_END = 40.0  # nats by which the terms must have fallen at the end of the sum
_MOST_TERMS = 16_384
_ROUNDS = 3


@final
@dataclass(frozen=True)
class ExactAccountant(AbstractAccountant[PairCounts]):
    """The exact figure of the dominating pairs, in floating point; not a proven bound."""

    name = "exact"
    kind = Kind.ESTIMATE

    @property
    def zero(self) -> PairCounts:
        """The cost of releasing nothing."""
        return PairCounts()

    def price(self, event: Event, relation: Relation) -> PairCounts:
        """The dominating pairs of the event.

        Raises:
            UnsupportedEventError: No pair is known here for a part of the event; it is named.
        """
        return dominating_pairs(self.name, event, relation)

    def epsilon(self, cost: PairCounts, delta: float, relation: Relation) -> PrivacyBound:
        """ε at `delta` in (0, 1)."""
        return self._bound(_epsilon(cost, float(np.log(delta))), relation, delta)

    def delta(self, cost: PairCounts, epsilon: float, relation: Relation) -> PrivacyBound:
        """δ at `epsilon` >= 0."""
        return self._bound(float(np.exp(self.log_delta(cost, epsilon))), relation, None)

    def log_delta(self, cost: PairCounts, epsilon: float) -> float:
        """The log δ at `epsilon` >= 0, however small; -∞ if nothing was released."""
        return min(_log_delta(cost, epsilon), 0.0)

    def _bound(self, value: float, relation: Relation, delta: float | None) -> PrivacyBound:
        return PrivacyBound(value, kind=self.kind, accountant=self.name, relation=relation, delta=delta)


class _Curve(Protocol):
    """The log δ as a function of ε."""

    def log_delta(self, epsilon: float) -> float: ...


@lru_cache(maxsize=4096)
def _epsilon(cost: PairCounts, log_delta: float) -> float:
    variance = gaussian_variance(cost)
    if variance == np.inf:
        return np.inf
    if all(isinstance(pair, GaussianPair) for pair in cost):
        return epsilon_of_gdp(float(np.sqrt(variance)), log_delta)
    single = _one_release(cost)
    if single is not None:
        return _root(single, log_delta, 1.0)
    return max(_epsilon_of(way, log_delta) for way in compositions(cost, variance))


@lru_cache(maxsize=4096)
def _log_delta(cost: PairCounts, epsilon: float) -> float:
    variance = gaussian_variance(cost)
    if variance == np.inf:
        return 0.0
    if all(isinstance(pair, GaussianPair) for pair in cost):
        return log_delta_of_gdp(float(np.sqrt(variance)), epsilon)
    single = _one_release(cost)
    if single is not None:
        return single.log_delta(epsilon)
    return max(_log_delta_of(way, epsilon) for way in compositions(cost, variance))


def _one_release(cost: PairCounts) -> OneRelease | None:
    (pair, count), *others = cost.items()
    if others or count > 1 or not isinstance(pair, PoissonPair):
        return None
    return OneRelease(q=pair.q, sigma=pair.sigma)


def _epsilon_of(composition: Composition, log_delta: float) -> float:
    saddle = Saddle(composition, log_delta, _LOG_TAU)
    c, guess = saddle.at_delta()
    for _ in range(_ROUNDS):
        found = _root(_curve(composition, saddle, saddle.line(c, guess)), log_delta, guess)
        if c * abs(found - guess) < 0.5:
            break
        guess, c = found, saddle.at_epsilon(found)
    return found


def _log_delta_of(composition: Composition, epsilon: float) -> float:
    guess = -20.0
    for _ in range(10):
        saddle = Saddle(composition, guess, _LOG_TAU)
        c, found = saddle.at_epsilon(epsilon), saddle.log_delta_at(epsilon)
        if abs(found - guess) < 2:
            break
        guess = max(found - 1, 4 * guess, -5000.0)
    return _curve(composition, saddle, saddle.line(c, epsilon)).log_delta(epsilon)


def _root(curve: _Curve, log_delta: float, guess: float) -> float:
    """ε with log δ(ε) = log δ, to 1e-13 relative; 0 where even δ(0) is below."""
    low, high = 0.0, max(guess, 1e-12)
    if curve.log_delta(0.0) <= log_delta:
        return 0.0
    while curve.log_delta(high) > log_delta and high < 1e300:
        low, high = high, 1.5 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if curve.log_delta(middle) <= log_delta else (middle, high)
    return high


def _curve(composition: Composition, saddle: Saddle, line: Line) -> _Curve:
    """The sum on a line; with an added release where its terms do not fall."""
    step = 2 * np.pi / line.period
    terms = int(np.ceil(np.sqrt(2 * _END) / line.width / step)) + 8
    while terms <= _MOST_TERMS:
        exact = _Sum(composition, saddle, _Nodes(line.c, step, terms))
        if exact.has_fallen:
            return exact
        terms *= 2
    return _Smoothed(composition, saddle, line)


@dataclass(frozen=True)
class _Nodes:
    """s_k = c + i·step·k, k = 0 … terms - 1."""

    c: float
    step: float
    terms: int


class _Sum:
    """_Nodes c + it on one line, and the logs of the terms but for ε."""

    def __init__(self, composition: Composition, saddle: Saddle, nodes: _Nodes) -> None:
        t = nodes.step * np.arange(nodes.terms)
        s = nodes.c + 1j * t
        log_terms = np.asarray(composition.variance * s * (s + 1) / 2, dtype=np.complex128)
        for direction, count in composition.sampled.items():
            losses = quadrature(direction, saddle.log_share, nodes.c, float(t[-1]))
            log_phi = losses.log_transform_on(nodes.c, nodes.step, nodes.terms)
            log_terms = log_terms + float(count) * log_phi
        self._c, self._t = nodes.c, t
        self._scale = float(log_terms[0].real)
        weights = np.full(len(t), nodes.step / np.pi)
        weights[0] /= 2
        self._terms = weights * np.exp(log_terms - self._scale) / (s * (s + 1))
        self._noise = 1e-15 * float(np.abs(self._terms).sum())

    @property
    def has_fallen(self) -> bool:
        """Whether the terms at the end no longer matter."""
        sizes = np.abs(self._terms)
        return bool(sizes[-4:].max() < np.exp(-_END) * sizes[0])

    def log_delta(self, epsilon: float) -> float:
        """The log δ(ε)."""
        total = float((self._terms * np.exp(-1j * epsilon * self._t)).real.sum())
        return self._scale - self._c * epsilon + float(np.log(max(total, self._noise)))


class _Smoothed:
    """δ with a Gaussian release of variance v and 2v on top, extrapolated linearly to v = 0."""

    def __init__(self, composition: Composition, saddle: Saddle, line: Line) -> None:
        step = 2 * np.pi / line.period
        groups = []
        for direction, count in composition.sampled.items():
            losses = quadrature(direction, saddle.log_share, line.c, step * TERMS / 8)
            groups.append(Group(losses.as_atoms(), count))
        added = 2 * _END / (step * (TERMS - 1)) ** 2
        self._by_amount = [
            Inversion(groups, Contour(c=line.c, step=step, variance=composition.variance + amount))
            for amount in (added, 2 * added)
        ]

    def log_delta(self, epsilon: float) -> float:
        """The log δ(ε)."""
        once, twice = (inversion.log_delta(epsilon) for inversion in self._by_amount)
        return 2 * once - twice
