"""Axes of ε and accuracy, and text of a store that must be drawn as it is."""

from collections.abc import Sequence
from typing import Any

__all__ = ["accuracy_axis", "epsilon_axis", "literal"]

_WIDE = 10  # greatest ÷ least ε from which the axis is logarithmic
_LONGEST = 70  # characters in a figure


def literal(text: str) -> str:
    """The text without what Matplotlib would read as mathematics, or SVG could not hold; not too long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return shown.replace("$", r"\$").lstrip("_")  # a legend leaves out what begins with _


def epsilon_axis(axes: Any, epsilons: Sequence[float], *, which: str = "x") -> None:
    """A logarithmic axis where ε spans more than one power of ten; ticks in plain numbers."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    positive = [epsilon for epsilon in epsilons if epsilon > 0]
    if positive and len(positive) == len(epsilons) and max(positive) / min(positive) > _WIDE:
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter("")


def accuracy_axis(axes: Any) -> None:
    """In percent, with a quiet grid."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
