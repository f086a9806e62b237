"""Curves of ε, as a PNG and in the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Line", "save_png", "terminal_plot"]

_MARKERS = ("•", "x", "o", "+", "*", "#")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))  # told apart without colour


@dataclass(frozen=True)
class Line:
    """One curve; its label says what kind of figure it shows."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def save_png(
    lines: Sequence[Line], path: Path, *, title: str, x_label: str, y_label: str, y_scale: str = "linear"
) -> Path:
    """Draws the lines into a file, made whole or not at all; returns its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for line, style in zip(lines, _STYLES * len(lines), strict=False):
        axes.plot(line.x, line.y, linestyle=style, label=line.label)
    axes.set(title=title, xlabel=x_label, ylabel=y_label, yscale=y_scale)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial, dpi=150)
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
