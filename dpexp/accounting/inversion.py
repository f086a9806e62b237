"""δ(ε) of a composition of discrete pairs, proven from above, by inverting a Laplace transform.

With φ(s) = E_P[e^(sL)] of the whole composition and 0 < c,

    Σ_m e^(cmD) δ(ε + mD) = (h/2π) Σ_k φ(s_k) e^(-s_k ε) / (s_k(s_k + 1)),   s_k = c + ikh,  D = 2π/h,

(Poisson summation; both sums over all integers). All terms on the left are >= 0 and that of m = 0 is δ(ε), so
the sum on the right is an upper bound. φ has a factor exp(m₂ s(s+1)/2), m₂ > 0, from Gaussian releases, real
ones or one added for the purpose, so the terms left out have a proven bound; so has the rounding, which is
added. Proof, line by line: docs/theory/pld.md, section 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpexp.accounting.atoms import Atoms
from dpexp.accounting.moments import Array

__all__ = ["TERMS", "Contour", "Group", "Inversion", "characteristic"]

_U = 2.0**-53
_BLOCK = 64
TERMS = _BLOCK * _BLOCK  # of the sum over k >= 0


@dataclass(frozen=True, eq=False)
class Group:
    """`count` >= 1 independent releases, each dominated by `atoms`."""

    atoms: Atoms
    count: int


@dataclass(frozen=True, kw_only=True)
class Contour:
    """Where to sum.

    Attributes:
        c: Real part of every node, > 0.
        step: h > 0.
        variance: m₂ > 0, the sum of μ² over the Gaussian releases and the added one.
    """

    c: float
    step: float
    variance: float


class Inversion:
    """The sums over one contour; nodes do not depend on ε, so another ε costs microseconds."""

    def __init__(self, groups: Sequence[Group], contour: Contour) -> None:
        c, t = contour.c, contour.step * np.arange(TERMS)
        self._c, self._t = c, t
        power = np.zeros(TERMS, dtype=np.complex128)  # log of (φ(s_k)/φ(c)), up to 2πi
        ceiling, error = np.zeros(TERMS), np.zeros(TERMS)
        self._log_scale = contour.variance * c * (c + 1) / 2
        for group in groups:
            factor = _Factor.of(group, contour)
            power += float(group.count) * np.log(factor.ratio)
            ceiling += group.count * np.log(factor.ceiling)
            error += group.count * factor.error / factor.ceiling
            self._log_scale += group.count * (factor.log_at_c + factor.error_at_c)
        smooth = contour.variance / 2 * (1j * t * (2 * c + 1) - t * t)
        self._log_terms = power + smooth
        size = contour.step / np.pi / np.hypot(c, t) / np.hypot(c + 1, t)
        size[0] /= 2
        self._weights = contour.step / np.pi / ((c + 1j * t) * (c + 1 + 1j * t))
        self._weights[0] /= 2
        rounding = 8 * _U * (np.abs(power) + np.abs(smooth) + sum(group.count for group in groups) + TERMS)
        envelope = size * np.exp(ceiling - contour.variance * t * t / 2)
        self._fixed_error = float((envelope * (error + rounding)).sum()) * (1 + 1e-9)
        self._phase_error = 8 * _U * float((envelope * t).sum())
        end = contour.step * (TERMS - 1)
        self._tail = float(np.exp(-contour.variance * end * end / 2) / end / np.pi) * (1 + 1e-9)
        self._log_infinite = float(
            np.logaddexp.reduce([-np.inf, *(np.log(g.count) + g.atoms.log_infinite + 1e-9 for g in groups)])
        )

    def log_delta(self, epsilon: float) -> float:
        """The log of the upper bound on δ(ε), for ε >= 0."""
        terms = np.exp(self._log_terms - 1j * epsilon * self._t)
        total = float((self._weights * terms).real.sum())
        bound = max(total, 0.0) + self._fixed_error + self._phase_error * epsilon + self._tail
        scale = self._log_scale - self._c * epsilon
        scale += 8 * _U * (abs(self._log_scale) + self._c * epsilon)
        return float(np.logaddexp(scale + np.log(bound), self._log_infinite))


@dataclass(frozen=True, eq=False)
class _Factor:
    """φ(s_k)/φ(c) of one release, |ratio| <= 1 in truth, with what may be wrong about it, shape (TERMS,)."""

    ratio: NDArray[np.complex128]
    error: Array
    ceiling: Array
    log_at_c: float
    error_at_c: float

    @classmethod
    def of(cls, group: Group, contour: Contour) -> "_Factor":
        atoms, c = group.atoms, contour.c
        exponents = atoms.log_mass + c * atoms.loss
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        weights /= total
        t: Array = contour.step * np.arange(float(TERMS))
        ratio = characteristic(weights, contour.step * atoms.loss, _BLOCK)
        exponent_error = 4 * _U * (np.abs(atoms.log_mass) + np.abs(c * atoms.loss) + abs(top))
        relative = atoms.mass_error + c * atoms.loss_error + exponent_error + 4 * _U * (len(weights) + 16)
        at_c = float((weights * relative).sum()) * (1 + 1e-9)
        per_t = float((weights * (atoms.loss_error + 8 * _U * np.abs(atoms.loss))).sum()) * (1 + 1e-9)
        error = 2 * at_c + t * per_t
        modulus = np.asarray(np.abs(ratio) * (1 + 8 * _U), dtype=np.float64)
        largest = np.maximum(modulus, np.minimum(modulus + error, 1.0))  # of the true and the computed ratio
        ceiling: Array = np.asarray(largest, dtype=np.float64)
        return cls(ratio, error, ceiling, top + np.log(total), at_c + 8 * _U * abs(top))


def characteristic(weights: Array, angles: Array, block: int) -> NDArray[np.complex128]:
    """Σ_j w_j exp(ikθ_j) for k = 0 … block² - 1, as a product of matrices: k = block·a + b."""
    digits = np.arange(block)[:, np.newaxis]
    fine = np.exp(1j * digits * angles)
    coarse = np.exp(1j * (digits * block) * angles) * weights
    product: NDArray[np.complex128] = (coarse @ fine.T).reshape(block * block)
    product[np.abs(product) < 1e-200] = 1e-200  # far below its error, and log stays finite
    return product
