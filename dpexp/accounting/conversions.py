"""From log moments to (ε, δ), at fixed orders λ > 0."""

import numpy as np

from dpexp.accounting.moments import Array

__all__ = ["epsilons_from", "improved_bonus", "log_deltas_from", "tail_bonus", "total_variations"]


def tail_bonus(orders: Array) -> Array:
    """0: the tail bound δ = min_λ exp(α(λ) - λε) of Abadi et al. (2016), arXiv 1607.00133v2, Theorem 2.2."""
    return np.zeros(orders.shape)


def improved_bonus(orders: Array) -> Array:
    """What the conversion of Canonne, Kamath and Steinke saves, as λε is concerned.

    Canonne, Kamath and Steinke (2020), arXiv 2004.00010v7, Proposition 12, at Rényi order λ+1:
    ε = (α + log(1/δ) - log(λ+1))/λ + log(λ/(λ+1)).
    """
    bonus: Array = np.log(orders + 1) + orders * np.log1p(1 / orders)
    return bonus


def epsilons_from(alpha: Array, orders: Array, bonus: Array, log_delta: float) -> Array:
    """ε at each order, (α + log(1/δ) - bonus)/λ; may be negative, where 0 holds."""
    epsilon: Array = (alpha - log_delta - bonus) / orders
    return epsilon


def log_deltas_from(alpha: Array, orders: Array, bonus: Array, epsilon: float) -> Array:
    """The log of δ at each order, α - λε - bonus; may be positive, where 0 holds."""
    log_delta: Array = alpha - orders * epsilon - bonus
    return log_delta


def total_variations(alphas: Array, orders: Array) -> Array:
    """A bound on the total variation distance, and so on δ at ε = 0; shape (T, K) to (T,).

    α(λ)/λ is a Rényi divergence of order above 1 and bounds Kullback-Leibler κ; then Pinsker and
    Bretagnolle-Huber: TV <= min(√(κ/2), √(1 - e^(-κ))).
    """
    kappa = np.min(alphas / orders, axis=1)
    tv: Array = np.sqrt(np.minimum(kappa / 2, -np.expm1(-kappa)))
    return tv
