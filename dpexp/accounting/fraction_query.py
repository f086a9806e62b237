"""The extra query of adaptive clipping: which share of a lot's gradients is within the clip norm.

Andrew et al. (2021), "Differentially Private Learning with Adaptive Clipping", arXiv 1905.03871. Every
example contributes b - 1/2, b = 1[‖g‖ <= C_t], to a second noised sum over the same lot. Its sensitivity is
1/2 under add-or-remove-one and 1 under replace-one. C_t depends on noisy outputs only, and what a step costs
does not depend on C_t, so the privacy parameters stay fixed in advance.
"""

import math

from dpexp import _validate
from dpexp.accounting.events import Gaussian, joint

__all__ = ["fraction_query", "gradient_multiplier_beside_fraction_query", "with_fraction_query"]


def fraction_query(count_noise: float) -> Gaussian:
    """The query alone, as a release.

    Args:
        count_noise: s_b > 0, std of the noise on the sum of b - 1/2, in examples.

    Returns:
        Noise multiplier 2·s_b; replacing one example changes the sum twice as much.
    """
    return Gaussian(noise_multiplier=2 * _validate.number("count_noise", count_noise, at_least=0))


def with_fraction_query(gradients: Gaussian, count_noise: float) -> Gaussian:
    """The one release that gradients and query on the same lot make up: 1/z² = 1/z_Δ² + 1/(2 s_b)².

    Args:
        gradients: The noised sum of clipped gradients, of noise multiplier z_Δ.
        count_noise: s_b >= 0, std of the noise on the sum of b - 1/2, in examples.
    """
    return joint([gradients, fraction_query(count_noise)])


def gradient_multiplier_beside_fraction_query(noise_multiplier: float, count_noise: float) -> float:
    """z_Δ = (z⁻² - (2 s_b)⁻²)^(-1/2): the gradients' multiplier so that both together cost what z does.

    Args:
        noise_multiplier: z > 0, what the joint release must amount to.
        count_noise: s_b > z/2, std of the noise on the sum of b - 1/2, in examples.

    Returns:
        z_Δ > z, rounded up, so that the joint release costs no more.

    Raises:
        UserError: s_b <= z/2: the query alone costs more than that.
    """
    z = _validate.number("noise_multiplier", noise_multiplier, above=0)
    hint = "The query alone must cost less than the step: raise count_noise or lower noise_multiplier."
    noise = _validate.number("count_noise", count_noise, above=z / 2, hint=hint)
    share = z / (2 * noise)
    needed = z / math.sqrt((1 - share) * (1 + share)) * (1 + 1e-15)
    while with_fraction_query(Gaussian(noise_multiplier=needed), noise).noise_multiplier < z:
        needed = math.nextafter(needed, math.inf)
    return needed
