"""Where to invert the transform of a composition: the saddle point, and how far apart the nodes may be.

With K = log φ, the tilted loss has mean K'(c) and variance K''(c) at the order c. Nothing here needs to be
right for a bound that is built on it to hold; good choices make it tight and fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from dpexp.accounting.grids import Direction
from dpexp.accounting.moments import Array
from dpexp.accounting.quadrature import Losses, quadrature

__all__ = ["Composition", "Line", "Saddle", "saddle_near"]

_SLACK = 3.0
_LEAST_TILT = 0.5  # c√K''; less makes a long period for nothing
_FIRST_GUESS, _LEAST = -20.0, -5000.0  # of log δ
_EVERY_ORDER = np.geomspace(1e-4, 2e7, 120)
_NEARBY = np.linspace(0.3, 2.0, 52)


@dataclass(frozen=True, kw_only=True)
class Composition:
    """One way round of a composition.

    Attributes:
        sampled: Sampled pairs, each one way round, with their counts; at least one.
        variance: Σ μ² of the Gaussian releases among them.
    """

    sampled: Mapping[Direction, int]
    variance: float

    @property
    def releases(self) -> int:
        """How many sampled releases there are."""
        return sum(self.sampled.values())


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line to sum on.

    Attributes:
        c: Its real part.
        period: D = 2π ÷ distance of the nodes.
    """

    c: float
    period: float


@dataclass(frozen=True, eq=False)
class _Cumulants:
    """K and its first two derivatives at real orders, each of shape (K,)."""

    value: Array
    mean: Array
    variance: Array


