"""Accuracy against ε, as a figure: only ε of one kind share a mark."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Point", "trade_off"]

_MARKS = ("o", "s", "^", "D", "v", "x", "*")  # told apart without colour
_LINES = ("--", ":", "-.")


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """One run.

    Attributes:
        group: Of runs whose ε can be compared, in words.
        setting: Equal for runs that differ in their seed only.
        epsilon: ε; None without privacy.
        accuracy: In [0, 1].
    """

    group: str
    setting: str
    epsilon: float | None
    accuracy: float


def trade_off(points: Sequence[Point]) -> "Figure":
    """Means over seeds, with bars from the least to the greatest; a line where there is no ε.

    Args:
        points: At least one.
    """
    from matplotlib import pyplot  # which makes figures show in notebooks

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for number, group in enumerate(dict.fromkeys(point.group for point in points)):
        of_group = [point for point in points if point.group == group]
        if of_group[0].epsilon is None:
            mean = statistics.fmean(point.accuracy for point in of_group)
            axes.axhline(mean, color="gray", linestyle=_LINES[number % len(_LINES)], label=group)
        else:
            _draw(axes, of_group, _MARKS[number % len(_MARKS)], group)
    axes.set_xlabel("ε")
    axes.set_ylabel("test accuracy")
    axes.yaxis.set_major_formatter("{x:.1%}")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", fontsize="small", frameon=False)
    pyplot.close(figure)  # it is returned, and would be shown twice
    return figure


def _draw(axes: Any, points: Sequence[Point], mark: str, label: str) -> None:
    settings = dict.fromkeys(point.setting for point in points)
    found = [[point for point in points if point.setting == setting] for setting in settings]
    epsilons = [max(point.epsilon or 0.0 for point in same) for same in found]
    means = [statistics.fmean(point.accuracy for point in same) for same in found]
    below = [mean - min(point.accuracy for point in same) for mean, same in zip(means, found, strict=True)]
    above = [max(point.accuracy for point in same) - mean for mean, same in zip(means, found, strict=True)]
    axes.errorbar(epsilons, means, yerr=[below, above], fmt=mark, capsize=3, label=label)
