"""Public rules that cut rows off: they look at row numbers only, never at what is in a row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate

__all__ = ["Rule", "check_rule", "selected"]

Rule = int | Mapping[str, Any]
"""n: the last n rows; `{every: k}`: rows k-1, 2k-1, … (from 0); `{hashed: f}`: a fixed fraction f, spread."""

_EXPECTED = "a number of last rows, {every: k} or {hashed: fraction}"


def check_rule(key: str, rule: Any) -> Rule:
    """Returns the rule in canonical form.

    Raises:
        UserError: If it is none.
    """
    if not isinstance(rule, Mapping):
        return _validate.integer(key, rule, at_least=0, hint=f"Expected {_EXPECTED}.")
    if len(rule) != 1 or not set(rule) <= {"every", "hashed"}:
        raise _validate.refuse(key, dict(rule), _EXPECTED)
    if "every" in rule:
        return {"every": _validate.integer(f"{key}.every", rule["every"], at_least=2)}
    return {"hashed": _validate.fraction(f"{key}.hashed", rule["hashed"])}


def selected(rule: Rule, num_rows: int) -> NDArray[np.bool_]:
    """Which of the rows 0 … num_rows - 1 a rule selects, shape `(num_rows,)`."""
    numbers = np.arange(num_rows, dtype=np.uint64)
    if isinstance(rule, int):
        chosen = numbers >= max(num_rows - rule, 0)
    elif "every" in rule:
        every = np.uint64(rule["every"])
        chosen = numbers % every == every - np.uint64(1)
    else:
        chosen = _mixed(numbers).astype(np.float64) < rule["hashed"] * 2.0**64
    return np.asarray(chosen, np.bool_)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed bijection of 64-bit numbers that looks random: SplitMix64 (Steele et al., 2014, figure 15)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
