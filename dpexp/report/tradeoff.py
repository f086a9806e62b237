"""The figure that a report is about: final accuracy against final ε, fronts, and lines without privacy."""

from typing import Any

from dpexp.plots import MARKS, STYLES
from dpexp.report.axes import accuracy_axis, epsilon_axis, literal, name_beside, wrapped
from dpexp.report.comparison import Baseline, Comparison, Series
from dpexp.report.words import accuracy_in_words

__all__ = ["MOST_BASELINES", "draw_tradeoff"]

MOST_BASELINES = 4
_WIDTH = 100  # characters of a line of the legend
_MOST_NAMES = 10  # settings that are named beside their mark


def draw_tradeoff(figure: Any, comparison: Comparison) -> None:
    """Draws it: filled marks are on the front of their series, bars go from least to greatest over seeds."""
    axes = figure.add_subplot()
    for number, series in enumerate(comparison.series):
        _draw_series(axes, series, number, wrapped(comparison.label(series), _WIDTH))
    for number, baseline in enumerate(comparison.baselines[:MOST_BASELINES]):
        _draw_baseline(axes, baseline, number)
    procedures = " or ".join(dict.fromkeys(series.terms.procedure for series in comparison.series))
    what = f"final ε of {procedures or 'one run'}".replace("one run", "one run alone")
    axes.set(xlabel=f"{what}, at the δ of its series", ylabel="final test accuracy")
    epsilon_axis(axes, [point.epsilon for series in comparison.series for point in series.points])
    accuracy_axis(axes)
    axes.margins(x=0.09)
    if len(comparison.series) > 1:
        figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    elif comparison.series and comparison.series[0].terms.caveats:
        axes.set_title("; ".join(comparison.series[0].terms.caveats))
    if not comparison.series:
        axes.set_xticks([])
    fronts = [point for series in comparison.series for point in series.front]
    if len(fronts) <= _MOST_NAMES:
        name_beside(axes, ((point.name, point.epsilon, point.mean) for point in fronts))


def _draw_series(axes: Any, series: Series, number: int, label: str) -> None:
    colour, mark = f"C{number}", MARKS[number % len(MARKS)]
    style = STYLES[(number + number // len(MARKS)) % len(STYLES)]
    for point in series.points:
        low, high = point.mean - min(point.accuracies), max(point.accuracies) - point.mean
        axes.errorbar(
            point.epsilon,
            point.mean,
            yerr=[[low], [high]],
            xerr=[[point.epsilon - min(point.epsilons)], [0]],
            color=colour,
            marker=mark,
            markerfacecolor=colour if point in series.front else "white",
            markersize=7,
            capsize=3,
            linewidth=1,
        )
    front = [(point.epsilon, point.mean) for point in series.front]
    axes.step(
        *zip(*front, strict=True),
        where="post",  # what an ε pays for, a greater one does too
        color=colour,
        linestyle=style,
        marker=mark,
        markersize=7,
        linewidth=1.5,
        label=label,
    )


def _draw_baseline(axes: Any, baseline: Baseline, number: int) -> None:
    point = baseline.point
    axes.axhline(point.mean, color="black", linestyle=STYLES[1 + number % (len(STYLES) - 1)], linewidth=1)
    if len(point.runs) > 1:
        axes.axhspan(min(point.accuracies), max(point.accuracies), color="grey", alpha=0.2, linewidth=0)
    name = f"no privacy, {point.name}" if point.name else "no privacy"
    name = name if baseline.covered else f"{name} (accuracy of a private split)"
    axes.annotate(
        literal(f"{name}: {accuracy_in_words(point.accuracies)}, n = {len(point.runs)}"),
        (0.01, point.mean),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize="x-small",
    )
