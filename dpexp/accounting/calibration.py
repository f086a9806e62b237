"""Solving for what a target ε needs or admits, rounded to the private side.

Every solver takes ε of the whole run as a function of one parameter and returns a parameter at which that
function *was evaluated* and found within the target, so that the answer is as certified as the function,
whatever its smoothness. Only that it is the best such parameter rests on ε being monotone.
"""

import math
from collections.abc import Callable

from dpexp import _validate
from dpexp.accounting.bounds import PrivacyBound

__all__ = ["in_words", "largest_sampling_probability", "most_steps", "smallest_noise_multiplier"]

_TOLERANCE = 1e-5  # relative width at which the search stops
_SMALLEST, _LARGEST = 1e-6, 1e8  # of σ
_SMALLEST_PROBABILITY = 1e-15


def smallest_noise_multiplier(epsilon_at: Callable[[float], float], epsilon: float, *, key: str) -> float:
    """The smallest σ (up to a factor 1 + 1e-5) whose run costs at most `epsilon`.

    Args:
        epsilon_at: ε of the whole run as a function of σ > 0; falls as σ rises.
        epsilon: Target ε > 0.
        key: The config key of the target, for the error.

    Returns:
        σ with epsilon_at(σ) <= epsilon: the end of the bracket on the private side. 1e-6 where even that
        little noise is enough (nothing, or next to nothing, is released).

    Raises:
        UserError: No noise is enough, since other releases of the run cost more than the target.
    """
    inside, outside = _bracket(epsilon_at, epsilon, key)
    if outside is None:
        return inside
    return _close_in(epsilon_at, epsilon, inside, outside)


def most_steps(epsilon_at: Callable[[int], float], epsilon: float, *, at_most: int = 10**12) -> int:
    """The largest T <= `at_most` whose run costs at most `epsilon`; 0 where not even one step does.

    Args:
        epsilon_at: ε of the whole run as a function of T >= 1; rises with T.
        epsilon: Target ε > 0.
        at_most: Where the search ends.
    """
    low, high = 0, 1
    value_low, value_high = 0.0, float(epsilon_at(1)) if at_most else math.inf
    while high < at_most and value_high <= epsilon:
        low, high, value_low = high, min(4 * high, at_most), value_high
        value_high = float(epsilon_at(high))
    if high <= at_most and value_high <= epsilon:
        return high
    for turn in range(200):
        if high - low <= 1:
            break
        middle = _whole_probe(low, high, value_low, value_high, epsilon, turn)
        value = float(epsilon_at(middle))
        if value <= epsilon:
            low, value_low = middle, value
        else:
            high, value_high = middle, value
    return low


def largest_sampling_probability(epsilon_at: Callable[[float], float], epsilon: float, *, key: str) -> float:
    """The largest q in (0, 1] (up to a factor 1 + 1e-5) whose run costs at most `epsilon`.

    Args:
        epsilon_at: ε of the whole run as a function of q in (0, 1]; rises with q.
        epsilon: Target ε > 0.
        key: The config key of the target, for the error.

    Raises:
        UserError: Not even q = 1e-15 is small enough.
    """
    if float(epsilon_at(1.0)) <= epsilon:
        return 1.0
    inside, outside = 0.1, 1.0
    while not float(epsilon_at(inside)) <= epsilon:
        inside, outside = inside / 10, inside
        if inside < _SMALLEST_PROBABILITY:
            raise _validate.refuse(
                key,
                epsilon,
                f"a number of at least {in_words(epsilon_at(outside))}, the ε at q = {outside:.0e}",
                "Raise the target, add noise, take fewer steps, or set accountant=rdp.",
            )
    return _close_in(epsilon_at, epsilon, inside, outside)


def in_words(epsilon: float) -> str:
    """An ε for an error text, rounded up, with its kind where it has one."""
    if isinstance(epsilon, PrivacyBound):
        return f"{epsilon.in_print} ({epsilon.kind}, accountant {epsilon.accountant})"
    return f"{epsilon:.4g}"


def _bracket(epsilon_at: Callable[[float], float], epsilon: float, key: str) -> tuple[float, float | None]:
    """σ within the target, and the next smaller power of two, which is not (None: there is none)."""
    high = 1.0
    while not float(epsilon_at(high)) <= epsilon:
        high *= 2
        if high > _LARGEST:
            raise _too_small(key, epsilon, epsilon_at(_LARGEST))
    if high > 1:
        return high, high / 2
    low = 0.5
    while float(epsilon_at(low)) <= epsilon:
        low, high = low / 2, low
        if low < _SMALLEST:
            return high, None
    return high, low


def _too_small(key: str, epsilon: float, floor: float) -> _validate.UserError:
    return _validate.refuse(
        key,
        epsilon,
        f"a number above {in_words(floor)}, the ε this run has however large the noise is",
        "What else is released (features, with noise multipliers of their own), or the largest order of "
        "accountant=moments, sets that floor: raise privacy.epsilon, release less or with more noise, or set "
        "accountant=rdp or pld.",
    )


def _close_in(epsilon_at: Callable[[float], float], epsilon: float, inside: float, outside: float) -> float:
    """Narrows the bracket to the tolerance and returns its inner end.

    ε is close to a power of the parameter, so a chord in logarithms (regula falsi, its target moved a
    little to the private side so that both ends close in) needs few evaluations; a bisection every third
    step bounds their number.
    """
    value_in, value_out = float(epsilon_at(inside)), float(epsilon_at(outside))
    for turn in range(200):
        if abs(math.log(outside / inside)) <= _TOLERANCE:
            break
        middle = _probe(inside, outside, value_in, value_out, epsilon, turn)
        value = float(epsilon_at(middle))
        if value <= epsilon:
            inside, value_in = middle, value
        else:
            outside, value_out = middle, value
    return inside


def _probe(
    inside: float, outside: float, value_in: float, value_out: float, epsilon: float, turn: int
) -> float:
    width = math.log(outside / inside)
    straight = 0 < value_in < value_out < math.inf
    if turn % 3 == 2 or not straight:
        return inside * math.exp(width / 2)
    share = math.log(epsilon / value_in) / math.log(value_out / value_in)
    margin = 0.4 * _TOLERANCE / abs(width)  # aims beside the root, alternately on either side
    aimed = share + (margin if turn % 3 == 1 else -margin)
    return inside * math.exp(width * min(max(aimed, margin), 1 - margin))


def _whole_probe(low: int, high: int, value_low: float, value_high: float, epsilon: float, turn: int) -> int:
    if turn % 3 == 2 or not 0 < value_low < value_high < math.inf:
        return (low + high) // 2
    share = math.log(epsilon / value_low) / math.log(value_high / value_low)
    aimed = math.floor(low * math.exp(share * math.log(high / low))) + turn % 3
    return min(max(aimed, low + 1), high - 1)
