"""The paper's three ways to α(λ) of the Poisson-sampled Gaussian, each with its kind and its region.

Abadi et al. (2016), arXiv 1607.00133v2, section 4: "asymptotic bound", "closed form", "numerical
integration". Each is an object with a kind; outside its region it raises and gives no number.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.bounds import Kind
from dpexp.accounting.grids import directions_of
from dpexp.accounting.moments import Array, gaussian_log_moments
from dpexp.accounting.pair_moments import pair_log_moments
from dpexp.accounting.pairs import GaussianPair, PoissonPair
from dpexp.accounting.quadrature import quadrature

__all__ = [
    "AbstractLogMoment",
    "BoundedIntegral",
    "ClosedForm",
    "Integral",
    "LeadingTerm",
    "MironovClosedForm",
    "reversed_log_moments",
]


class AbstractLogMoment(ABC):
    """A way to get α(λ).

    Attributes:
        kind: Whether it is a proven upper bound.
        region: Where it is valid, in words.
    """

    kind: Kind
    region: str

    def __call__(self, *, sampling_probability: float, noise_multiplier: float, orders: Array) -> Array:
        """α(λ) of one lot.

        Args:
            sampling_probability: q in [0, 1].
            noise_multiplier: σ > 0.
            orders: λ > 0, shape (K,).

        Returns:
            α, shape (K,).

        Raises:
            UserError: The arguments are outside the region.
        """
        q = _validate.number("sampling_probability", sampling_probability, at_least=0, at_most=1)
        sigma = _validate.number("noise_multiplier", noise_multiplier, above=0)
        lambdas = np.asarray(orders, dtype=np.float64)
        for order in lambdas.tolist():
            _validate.number("order", order, above=0, at_most=4096)
            if not self._covers(q, sigma, order):
                found = f"(q={q:g}, σ={sigma:g}, λ={order:g})"
                raise _validate.UserError(
                    f"{type(self).__name__} has no bound at {found}: it needs {self.region}."
                )
        return np.zeros(lambdas.shape) if q == 0 else self._at(q, sigma, lambdas)

    @abstractmethod
    def _covers(self, q: float, sigma: float, order: float) -> bool:
        """Whether a point is inside the region."""

    @abstractmethod
    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        """α inside the region, q > 0."""


@final
@dataclass(frozen=True)
class Integral(AbstractLogMoment):
    """Numerical integration at real orders, in floating point (about 1e-13)."""

    kind = Kind.ESTIMATE
    region = "0 < λ <= 4096"

    def _covers(self, q: float, sigma: float, order: float) -> bool:
        return True

    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        return _integrals(q, sigma, lambdas, 0)


def reversed_log_moments(sampling_probability: float, noise_multiplier: float, orders: Array) -> Array:
    """The log of E₁(λ) = E_μ₀[(μ₀/μ)^λ], an estimate.

    It is never above α = log E₂: docs/theory/moments.md, section 2.

    Args:
        sampling_probability: q in [0, 1].
        noise_multiplier: σ > 0.
        orders: λ > 0, shape (K,).
    """
    return _integrals(sampling_probability, noise_multiplier, np.asarray(orders, dtype=np.float64), 1)


def _integrals(q: float, sigma: float, lambdas: Array, way: int) -> Array:
    if q in (0, 1):
        return q * gaussian_log_moments(sigma, lambdas)
    direction = directions_of(PoissonPair(q=q, sigma=sigma))[way]
    alphas = []
    for order in lambdas.tolist():
        reach = (order + 2) / sigma + 10  # deviations; N(0, σ²)E^(λ+1) is N(λ+1, σ²) in shape
        losses = quadrature(direction, -reach * reach / 2, order, 0.0)
        alphas.append(float(losses.log_transform(np.array([complex(order)]))[0].real))
    return np.array(alphas)


@final
@dataclass(frozen=True)
class BoundedIntegral(AbstractLogMoment):
    """The integral from above: exact sums at integer λ, and the chord between them at real λ.

    α is convex in λ with α(0) = 0, so that the chord is an upper bound.
    """

    kind = Kind.CERTIFIED
    region = "0 < λ <= 4096"

    def _covers(self, q: float, sigma: float, order: float) -> bool:
        return True

    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        below, above = np.floor(lambdas), np.ceil(lambdas)
        knots = sorted({int(order) for order in (*below, *above)} - {0})
        pair = GaussianPair(sigma=sigma) if q == 1 else PoissonPair(q=q, sigma=sigma)
        at = {0: 0.0, **dict(zip(knots, pair_log_moments(pair, tuple(knots)).tolist(), strict=True))}
        low, high = (np.array([at[int(order)] for order in ends]) for ends in (below, above))
        chord: Array = (low + (lambdas - below) * (high - low)) * (1 + 1e-15)
        return chord


@final
@dataclass(frozen=True)
class ClosedForm(AbstractLogMoment):
    """A closed form without conditions but integer λ: docs/theory/moments.md, section 3.

    α(λ) <= log(1 + q²λ(λ+1)/(2σ²) · e^(1/σ²) (1 + q(e^((λ+2)/(2σ²)) - 1))^(λ-1)).
    """

    kind = Kind.CERTIFIED
    region = "integer λ >= 1"

    def _covers(self, q: float, sigma: float, order: float) -> bool:
        return order.is_integer()

    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        tilt = np.logaddexp(np.log1p(-q) if q < 1 else -np.inf, np.log(q) + (lambdas + 2) / 2 / sigma**2)
        log_x = 2 * np.log(q) + np.log(lambdas * (lambdas + 1) / 2) - 2 * np.log(sigma) + 1 / sigma**2
        log_x = log_x + (lambdas - 1) * tilt
        bound: Array = np.logaddexp(0.0, log_x) * (1 + 1e-12)
        return bound


@final
@dataclass(frozen=True)
class MironovClosedForm(AbstractLogMoment):
    """α(λ) <= 2q²λ(λ+1)/σ²: Mironov, Talwar and Zhang (2019), arXiv 1908.10530v1, Theorem 11.

    An estimate: the theorem and its region are quoted from memory of the paper and are not proven here. In a
    test it is above the exact α all over its region.
    """

    kind = Kind.ESTIMATE
    region = "q <= 1/5, σ >= 4 and, with a = λ+1 and L = log(1 + 1/(q(a-1))), a <= σ²L/2 - 2 log σ and "
    region += "a <= (σ²L²/2 - log 5 - 2 log σ)/(L + log(qa) + 1/(2σ²))"

    def _covers(self, q: float, sigma: float, order: float) -> bool:
        if not (0 < q <= 0.2 and sigma >= 4):
            return q == 0
        a, log_sigma = order + 1, float(np.log(sigma))
        big_l = float(np.log1p(1 / (q * order)))
        denominator = big_l + float(np.log(q * a)) + 1 / (2 * sigma**2)
        first = a <= sigma**2 * big_l / 2 - 2 * log_sigma
        return first and a * denominator <= sigma**2 * big_l**2 / 2 - float(np.log(5)) - 2 * log_sigma

    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        bound: Array = 2 * q * q * lambdas * (lambdas + 1) / sigma**2 * (1 + 1e-15)
        return bound


@final
@dataclass(frozen=True)
class LeadingTerm(AbstractLogMoment):
    """Lemma 3 of the paper without its remainder, q²λ(λ+1)/((1-q)σ²): not a bound, not even in its region.

    At (q, σ, λ) = (0.04375, 1, 3) it is 5 % below the true α.
    """

    kind = Kind.HEURISTIC
    region = "σ >= 1, q < 1/(16σ) and λ <= σ² log(1/(qσ))"

    def _covers(self, q: float, sigma: float, order: float) -> bool:
        inside = sigma >= 1 and q < 1 / (16 * sigma)
        return q == 0 or (inside and order <= sigma**2 * float(np.log(1 / (q * sigma))))

    def _at(self, q: float, sigma: float, lambdas: Array) -> Array:
        term: Array = q * q * lambdas * (lambdas + 1) / (1 - q) / sigma**2
        return term
