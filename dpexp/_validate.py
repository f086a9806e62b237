"""Argument checks with one message style: what was found, what was expected, what to do."""

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

__all__ = ["UserError", "did_you_mean", "fraction", "integer", "number", "one_of", "refuse"]


class UserError(ValueError):
    """A mistake that the user can mend; shown without a traceback by the command line."""


def refuse(key: str, found: object, expected: str, hint: str = "") -> UserError:
    """Builds the error `key = found: expected …`, with an optional line saying what to do.

    Args:
        key: The name under which the value is set, such as `privacy.delta`.
        found: The offending value.
        expected: What is allowed, starting with a noun ("a number in (0, 1)").
        hint: What to do about it.
    """
    text = f"{key} = {found!r}: expected {expected}."
    return UserError(f"{text}\n{hint}" if hint else text)


def number(
    key: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    hint: str = "",
) -> float:
    """Returns `value` as a finite float inside the bounds, or raises `UserError`."""
    expected = f"a number{_interval(above, at_least, below, at_most)}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise refuse(key, value, expected, hint)
    found = float(value)
    inside = above < found < below and at_least <= found <= at_most
    if not (math.isfinite(found) and inside):
        raise refuse(key, value, expected, hint)
    return found


def fraction(key: str, value: Any, *, hint: str = "") -> float:
    """Returns `value` as a float strictly between 0 and 1, or raises `UserError`."""
    return number(key, value, above=0, below=1, hint=hint)


def integer(key: str, value: Any, *, at_least: int, hint: str = "") -> int:
    """Returns `value` as an int (5.0 counts as 5) of at least `at_least`, or raises `UserError`."""
    whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value).is_integer()
    if not whole or value < at_least:
        raise refuse(key, value, f"a whole number >= {at_least}", hint)
    return int(value)


def one_of(key: str, value: Any, allowed: Iterable[str]) -> str:
    """Returns `value` if it is one of the allowed words, or raises `UserError` with the word meant."""
    allowed = list(allowed)
    if value not in allowed:
        raise refuse(key, value, f"one of {', '.join(allowed)}", did_you_mean(str(value), allowed))
    return str(value)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Returns `Did you mean …?` for the candidate closest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else ""


def _interval(above: float, at_least: float, below: float, at_most: float) -> str:
    bounds = [
        f"> {above:g}" if above > -math.inf else "",
        f">= {at_least:g}" if at_least > -math.inf else "",
        f"< {below:g}" if below < math.inf else "",
        f"<= {at_most:g}" if at_most < math.inf else "",
    ]
    given = " and ".join(bound for bound in bounds if bound)
    return f" {given}" if given else ""
