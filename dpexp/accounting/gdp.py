"""Gaussian differential privacy by the central limit theorem: asymptotic, and below the truth as a rule."""

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr

from dpexp import _validate
from dpexp.accounting.accountant import (
    AbstractAccountant,
    UnsupportedEventError,
    checked_epsilon,
    delta_from_log,
)
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, log_delta_of_gdp
from dpexp.accounting.pairs import FixedSizePair, GaussianPair, Pair, PoissonPair
from dpexp.accounting.samplers import dominating_pairs

__all__ = ["GDPAccountant", "SquaredMu", "limiting_variance"]

_MUCH_NOISE = 1e4


@dataclass(frozen=True)
class SquaredMu:
    """The cost of a composition: μ², which adds."""

    value: float

    def __add__(self, other: "SquaredMu") -> "SquaredMu":
        return SquaredMu(self.value + other.value)

    def __rmul__(self, count: int) -> "SquaredMu":
        return SquaredMu(0.0 if count == 0 else float(count) * self.value)  # 0 · ∞ is 0


@final
@dataclass(frozen=True)
class GDPAccountant(AbstractAccountant[SquaredMu]):
    """What ε tends to as releases grow in number and weak: no bound for any finite number of them.

    Bu, Dong, Long and Su (2020), arXiv 1911.11607, for Poisson lots; Dong, Su and Roth (2022), arXiv
    1905.02383, for lots of fixed size (NoisySGD). Rederived: docs/theory/sampling.md, section 7.
    """

    name = "gdp"
    kind = Kind.ASYMPTOTIC

    @property
    def zero(self) -> SquaredMu:
        """The cost of releasing nothing."""
        return SquaredMu(0.0)

    def price(self, event: Event, relation: Relation) -> SquaredMu:
        """μ² of the event.

        Raises:
            UnsupportedEventError: No limit is known here for a part of the event; it is named.
        """
        pairs = dominating_pairs(self.name, event, relation)
        return SquaredMu(float(sum(float(n) * limiting_variance(pair) for pair, n in pairs.items())))

    def epsilon(self, cost: SquaredMu, delta: float, relation: Relation) -> PrivacyBound:
        """ε at `delta` in (0, 1) in the limit."""
        mu, delta = float(np.sqrt(cost.value)), _validate.fraction("delta", delta)
        value = np.inf if mu == np.inf else epsilon_of_gdp(mu, float(np.log(delta)))
        return self._bound(value, relation, delta)

    def delta(self, cost: SquaredMu, epsilon: float, relation: Relation) -> PrivacyBound:
        """δ at `epsilon` >= 0 in the limit."""
        mu = float(np.sqrt(cost.value))
        value = 1.0 if mu == np.inf else delta_from_log(log_delta_of_gdp(mu, checked_epsilon(epsilon)))
        return self._bound(value, relation, None)

    def _bound(self, value: float, relation: Relation, delta: float | None) -> PrivacyBound:
        return PrivacyBound(value, kind=self.kind, accountant=self.name, relation=relation, delta=delta)


def limiting_variance(pair: Pair) -> float:
    """E[(dP/dQ - 1)²] of a weak pair, which is what its loss adds to μ².

    Gaussian: 1/σ² exactly. Poisson: q²(e^(1/σ²) - 1). Fixed size, σ in units of the replace-one sensitivity:
    2q²[e^(1/σ²)Φ(3/(2σ)) + 3Φ(-1/(2σ)) - 2].
    """
    if pair.sigma < 1e-150:
        return np.inf
    inverse = 1 / pair.sigma**2
    match pair:
        case GaussianPair():
            return inverse
        case PoissonPair(q=q):
            return q * q * float(np.expm1(inverse)) if inverse < 700 else np.inf
        case FixedSizePair(q=q, sigma=s):
            if inverse > 700:
                return np.inf
            if s > _MUCH_NOISE:  # its series, as the sum loses its digits
                return q * q * inverse * (1 + float(np.sqrt(2 / np.pi)) / s)
            return 2 * q * q * float(np.exp(inverse) * ndtr(1.5 / s) + 3 * ndtr(-0.5 / s) - 2)
        case _:
            raise UnsupportedEventError(f"The accountant gdp knows no limit for {pair!r}.")
