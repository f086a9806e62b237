"""`privacy.clipping` and `privacy.adaptive`: checked, and made into a rule."""

from collections.abc import Iterable, Mapping
from typing import Any

from dpexp import _validate
from dpexp.clip_rules import Adaptive, Automatic, ClipRule, Flat
from dpexp.plan import Group
from dpexp.schedules import Constant

__all__ = ["as_clip_rule", "check_start"]

_NAMES = ("flat", "automatic", "adaptive")
_ADAPTIVE_KEYS = ("quantile", "learning_rate", "noise_std")


def as_clip_rule(name: Any, adaptive: Mapping[str, Any] | None) -> ClipRule:
    """The rule of a configuration.

    Raises:
        UserError: There is no such rule, or a key of `privacy.adaptive` is unknown, missing or impossible.
    """
    _validate.one_of("privacy.clipping", name, _NAMES)
    if name == "adaptive":
        return _as_adaptive(adaptive)
    if adaptive is not None:
        _as_adaptive(adaptive)  # a misspelt key is an error also where nothing reads it
    return Automatic() if name == "automatic" else Flat()


def check_start(groups: Iterable[Group]) -> None:
    """Refuses a schedule as the C that adaptive clipping starts from."""
    for group in groups:
        if isinstance(group.clipping, Adaptive) and not isinstance(group.clip_norm, Constant):
            raise _validate.refuse(
                "privacy.clip_norm",
                group.clip_norm.in_words,
                "a number to start from, since privacy.clipping=adaptive moves C itself",
                f"In group {group.name!r}. For a schedule of C set privacy.clipping=flat or automatic.",
            )


def _as_adaptive(keys: Any) -> Adaptive:
    expected = f"a mapping with {', '.join(_ADAPTIVE_KEYS)}"
    if not isinstance(keys, Mapping):
        raise _validate.refuse("privacy.adaptive", keys, f"{expected}, for privacy.clipping=adaptive")
    for unknown in set(keys) - set(_ADAPTIVE_KEYS):
        hint = _validate.did_you_mean(str(unknown), _ADAPTIVE_KEYS)
        raise _validate.refuse(
            f"privacy.adaptive.{unknown}", keys[unknown], f"one of {', '.join(_ADAPTIVE_KEYS)}", hint
        )
    return Adaptive(
        quantile=keys.get("quantile"),  # type: ignore[arg-type]  # Adaptive refuses None with its key
        learning_rate=keys.get("learning_rate"),  # type: ignore[arg-type]
        noise_std=keys.get("noise_std"),
    )
