"""Figures of a few settings along training: accuracy by ε, ε by lots under every accountant, ε by release."""

from collections.abc import Sequence
from typing import Any

from dpexp.plots import MARKS, STYLES
from dpexp.report.axes import accuracy_axis, epsilon_axis, literal, name_beside
from dpexp.report.courses import Course
from dpexp.report.words import epsilon_in_words

__all__ = ["draw_accountants", "draw_accuracy", "draw_shares", "panels"]

_FEW = 20  # points, up to which each has a mark
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")


def _name(course: Course) -> str:
    """Series and setting."""
    name = f"{course.letter}: {course.point.name}" if course.point.name else course.letter
    arithmetic = any("arithmetic" in caveat for caveat in course.caveats)
    return f"{name} (arithmetic, no guarantee)" if arithmetic else name


def draw_accuracy(figure: Any, courses: Sequence[Course]) -> None:
    """Validation accuracy at the ε charged so far; the band goes from least to greatest over seeds."""
    axes = figure.add_subplot()
    for number, course in enumerate(courses):
        epsilons = [at.epsilon for at in course.reached]
        means = [at.mean for at in course.reached]
        colour = f"C{number}"
        axes.plot(epsilons, means, color=colour, **_look(number, len(epsilons)))
        lows, highs = [at.low for at in course.reached], [at.high for at in course.reached]
        axes.fill_between(epsilons, lows, highs, color=colour, alpha=0.15, linewidth=0)
    epsilon_axis(axes, [at.epsilon for course in courses for at in course.reached])
    accuracy_axis(axes)
    axes.set(xlabel="ε charged so far, at the δ of the series", ylabel=_accuracy_in_words(courses))
    axes.margins(x=0.12)
    axes.autoscale_view()
    ends = [(_name(course), course.reached[-1]) for course in courses]
    name_beside(axes, ((name, at.epsilon, at.mean) for name, at in ends))


def _accuracy_in_words(courses: Sequence[Course]) -> str:
    covered = all(course.validation_covered for course in courses)
    return "validation accuracy" if covered else "validation accuracy\n(private split: not covered by ε)"


def panels(count: int) -> tuple[int, int]:
    """Rows and columns of so many panels, at most three beside each other, none left over where it can be."""
    columns = 2 if count in (2, 4) else min(count, 3)
    return -(-count // columns), columns


def draw_accountants(figure: Any, courses: Sequence[Course]) -> None:
    """ε by lots, one panel for each setting; every accountant looks alike in all of them."""
    labels = list(dict.fromkeys(each.label for course in courses for each in course.accounted))
    rows, columns = panels(len(courses))
    handles: dict[str, Any] = {}
    first: Any = None
    for number, course in enumerate(courses, start=1):
        axes = figure.add_subplot(rows, columns, number, sharey=first)
        first = first or axes
        for each in course.accounted:
            lots, epsilons = zip(*each.points, strict=True)
            number_of_label = labels.index(each.label)
            look = _look(number_of_label, len(lots)) | {"color": f"C{number_of_label}"}
            face = {} if each.kind == "certified" else {"markerfacecolor": "white"}
            [handles[each.label]] = axes.plot(lots, epsilons, **look, **face)
        axes.set_title(literal(_name(course)), fontsize="small")
        axes.set(xlabel="lots", ylabel="" if (number - 1) % columns else "ε")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    everything = [e for course in courses for each in course.accounted for _, e in each.points]
    epsilon_axis(first, everything, which="y")
    shown = {literal(label): handles[label] for label in labels}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, fontsize="small")


def draw_shares(figure: Any, courses: Sequence[Course]) -> None:
    """What each part of a run would cost alone, and all of them together, one row of bars a setting."""
    axes = figure.add_subplot()
    names = list(dict.fromkeys(share.name for course in courses for share in course.shares))
    looks = {name: (f"C{number}", _HATCHES[number % len(_HATCHES)]) for number, name in enumerate(names)}
    y, ticks = 0, []
    for course in courses:
        bars = [(share.name, share.epsilon, looks[share.name]) for share in course.shares]
        bars.append(("together", course.point.runs[0].epsilon or 0, ("white", "")))
        ticks.append((y + (len(bars) - 1) / 2, literal(_name(course))))
        for name, epsilon, (colour, hatch) in bars:
            axes.barh(y, epsilon, color=colour, hatch=hatch, edgecolor="black", height=0.8, alpha=0.8)
            label = literal(f"{name}: {epsilon_in_words(epsilon)}")
            beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(label, (epsilon, y), fontsize="x-small", **beside)
            y += 1
        y += 1
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set(xlabel="ε of each part alone, and of the run; they do not add up")
    axes.spines[["top", "right"]].set_visible(False)


def _look(number: int, points: int) -> dict[str, Any]:
    mark = MARKS[number % len(MARKS)]
    return {
        "linestyle": STYLES[number % len(STYLES)],
        "marker": mark if points <= _FEW else "",
        "markersize": 5,
        "linewidth": 1.5,
    }
