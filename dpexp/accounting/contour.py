"""The accountant `exact`: δ(ε) by numerical inversion of the exact transform; an estimate.

    δ(ε) = (1/2πi) ∫ exp(K(s) - sε)/(s(s+1)) ds over Re s = c > 0, K(s) = Σ log E_P[e^(sL)],

by the trapezoidal rule, whose nodes do not depend on ε. Kin: Zhu, Dong and Wang (2022), arXiv 2106.08567v4
(analytical Fourier accountant). What keeps it an estimate is the end of the sum, for which no decay of
|exp K| is proven; `pld.PLDAccountant` is the certified companion. It agrees with the golden file to 1e-10;
elsewhere nothing is claimed. Closed forms: Gaussian releases, and one sampled release. Not exact: where
|exp K| does not decay (few sampled releases with little noise) the figure is that of the certified inversion,
and where a sampled pair has no grid (σ < 0.02) that of `pld`, which may be far above. Both are still labelled
estimates.
"""

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting import certified
from dpexp.accounting.accountant import AbstractAccountant, checked_epsilon, delta_from_log
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, log_delta_of_gdp
from dpexp.accounting.moments import Array
from dpexp.accounting.one_release import AbstractOneRelease, one_release_of
from dpexp.accounting.pairs import GaussianPair, PairCounts
from dpexp.accounting.pld import PLDAccountant, compositions, gaussian_variance, has_grid
from dpexp.accounting.quadrature import quadrature
from dpexp.accounting.saddle import Composition, Line, Saddle, saddle_near
from dpexp.accounting.samplers import dominating_pairs

__all__ = ["ExactAccountant"]

_LOG_TAU = np.log(1e-14)
_END = 36.0  # nats by which the terms must have fallen at the end of the sum
_LENGTHS = (48, 96, 192, 384, 640, 1024)
_ROUNDS = 3
_RENYI, _ANY = RenyiAccountant(), Relation.ADD_OR_REMOVE_ONE  # a cost of pairs holds for its own relation


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
        delta = _validate.fraction("delta", delta)
        return self._bound(_epsilon(cost, float(np.log(delta))), relation, delta)

    def delta(self, cost: PairCounts, epsilon: float, relation: Relation) -> PrivacyBound:
        """δ at `epsilon` >= 0."""
        return self._bound(delta_from_log(self.log_delta(cost, epsilon)), relation, None)

    def log_delta(self, cost: PairCounts, epsilon: float) -> float:
        """The log δ at `epsilon` >= 0, however small; -∞ if nothing was released."""
        log_delta = min(_log_delta(cost, checked_epsilon(epsilon)), 0.0)
        return max(log_delta, -sys.float_info.max) if cost else log_delta

    def _bound(self, value: float, relation: Relation, delta: float | None) -> PrivacyBound:
        return PrivacyBound(value, kind=self.kind, accountant=self.name, relation=relation, delta=delta)


@lru_cache(maxsize=4096)
def _epsilon(cost: PairCounts, log_delta: float) -> float:
    variance = gaussian_variance(cost)
    if variance == np.inf:
        return np.inf
    if all(isinstance(pair, GaussianPair) for pair in cost):
        return epsilon_of_gdp(float(np.sqrt(variance)), log_delta)
    single = one_release_of(cost)
    if single is not None:
        return _root(single, log_delta, 1.0)
    if not has_grid(cost):  # almost no noise: the certified figure, far from exact, is all there is
        return float(PLDAccountant().epsilon(cost, float(np.exp(log_delta)), _ANY))
    tail_bound = float(_RENYI.epsilon(_RENYI.cost_of(cost), float(np.exp(log_delta)), _ANY))
    return min(max(_epsilon_of(way, log_delta) for way in compositions(cost, variance)), tail_bound)


@lru_cache(maxsize=4096)
def _log_delta(cost: PairCounts, epsilon: float) -> float:
    variance = gaussian_variance(cost)
    if variance == np.inf:
        return 0.0
    if all(isinstance(pair, GaussianPair) for pair in cost):
        return log_delta_of_gdp(float(np.sqrt(variance)), epsilon)
    single = one_release_of(cost)
    if single is not None:
        return single.log_delta(epsilon)
    if not has_grid(cost):
        return float(np.log(float(PLDAccountant().delta(cost, epsilon, _ANY))))
    return max(_log_delta_of(way, epsilon) for way in compositions(cost, variance))


def _epsilon_of(composition: Composition, log_delta: float) -> float:
    saddle = Saddle(composition, log_delta, _LOG_TAU)
    if saddle.may_vanish_at(log_delta) and _log_delta_of(composition, 0.0) <= log_delta:
        return 0.0
    c, guess = saddle.at_delta()
    for _ in range(_ROUNDS):
        exact = _sum_on(composition, saddle, saddle.line(c, guess))
        if exact is None:
            return certified.epsilon_of(composition, log_delta)
        found = _root(exact, log_delta, guess)
        if c * abs(found - guess) < 0.5:
            break
        guess, c = found, saddle.at_epsilon(found)
    return found


def _log_delta_of(composition: Composition, epsilon: float) -> float:
    saddle = saddle_near(composition, epsilon, _LOG_TAU)
    exact = _sum_on(composition, saddle, saddle.line(saddle.at_epsilon(epsilon), epsilon))
    return certified.log_delta_of(composition, epsilon) if exact is None else exact.log_delta(epsilon)


def _root(curve: "_Sum | AbstractOneRelease", log_delta: float, guess: float) -> float:
    """ε with log δ(ε) = log δ, to 1e-13 relative; 0 where even δ(0) is below."""
    if curve.log_delta(0.0) <= log_delta:
        return 0.0
    low, high = 0.0, max(guess, 1e-12)
    for _ in range(200):
        if curve.log_delta(high) <= log_delta:
            break
        low, high = high, 1.5 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if curve.log_delta(middle) <= log_delta else (middle, high)
    return high


def _sum_on(composition: Composition, saddle: Saddle, line: Line) -> "_Sum | None":
    """The sum on a line, as long as it needs to be; None where its terms do not fall."""
    step = 2 * np.pi / line.period
    for terms in _LENGTHS:
        nodes = _Nodes(line.c, step, np.concatenate([[0.0], np.arange(terms - 4.0, terms)]))
        if _Sum(composition, saddle, nodes).has_fallen:
            return _Sum(composition, saddle, _Nodes(line.c, step, np.arange(float(terms))))
    return None


@dataclass(frozen=True, eq=False)
class _Nodes:
    """s_k = c + i·step·k for some k >= 0, of which 0 is the first."""

    c: float
    step: float
    k: Array


class _Sum:
    """The terms on one line but for ε."""

    def __init__(self, composition: Composition, saddle: Saddle, nodes: _Nodes) -> None:
        t = nodes.step * nodes.k
        s = nodes.c + 1j * t
        log_terms = np.asarray(composition.variance * s * (s + 1) / 2, dtype=np.complex128)
        for direction, count in composition.sampled.items():
            losses = quadrature(direction, saddle.log_share, nodes.c, float(t[-1]))
            log_terms = log_terms + float(count) * losses.log_transform_on(nodes.c, nodes.step, nodes.k)
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
