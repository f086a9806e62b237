"""The paper's Theorem 1: the noise that is enough for T lots, with explicit constants and without.

Abadi et al. (2016), arXiv 1607.00133v2, Theorem 1: there are constants c₁, c₂ such that for ε < c₁q²T it is
enough that σ >= c₂ q√(T log(1/δ))/ε.
"""

import math

from dpexp import _validate
from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.events import Relation

__all__ = ["asymptotic_epsilon", "theorem_one_noise_multiplier"]


def theorem_one_noise_multiplier(
    *, sampling_probability: float, steps: int, epsilon: float, delta: float
) -> PrivacyBound:
    """A σ with which `steps` Poisson-sampled lots are (ε, δ)-DP: Theorem 1 with c₂ about 2, certified.

    With λ = ⌈2 log(1/δ)/ε⌉ and σ = q√(2T(λ+1)/ε), and if (λ-1)q(e^((λ+2)/(2σ²)) - 1) + 1/σ² <= log 2, the
    closed form gives Tα(λ) <= λε/2 and the tail bound δ: docs/theory/moments.md, section 4.

    Args:
        sampling_probability: q in (0, 1].
        steps: T >= 1.
        epsilon: ε > 0.
        delta: δ in (0, 1).

    Raises:
        UserError: The condition does not hold; it is printed with its value.
    """
    q = _validate.number("sampling_probability", sampling_probability, above=0, at_most=1)
    count = _validate.integer("steps", steps, at_least=1)
    target = _validate.number("epsilon", epsilon, above=0)
    log_inverse = -math.log(_validate.fraction("delta", delta))
    order = math.ceil(2 * log_inverse / target)
    sigma = q * math.sqrt(2 * count * (order + 1) / target) * (1 + 1e-14)
    exponent = (order + 2) / (2 * sigma**2)
    condition = math.inf if exponent > 700 else (order - 1) * q * math.expm1(exponent) + 1 / sigma**2
    if condition > math.log(2) * (1 - 1e-12):
        raise _validate.refuse(
            "epsilon",
            epsilon,
            f"a target for which (λ-1)q(e^((λ+2)/(2σ²)) - 1) + 1/σ² <= log 2, here {condition:.3g} "
            f"at λ = {order} and σ = {sigma:.4g}",
            "The asymptotic bound holds only there; use accountant=moments.",
        )
    return PrivacyBound(
        sigma,
        kind=Kind.CERTIFIED,
        accountant="theorem_one",
        relation=Relation.ADD_OR_REMOVE_ONE,
        delta=delta,
        quantity=Quantity.NOISE_MULTIPLIER,
    )


def asymptotic_epsilon(
    *, sampling_probability: float, noise_multiplier: float, steps: int, delta: float
) -> PrivacyBound:
    """ε from the leading term of Lemma 3 at the best real order: A + 2√(A log(1/δ)), A = Tq²/((1-q)σ²).

    With α(λ) = λ(λ+1)/(2σ²), the Gaussian on all rows, the same step gives A = T/(2σ²) and thus
    √(2T log(1/δ))ε₀ + Tε₀²/2 for ε₀ = 1/σ: advanced composition, without the logarithmic factor that an
    (ε₀, δ₀) for each release costs. A heuristic, since Lemma 3's remainder is dropped.

    Args:
        sampling_probability: q in (0, 1).
        noise_multiplier: σ > 0.
        steps: T >= 0.
        delta: δ in (0, 1).
    """
    q = _validate.number("sampling_probability", sampling_probability, at_least=0, below=1)
    sigma = _validate.number("noise_multiplier", noise_multiplier, above=0)
    count = _validate.integer("steps", steps, at_least=0)
    a = count * q * q / (1 - q) / sigma**2
    value = a + 2 * math.sqrt(-a * math.log(_validate.fraction("delta", delta)))
    return PrivacyBound(
        value,
        kind=Kind.HEURISTIC,
        accountant="asymptotic_bound",
        relation=Relation.ADD_OR_REMOVE_ONE,
        delta=delta,
    )
