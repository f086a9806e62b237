"""The figures of a report: which there are, drawn as SVG, PNG and PDF, with what each shows in words."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from dpexp.plots import new_figure
from dpexp.report.along import draw_accountants, draw_accuracy, draw_shares, panels
from dpexp.report.comparison import Comparison
from dpexp.report.courses import Course
from dpexp.report.tradeoff import draw_tradeoff

__all__ = ["FORMATS", "NAMES", "Figure", "draw_figures"]

NAMES = ("tradeoff", "accuracy_along_epsilon", "epsilon_by_accountant", "epsilon_by_release")
FORMATS = ("svg", "png", "pdf")
_DPI = 150
_STYLE: Any = {
    "svg.hashsalt": "dpexp",  # the same figure twice is the same file
    "pdf.fonttype": 42,  # text that journals accept
    "font.size": 9,
    "axes.titlesize": 9,
}


@final
@dataclass(frozen=True)
class Figure:
    """One figure, saved.

    Attributes:
        name: One of `NAMES`, and of its files without their endings.
        svg: Its content for the page: an `<svg>` element whose text is escaped.
    """

    name: str
    svg: str


def draw_figures(comparison: Comparison, courses: Sequence[Course], folder: Path) -> dict[str, Figure]:
    """Draws those for which there is something to draw, into files of a folder; by their names."""
    drawn = (_saved(name, draw, size, folder) for name, draw, size in _drawings(comparison, courses))
    return {figure.name: figure for figure in drawn}


def _drawings(
    comparison: Comparison, courses: Sequence[Course]
) -> Iterator[tuple[str, Callable[[Any], None], tuple[float, float]]]:
    if comparison.series or comparison.baselines:
        yield NAMES[0], partial(draw_tradeoff, comparison=comparison), (7, 3.7 + 0.2 * len(comparison.series))
    if measured := [course for course in courses if course.reached]:
        yield NAMES[1], partial(draw_accuracy, courses=measured), (7, 3.2)
    if accounted := [course for course in courses if course.accounted]:
        rows, _ = panels(len(accounted))
        yield NAMES[2], partial(draw_accountants, courses=accounted), (7, 1.9 * rows + 0.9)
    if parts := [course for course in courses if len(course.shares) > 1]:
        bars = sum(len(course.shares) + 2 for course in parts)
        yield NAMES[3], partial(draw_shares, courses=parts), (7, 0.17 * bars + 0.9)


def _saved(name: str, draw: Callable[[Any], None], size: tuple[float, float], folder: Path) -> Figure:
    import matplotlib

    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every glyph
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # in names: the page has them in text
        figure = new_figure(size)
        draw(figure)
        figure.draw_without_rendering()  # lays it out,
        figure.set_layout_engine("none")  # once for all formats
        for ending in FORMATS:
            dates = {"CreationDate": None} if ending == "pdf" else {"Date": None} if ending == "svg" else {}
            figure.savefig(folder / f"{name}.{ending}", dpi=_DPI, metadata=dates)
    svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
    return Figure(name, svg[svg.index("<svg") :])
