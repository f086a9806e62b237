"""Curves of ε and accuracy, as files and in the terminal."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MARKS", "STYLES", "Chart", "Line", "new_figure", "save_charts", "save_png", "terminal_plot"]

_MARKERS = ("•", "x", "o", "+", "*", "#")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
"""Of lines, told apart without colour."""
MARKS = ("o", "s", "^", "D", "v", "x")
"""Of points."""
_MOST_POINTS = 20  # a line of more is drawn without marks


@dataclass(frozen=True)
class Line:
    """One curve; its label says what kind of figure it shows.

    Attributes:
        spread: Least and greatest y at each x, or nothing.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One pair of axes.

    Attributes:
        right: Lines on a second, logarithmic y axis.
        reference: An x that is marked.
    """

    lines: Sequence[Line]
    title: str
    x_label: str
    y_label: str
    x_scale: str = "linear"
    y_scale: str = "linear"
    right: Sequence[Line] = ()
    right_label: str = ""
    reference: float | None = None


def save_png(
    lines: Sequence[Line], path: Path, *, title: str, x_label: str, y_label: str, y_scale: str = "linear"
) -> Path:
    """Draws the lines into a file, made whole or not at all; returns its path."""
    chart = Chart(lines=lines, title=title, x_label=x_label, y_label=y_label, y_scale=y_scale)
    return _save(_figure([chart], columns=1, size=(7, 4.5)), path, dpi=150)


def save_charts(charts: Iterable[Chart], path: Path, *, columns: int) -> list[Path]:
    """Draws the charts beside each other, as PNG and SVG under the path's name; returns both paths."""
    charts = list(charts)
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    figure = _figure(charts, columns=columns, size=(max(4 * columns, 7), max(3 * rows, 4)))
    return [_save(figure, path.with_suffix(suffix), dpi=100) for suffix in (".png", ".svg")]


def _figure(charts: Sequence[Chart], *, columns: int, size: tuple[float, float]) -> Any:
    figure = new_figure(size)
    for index, chart in enumerate(charts, start=1):
        _draw(figure.add_subplot(math.ceil(len(charts) / columns), columns, index), chart)
    return figure


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure of so many inches, which no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw(axes: Any, chart: Chart) -> None:
    handles = _draw_lines(axes, chart.lines, first=0)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set(xscale=chart.x_scale, yscale=chart.y_scale)
    if chart.x_scale == "log":
        ticks = sorted({x for line in chart.lines for x in line.x})
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    if chart.reference is not None:
        axes.axvline(chart.reference, color="grey", linestyle=":", linewidth=1)
    if chart.right:
        right = axes.twinx()
        right.set(ylabel=chart.right_label, yscale="log")
        handles += _draw_lines(right, chart.right, first=len(chart.lines))
    if len(handles) > 1:
        axes.legend(handles=handles)


def _draw_lines(axes: Any, lines: Sequence[Line], *, first: int) -> list[Any]:
    handles = []
    for number, line in enumerate(lines, start=first):
        style, mark = STYLES[number % len(STYLES)], MARKS[number % len(MARKS)]
        mark = mark if len(line.x) <= _MOST_POINTS else ""
        handles += axes.plot(
            line.x, line.y, linestyle=style, marker=mark, color=f"C{number}", label=line.label
        )
        if line.spread:
            low, high = zip(*line.spread, strict=True)
            axes.fill_between(line.x, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
    return handles


def _save(figure: Any, path: Path, *, dpi: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".partial{path.suffix}")
    figure.savefig(partial, dpi=dpi)
    partial.replace(path)
    return path


def terminal_plot(
    lines: Sequence[Line], *, title: str, x_label: str, y_label: str, y_scale: str = "linear"
) -> str:
    """The lines drawn with characters."""
    import plotext

    plotext.clear_figure()
    plotext.plot_size(80, 22)
    plotext.theme("clear")
    for line, marker in zip(lines, _MARKERS * len(lines), strict=False):
        plotext.plot(list(line.x), list(line.y), label=line.label, marker=marker)
    plotext.yscale(y_scale)
    plotext.title(title)
    plotext.xlabel(x_label)
    plotext.ylabel(y_label)
    return str(plotext.uncolorize(plotext.build()))
