"""The price of choosing the best of many private runs.

Papernot and Steinke (2022), "Hyperparameter Tuning with Rényi Differential Privacy", arXiv 2110.03620: run a
*random* number K of times, with fresh randomness, and release the best run alone. K is drawn before any
result is seen and stays secret; candidates are drawn at random from a fixed list, independently; the score is
part of every run, or computed on public data. Whoever looks at more than the winner composes all runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountants import LogMoments, RenyiAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.moments import Array

__all__ = [
    "RenyiCurve",
    "best_of_logarithmic",
    "best_of_negative_binomial",
    "best_of_poisson",
    "cheapest_selection",
    "compose_all",
    "curve_of",
    "log_inverse_gamma",
    "maximum",
]

_ROUNDING = 1e-12  # relative, of the few dozen operations below; added to every curve


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RenyiCurve:
    """Proven upper bounds on the Rényi divergence of neighbors, at several orders.

    Attributes:
        orders: a > 1, increasing, shape (K,); a = λ+1.
        divergences: r(a) >= 0, shape (K,).
        relation: The neighboring relation it holds for.
        accountant: What computed it.
    """

    orders: Array
    divergences: Array
    relation: Relation
    accountant: str = "rdp"

    def epsilon(self, delta: float) -> PrivacyBound:
        """The smallest ε that the curve proves at `delta` in (0, 1)."""
        delta = _validate.fraction("delta", delta)
        log_delta = math.log(delta)
        if self._total_variation <= delta:
            return self._bound(0.0, delta, None)
        # Canonne, Kamath and Steinke (2020), arXiv 2004.00010v7, Proposition 12.
        a = self.orders
        candidates = self.divergences + np.log1p(-1 / a) - (log_delta + np.log(a)) / (a - 1)
        best = int(np.argmin(candidates))
        return self._bound(max(float(candidates[best]), 0.0), delta, best)

    def log_delta(self, epsilon: float) -> float:
        """The smallest log δ <= 0 that the curve proves at `epsilon` >= 0."""
        a, epsilon = self.orders, _validate.number("epsilon", epsilon, at_least=0)
        by_order = (a - 1) * (self.divergences - epsilon + np.log1p(-1 / a)) - np.log(a)
        tv = self._total_variation
        return min(float(np.min(by_order)), math.log(tv) if tv > 0 else -math.inf, 0.0)

    @property
    def _total_variation(self) -> float:
        """Pinsker, and Bretagnolle and Huber: TV <= min(√(κ/2), √(1 - e^(-κ))), κ = Kullback-Leibler."""
        kappa = float(np.min(self.divergences))
        return math.sqrt(min(kappa / 2, -math.expm1(-kappa)))

    def _bound(self, value: float, delta: float, best: int | None) -> PrivacyBound:
        return PrivacyBound(
            value,
            kind=Kind.CERTIFIED,
            accountant=self.accountant,
            relation=self.relation,
            delta=delta,
            order=None if best is None else int(self.orders[best]) - 1,
            saturated=best == len(self.orders) - 1,
        )

    def _raised(self, divergences: Array, accountant: str) -> "RenyiCurve":
        rounded = divergences * (1 + _ROUNDING)
        return RenyiCurve(
            orders=self.orders, divergences=rounded, relation=self.relation, accountant=accountant
        )


def curve_of(event: Event, relation: Relation) -> RenyiCurve:
    """The curve of one whole run, on the orders of the accountant `rdp`.

    Raises:
        UnsupportedEventError: No bound is known for a part of the event; it is named.
    """
    accountant = RenyiAccountant()
    cost: LogMoments = accountant.price(event, relation)
    lambdas = np.asarray(accountant.orders, dtype=np.float64)
    return RenyiCurve(
        orders=lambdas + 1, divergences=cost.alpha / lambdas, relation=relation, accountant=accountant.name
    )


def maximum(curves: Sequence[RenyiCurve]) -> RenyiCurve:
    """One bound for whichever of several runs is made, where the choice is no secret or part of the result.

    Args:
        curves: At least one; all on the same orders, under the same relation.
    """
    first = curves[0]
    if any(curve.relation is not first.relation or curve.accountant != first.accountant for curve in curves):
        raise ValueError("Curves of different relations or accountants have no common bound.")
    divergences = np.max([curve.divergences for curve in curves], axis=0)
    return replace(first, divergences=divergences)


def compose_all(run: RenyiCurve, runs: int) -> RenyiCurve:
    """The cost of `runs` >= 0 runs of which *all* results may be looked at and published."""
    count = _validate.integer("runs", runs, at_least=0)
    total = count * run.divergences if count else np.zeros_like(run.divergences)
    return run._raised(total, "compose_all")


def best_of_negative_binomial(run: RenyiCurve, mean_runs: float, shape: float) -> RenyiCurve:
    """The cost of releasing the best of K runs, K truncated negative binomial of a given mean.

    P(K=k) = (1-γ)^k/(γ^(-η) - 1)·Π_{l<k} (l+η)/(l+1), k >= 1, and (Papernot and Steinke 2022, Theorem 2)

        r'(a) = r(a) + (1+η)·min_b [(1 - 1/b) r(b) + log(1/γ)/b] + log(E K)/(a-1).

    Args:
        run: One run.
        mean_runs: E K >= 1, from which γ follows.
        shape: η > -1; 1 is the geometric distribution, 0 the logarithmic one. Small shapes cost less, and
            spread K more widely.

    Returns:
        The curve of the whole selection.
    """
    eta = _validate.number("shape", shape, above=-1)
    mean = _validate.number("mean_runs", mean_runs, at_least=1)
    if mean == 1:
        return run._raised(run.divergences, "select_negative_binomial")
    log_gamma = log_inverse_gamma(mean, eta)
    a, r = run.orders, run.divergences
    every_run = float(np.min((1 - 1 / a) * r + log_gamma / a))
    raised = r + (1 + eta) * every_run + math.log(mean) / (a - 1)
    return run._raised(raised, "select_negative_binomial")


def best_of_logarithmic(run: RenyiCurve, mean_runs: float) -> RenyiCurve:
    """`best_of_negative_binomial` of shape 0: the one to take for five runs or more."""
    return best_of_negative_binomial(run, mean_runs, shape=0)


def best_of_poisson(run: RenyiCurve, mean_runs: float) -> RenyiCurve:
    """The cost of releasing the best of K runs, K Poisson of mean m: cheap for two or three.

    With probability e^(-m) there is no run at all: the selection must then release nothing.

        r'(a) = r(a) + m·δ̂(log(1 + 1/(a-1))) + log(m)/(a-1)    (Papernot and Steinke 2022, Theorem 6)

    where one run is (ε, δ̂(ε))-DP.

    Args:
        run: One run.
        mean_runs: m >= 1.
    """
    mean = _validate.number("mean_runs", mean_runs, at_least=1)
    a = run.orders
    deltas = np.array([math.exp(run.log_delta(math.log1p(1 / (order - 1)))) for order in a.tolist()])
    return run._raised(run.divergences + mean * deltas + math.log(mean) / (a - 1), "select_poisson")


def cheapest_selection(run: RenyiCurve, runs: int, delta: float) -> PrivacyBound:
    """The least ε at which the best of (about) `runs` >= 1 runs may be released; its accountant names how.

    The three rules are compared before anything is drawn, so taking the least costs nothing.
    """
    rules = (compose_all(run, runs), best_of_logarithmic(run, runs), best_of_poisson(run, runs))
    return min((rule.epsilon(delta) for rule in rules), key=float)


def log_inverse_gamma(mean: float, eta: float) -> float:
    """log(1/γ) of the truncated negative binomial of a given mean > 1, rounded up, by bisection.

    Raises:
        UserError: No float64 is large enough.
    """
    low, high = 0.0, 1.0
    while _mean(high, eta) < mean:
        low, high = high, 2 * high
        if high > 700:
            raise _validate.refuse("mean_runs", mean, f"a number below {_mean(700, eta):.3g} at this shape")
    while high - low > 4e-16 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _mean(middle, eta) >= mean else (middle, high)
        if middle in (low, high) and high - low <= math.ulp(high):
            break
    return high


def _mean(log_inverse_gamma: float, eta: float) -> float:
    """E K = η(1-γ)/(γ(1-γ^η)), with its limit (1/γ - 1)/log(1/γ) at η = 0."""
    g = log_inverse_gamma
    if abs(eta) * g < 1e-12:
        return math.expm1(g) / g
    return eta * math.expm1(g) / -math.expm1(-eta * g)
