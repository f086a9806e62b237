"""Axes of ε and accuracy, and text of a store that must be drawn as it is."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from dpexp.report.stored import in_one_line

__all__ = ["accuracy_axis", "epsilon_axis", "literal", "name_beside", "wrapped"]

_WIDE = 10  # greatest ÷ least ε from which the axis is logarithmic
_LONGEST = 60  # characters of a name
_BEHIND = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
_NAME_INCHES, _LINE_INCHES = 1.0, 0.13  # room that a name takes


def literal(text: str) -> str:
    """The text without what Matplotlib would read as mathematics, or SVG could not hold; not too long."""
    return _unread(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def wrapped(text: str, width: int) -> str:
    """The whole text as it is, in lines of so many characters."""
    return "\n".join(map(_unread, textwrap.wrap(text, width)))


def _unread(text: str) -> str:
    return in_one_line(text).replace("$", r"\$").lstrip("_")  # a legend leaves out what begins with _


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


def name_beside(axes: Any, names: Iterable[tuple[str, float, float]]) -> None:
    """Writes names to the right of their points, lower where another one is in the way.

    Args:
        axes: With everything drawn and scaled.
        names: Each with the x and y of its point.
    """
    to_pixels, inch = axes.transData.transform, axes.figure.dpi
    taken: list[tuple[float, float]] = []
    for name, x, y in sorted(names, key=lambda each: -each[2]):
        right, up = to_pixels((x, y))
        lowered = up
        for at_x, at_y in taken:
            if abs(at_x - right) < _NAME_INCHES * inch and lowered > at_y - _LINE_INCHES * inch:
                lowered = at_y - _LINE_INCHES * inch
        taken.append((right, lowered))
        offset = (7, (lowered - up) * 72 / inch - 4)
        look = {"fontsize": "x-small", "va": "top", "bbox": _BEHIND}
        axes.annotate(literal(name), (x, y), offset, textcoords="offset points", **look)
