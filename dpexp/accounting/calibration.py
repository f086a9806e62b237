"""Solving for the noise that a target ε needs, rounded to the private side."""

from collections.abc import Callable

from dpexp import _validate

__all__ = ["smallest_noise_multiplier"]

_TOLERANCE = 1e-5  # relative width at which the search stops
_LARGEST = 1e8


def smallest_noise_multiplier(epsilon_at: Callable[[float], float], epsilon: float, *, key: str) -> float:
    """The smallest σ (up to a factor 1 + 1e-5) whose run costs at most `epsilon`.

    Args:
        epsilon_at: ε of the whole run as a function of σ > 0; falls as σ rises.
        epsilon: Target ε > 0.
        key: The config key of the target, for the error.

    Returns:
        σ with epsilon_at(σ) <= epsilon: the end of the bracket on the private side.

    Raises:
        UserError: No noise is enough, since other releases of the run cost more than the target.
    """
    low, high = _bracket(epsilon_at, epsilon, key)
    while high / low > 1 + _TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if epsilon_at(middle) <= epsilon else (middle, high)
    return high


def _bracket(epsilon_at: Callable[[float], float], epsilon: float, key: str) -> tuple[float, float]:
    high = 1.0
    while epsilon_at(high) > epsilon:
        high *= 2
        if high > _LARGEST:
            floor = epsilon_at(_LARGEST)
            raise _validate.refuse(
                key,
                epsilon,
                f"a number above {floor:.4g}, the ε this run has however large the noise is",
                "What else is released (features), or the accountant's largest order, sets that floor: "
                "raise privacy.epsilon, release less, or set accountant=rdp.",
            )
    low = high / 2
    while epsilon_at(low) <= epsilon:
        low, high = low / 2, low
    return low, high
