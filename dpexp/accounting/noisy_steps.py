"""A run of equal noisy steps under one accountant, sampling and relation, as a function of σ and T."""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountant import AnyAccountant
from dpexp.accounting.bounds import PrivacyBound, Quantity
from dpexp.accounting.budget import Phase
from dpexp.accounting.events import Gaussian, Relation
from dpexp.accounting.moments import Array
from dpexp.accounting.registry import as_accountant
from dpexp.accounting.schemes import SAMPLING, lots_per_epoch, steps_event
from dpexp.accounting.trajectory import trajectory

__all__ = ["NoisySteps", "noisy_steps"]

_SMALLEST_DELTA = 1e-300
_NO_NOISE = 1e-100  # 1/σ² would overflow soon; ∞ (and δ = 1) is proven for any σ
_MOST_NOISE, _LEAST_PROBABILITY = 1e12, 1e-30  # beyond, σ and q are priced as these, which cost more


@final
@dataclass(frozen=True)
class NoisySteps:
    """Everything about a run but σ, T and the target. Arguments of its methods are checked by `api`.

    Attributes:
        accountant: What prices it.
        sampling: A key of `schemes.SAMPLING`.
        relation: The neighboring relation.
        q: Sampling probability in [0, 1].
    """

    accountant: AnyAccountant
    sampling: str
    relation: Relation
    q: float

    def at(self, q: float) -> "NoisySteps":
        """The same with another sampling probability."""
        return NoisySteps(self.accountant, self.sampling, self.relation, q)

    def epsilon(self, sigma: float, steps: int, delta: float) -> PrivacyBound:
        """ε at δ in [0, 1); 0 where nothing is released, else ∞ at σ = 0 (< 1e-100) or δ = 0."""
        if self._releases_nothing(steps):
            return self._figure(0.0, delta)
        if sigma < _NO_NOISE or delta == 0:
            self._cost(max(sigma, 1.0), steps)  # refuses what it cannot price
            return self._figure(math.inf, delta)
        bound = self.accountant.epsilon(self._cost(sigma, steps), delta, self.relation)
        return bound.described(sampler=self.sampling)

    def delta(self, sigma: float, steps: int, epsilon: float) -> PrivacyBound:
        """δ at ε >= 0; 0 where nothing is released, else 1 at σ = 0, and 1e-300 where it is less."""
        if self._releases_nothing(steps):
            return self._figure(0.0, None)
        if sigma < _NO_NOISE:
            self._cost(1.0, steps)
            return self._figure(1.0, None)
        bound = self.accountant.delta(self._cost(sigma, steps), epsilon, self.relation)
        # exp underflows to 0, which no noisy release proves
        return bound.described(sampler=self.sampling).with_value(max(float(bound), _SMALLEST_DELTA))

    def epsilons(self, sigma: float, counts: list[int], delta: float) -> Array:
        """ε after each number of steps, one conversion each."""
        _validate.number("number of steps asked for", len(counts), at_most=1000)
        return np.array([float(self.epsilon(sigma, count, delta)) for count in counts])

    def trajectory(self, sigma: float, steps: int, delta: float) -> Array:
        """ε after 1, 2, …, T steps, shape (T,), for accountants that add up log moments."""
        step = steps_event(Gaussian(noise_multiplier=sigma), self.q, 1, self.sampling)
        lots = lots_per_epoch(self.q, self.sampling)
        curve = trajectory(self.accountant, self.relation, [Phase(step, -(-steps // lots))], delta=delta)
        return np.repeat(curve, min(lots, max(steps, 1)))[:steps]

    def solved(self, value: float, quantity: Quantity, delta: float) -> PrivacyBound:
        """A solution for a target at δ, of this accountant's kind."""
        return self._figure(value, delta).described(quantity=quantity)

    def _cost(self, sigma: float, steps: int) -> Any:
        gaussian = Gaussian(noise_multiplier=min(sigma, _MOST_NOISE))
        event = steps_event(gaussian, max(self.q, _LEAST_PROBABILITY), steps, self.sampling)
        return self.accountant.price(event, self.relation)

    def _releases_nothing(self, steps: int) -> bool:
        return steps == 0 or self.q == 0

    def _figure(self, value: float, delta: float | None) -> PrivacyBound:
        return PrivacyBound(
            value,
            kind=self.accountant.kind,
            accountant=self.accountant.name,
            relation=self.relation,
            delta=delta,
            sampler=self.sampling,
            quantity=Quantity.DELTA if delta is None else Quantity.EPSILON,
        )


def noisy_steps(
    accountant: str | AnyAccountant,
    sampling: str,
    relation: str,
    sampling_probability: float | None,
) -> NoisySteps:
    """Checks the names and q that all one-liners share; q = None is 1 with sampling=full.

    Raises:
        UserError: A name is unknown, q is outside [0, 1], or missing.
    """
    scheme = _validate.one_of("sampling", sampling, SAMPLING)
    if sampling_probability is None and scheme != "full":
        hint = "It is lot size ÷ number of rows; only sampling=full does without."
        raise _validate.refuse("sampling_probability", None, "a number in [0, 1]", hint)
    given = 1.0 if sampling_probability is None else sampling_probability
    q = _validate.number("sampling_probability", given, at_least=0, at_most=1)
    neighbors = Relation(_validate.one_of("relation", relation, list(Relation)))
    return NoisySteps(as_accountant(accountant), scheme, neighbors, q)