class Saddle:
    """Contours for a composition where δ is about exp(log_delta)."""

    def __init__(self, composition: Composition, log_delta: float, log_tau: float) -> None:
        """Looks at the composition.

        Args:
            composition: What is composed.
            log_delta: log of about the δ that is wanted.
            log_tau: log of the part of δ that truncation and aliasing may add.
        """
        self._composition, self._log_delta, self._log_tau = composition, log_delta, log_tau
        self.log_share = log_delta + log_tau - np.log(composition.releases)
        self._losses = [(quadrature(d, self.log_share, 0.0, 0.0), n) for d, n in composition.sampled.items()]
        self._orders, self._at = _EVERY_ORDER, self._cumulants_at(_EVERY_ORDER)

    def at_delta(self) -> tuple[float, float]:
        """The order c and ε = K'(c) at which δ is about the wanted one."""
        for _ in range(2):
            away = np.where(self._at.mean >= 0, np.abs(self._log_deltas() - self._log_delta), np.inf)
            best = int(np.argmin(away))
            order = float(self._orders[best])
            self._look_near(order)
        if away[best] > 1:  # K bends too sharply for a normal approximation, as it does for rare large losses
            return self.by_tail_bound()
        epsilon = float(np.interp(order, self._orders, self._at.mean))
        width = float(np.sqrt(np.interp(order, self._orders, self._at.variance)))
        return max(order, _LEAST_TILT / width), epsilon

    def by_tail_bound(self) -> tuple[float, float]:
        """The order whose tail bound proves the smallest ε, and that ε."""
        for _ in range(2):
            bonus = np.log1p(self._orders) + self._orders * np.log1p(1 / self._orders)
            bounds = (self._at.value - self._log_delta - bonus) / self._orders
            best = int(np.argmin(bounds))
            order, epsilon = float(self._orders[best]), max(float(bounds[best]), 0.0)
            self._look_near(order)
        return order, epsilon

    def at_epsilon(self, epsilon: float) -> float:
        """The order with K'(c) = ε, nearly."""
        for _ in range(2):
            order = float(self._orders[int(np.argmin(self._tail(epsilon)))])
            self._look_near(order)
        return order

    def may_vanish_at(self, log_delta: float) -> bool:
        """Whether δ(0) may be so small that ε is 0."""
        return self.log_delta_at(0.0) < log_delta + 5

    def log_delta_at(self, epsilon: float) -> float:
        """About log δ(ε), the tail bound of the best order."""
        return min(float(np.min(self._tail(epsilon))), 0.0)

    def _tail(self, epsilon: float) -> Array:
        tail: Array = self._at.value - self._orders * epsilon - np.log(self._orders) - np.log1p(self._orders)
        return tail

    def line(self, top: float, epsilon: float) -> Line:
        """A line c <= top and the smallest D with Σ_{m≠0} e^(cmD) δ(ε + mD) below about τδ, by Chernoff.

        Moving the line away from the saddle point costs accuracy, so at most `_SLACK` nats of it.
        """
        log_small = self._log_delta + self._log_tau
        exponent = self._at.value - self._orders * epsilon
        slack = float(np.min(exponent)) + _SLACK
        lines = self._orders[(self._orders <= top) & (self._orders >= 0.3 * top) & (exponent <= slack)]
        lines = np.append(lines, top)
        gap = self._orders - lines[:, np.newaxis]
        usable = gap > 0.03 * lines[:, np.newaxis]
        right = np.where(usable, (exponent - log_small) / np.where(usable, gap, 1.0), np.inf).min(axis=1)
        right = np.where(np.isfinite(right), right, -2 * log_small / lines)  # at the last order: a guess
        period = np.maximum(np.maximum(right, 0.0), -log_small / lines)
        best = int(np.argmin(period))
        return Line(c=float(lines[best]), period=float(period[best]))

    def _log_deltas(self) -> Array:
        """The log δ(K'(c)) if the tilted loss were Gaussian: exp(K - cK')[M(c√K'') - M((c+1)√K'')]/√(2π)."""
        width = np.sqrt(self._at.variance / 2)
        mills = erfcx(self._orders * width) - erfcx((self._orders + 1) * width)
        away = np.log(np.maximum(mills / 2, 1e-300))
        log_delta: Array = self._at.value - self._orders * self._at.mean + away
        return log_delta

    def _look_near(self, order: float) -> None:
        new = np.setdiff1d(order * _NEARBY, self._orders)
        orders = np.concatenate([self._orders, new])
        rank, at, more = np.argsort(orders), self._at, self._cumulants_at(new)
        self._orders = orders[rank]
        self._at = _Cumulants(
            np.concatenate([at.value, more.value])[rank],
            np.concatenate([at.mean, more.mean])[rank],
            np.concatenate([at.variance, more.variance])[rank],
        )

    def _cumulants_at(self, orders: Array) -> _Cumulants:
        at, variance = _cumulants(self._losses, orders), self._composition.variance
        return _Cumulants(
            at.value + variance * orders * (orders + 1) / 2,
            at.mean + variance * (orders + 0.5),
            at.variance + variance,
        )


def _cumulants(groups: Sequence[tuple[Losses, int]], orders: Array) -> _Cumulants:
    """K = Σ count · log φ of the groups, in floating point: good enough to choose a contour."""
    total = np.zeros((3, len(orders)))
    for losses, count in groups:
        loss = losses.loss
        exponents = losses.log_mass + orders[:, np.newaxis] * loss
        top = exponents.max(axis=1)
        weights = np.exp(exponents - top[:, np.newaxis])
        mass = weights.sum(axis=1)
        mean, square = weights @ loss / mass, weights @ loss**2 / mass
        total += count * np.stack([top + np.log(mass), mean, np.maximum(square - mean**2, 0.0)])
    return _Cumulants(*total)


def saddle_near(composition: Composition, epsilon: float, log_tau: float) -> Saddle:
    """A view of the composition that reaches as far as the unknown δ(ε) needs."""
    guess = _FIRST_GUESS
    for _ in range(10):
        saddle = Saddle(composition, guess, log_tau)
        saddle.at_epsilon(epsilon)
        found = saddle.log_delta_at(epsilon)
        if abs(found - guess) < 2:
            break
        guess = max(found - 1, 4 * guess, _LEAST)
    return saddle
