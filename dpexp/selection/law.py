"""How many trials there are: two laws of K, each drawn as exactly as it is priced.

A law is given by its probabilities in turn, as decimals of 120 digits, whose sums are inverted at 256 secret
bits. No probability is off by more than 2⁻²⁵⁵, so what is drawn is within 10⁻⁶⁰ of the law in total
variation, which adds less than (1 + e^ε)·10⁻⁶⁰ to δ. Sums in float64 would be off by 10⁻¹⁴ or so.
"""

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Protocol, final

from dpexp import _validate
from dpexp.accounting.selection import (
    RenyiCurve,
    best_of_negative_binomial,
    best_of_poisson,
    log_inverse_gamma,
)

__all__ = ["Law", "NegativeBinomial", "Poisson", "draw", "quantile"]

_BITS = 256
_DIGITS = 120
_MOST = 1e6  # of the mean, and of the trials 1/γ over which a tail falls by e: all of K would be trained


class Law(Protocol):
    """A law of the number of trials K."""

    @property
    def mean_trials(self) -> float:
        """E K >= 1."""
        ...

    @property
    def least(self) -> int:
        """The smallest K."""
        ...

    @property
    def in_words(self) -> str:
        """Its name and parameters."""
        ...

    @property
    def theorem(self) -> str:
        """Of Papernot and Steinke (2022)."""
        ...

    def price(self, trial: RenyiCurve) -> RenyiCurve:
        """The cost of releasing the best of K trials, each of which costs at most `trial`."""
        ...

    def chances(self) -> Iterator[Decimal]:
        """P(K = least), P(K = least + 1), …; to be read in a decimal context of `_DIGITS`."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class NegativeBinomial:
    """K truncated negative binomial: at least one, of any spread.

    Attributes:
        mean_trials: E K >= 1.
        shape: η > -1; 1 is the geometric law, 0 the logarithmic one. A small shape costs less and spreads K
            more widely: most often one trial, sometimes very many.
    """

    mean_trials: float
    shape: float = 0.0
    least = 1

    def __post_init__(self) -> None:
        _check_mean(self.mean_trials)
        _validate.number("hydra.sweeper.shape", self.shape, above=-1)
        if self._log_inverse_gamma > math.log(_MOST):
            expected = "one with which K cannot become so large that it would never be trained"
            hint = "Raise hydra.sweeper.shape (0 is the logarithmic law), or lower mean_trials."
            raise _validate.refuse("hydra.sweeper.shape", self.shape, expected, hint)

    @property
    def _log_inverse_gamma(self) -> float:
        return 0.0 if self.mean_trials == 1 else log_inverse_gamma(self.mean_trials, self.shape)

    @property
    def in_words(self) -> str:
        """Its name and parameters."""
        name = "logarithmic" if self.shape == 0 else f"truncated negative binomial of shape {self.shape:g}"
        return f"{name}, mean {self.mean_trials:g}"

    @property
    def theorem(self) -> str:
        """Of Papernot and Steinke (2022)."""
        return "Theorem 2"

    def price(self, trial: RenyiCurve) -> RenyiCurve:
        """The cost of releasing the best of K trials, each of which costs at most `trial`."""
        return best_of_negative_binomial(trial, self.mean_trials, self.shape)

    def chances(self) -> Iterator[Decimal]:
        """P(K=1), P(K=2), …; P(K=k+1) = P(K=k)·(1-γ)(k+η)/(k+1) (Papernot and Steinke 2022, Definition 1)."""
        if self.mean_trials == 1:
            yield Decimal(1)
            return
        g = Decimal(self._log_inverse_gamma)  # the very γ that is priced
        eta, rest = Decimal(self.shape), 1 - (-g).exp()
        chance = rest / g * _over_expm1(eta * g)
        for k in _from_one():
            yield chance
            chance *= rest * (k + eta) / (k + 1)


@final
@dataclass(frozen=True, kw_only=True)
class Poisson:
    """K Poisson, and so 0 with probability e^(-mean): the selection then releases nothing.

    Attributes:
        mean_trials: E K >= 1.
    """

    mean_trials: float
    least = 0

    def __post_init__(self) -> None:
        _check_mean(self.mean_trials)

    @property
    def in_words(self) -> str:
        """Its name and parameters."""
        return f"Poisson, mean {self.mean_trials:g}"

    @property
    def theorem(self) -> str:
        """Of Papernot and Steinke (2022)."""
        return "Theorem 6"

    def price(self, trial: RenyiCurve) -> RenyiCurve:
        """The cost of releasing the best of K trials, each of which costs at most `trial`."""
        return best_of_poisson(trial, self.mean_trials)

    def chances(self) -> Iterator[Decimal]:
        """P(K=0), P(K=1), … in turn."""
        mean = Decimal(self.mean_trials)
        chance = (-mean).exp()
        for k in _from_one():
            yield chance
            chance *= mean / k


def quantile(law: Law, level: float) -> int:
    """The smallest k with P(K <= k) > level, in [0, 1): public, as the law is."""
    return _quantile(law, int(level * 2**_BITS))


def draw(law: Law) -> int:
    """K, from the operating system's entropy: never logged, never drawn twice for one selection."""
    return _quantile(law, secrets.randbits(_BITS))


def _quantile(law: Law, bits: int) -> int:
    """The smallest k with P(K <= k) > bits/2²⁵⁶."""
    with localcontext() as context:
        context.prec = _DIGITS
        level, below = Decimal(bits) / Decimal(2**_BITS), Decimal(0)
        for k, chance in enumerate(law.chances(), start=law.least):
            below += chance
            if below > level:
                return k
    raise AssertionError("The probabilities of a law add up to one.")


def _over_expm1(x: Decimal) -> Decimal:
    """x/(e^x - 1), which is 1 at 0; to 80 digits at least."""
    if abs(x) < Decimal("1e-20"):  # where the difference would lose its digits; the next term is x⁴/720
        return 1 - x / 2 + x * x / 12
    return x / (x.exp() - 1)


def _from_one() -> Iterator[int]:
    k = 1
    while True:
        yield k
        k += 1


def _check_mean(mean: float) -> None:
    _validate.number("hydra.sweeper.mean_trials", mean, at_least=1, at_most=_MOST)
