"""The page: everything in one HTML file that asks for nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, final

from dpexp import __version__
from dpexp.report.comparison import Comparison
from dpexp.report.courses import MOST_COURSES, MOST_SEEDS, Course
from dpexp.report.figures import Figure
from dpexp.report.notices import notices
from dpexp.report.price import Price
from dpexp.report.stored import StoredRun
from dpexp.report.subject import Subject
from dpexp.report.tables import SettingRow
from dpexp.report.terms import NAMES
from dpexp.report.tradeoff import MOST_BASELINES
from dpexp.report.words import guarantee_in_words

__all__ = ["Contents", "page"]


@final
@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a page shows.

    Attributes:
        subject: What it is about.
        store: The store that it was read from, without password.
        comparison: Its runs, sorted.
        rows: Its settings.
        courses: The settings whose trajectories are drawn.
        figures: By name.
        prices: Of its sweeps.
    """

    subject: Subject
    store: str
    comparison: Comparison
    rows: Sequence[SettingRow]
    courses: Sequence[Course]
    figures: Mapping[str, Figure]
    prices: Sequence[Price]


def page(contents: Contents) -> str:
    """The HTML; all text in it is escaped, and no script runs in it whatever it says."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("dpexp.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    comparison = contents.comparison
    series_of = {run.run_id: series.letter for series in comparison.series for run in series.runs}
    return environment.get_template("page.html").render(
        title=contents.subject.name,
        made=_time(datetime.now(UTC).timestamp() * 1000),
        version=__version__,
        store=contents.store,
        notices=notices(contents.subject, comparison),
        figures={name: Markup(figure.svg) for name, figure in contents.figures.items()},
        captions=_captions(contents),
        rows=contents.rows,
        terms=_terms(comparison),
        letters=[series.letter for series in comparison.series],
        prices=contents.prices,
        statements=[course for course in contents.courses if course.statement],
        runs=[_run(run, series_of.get(run.run_id, "")) for run in _by_start(comparison.runs)],
        commands=_commands(contents.subject, comparison),
        without_command=sum(run.command is None for run in comparison.runs),
    )


def _terms(comparison: Comparison) -> list[Mapping[str, Any]]:
    """One row a term: its name, whether the series agree, and the value in each."""
    columns = [asdict(series.terms) for series in comparison.series]
    return [
        {"name": words, "differs": name in comparison.differences, "values": [row[name] for row in columns]}
        for name, words in NAMES.items()
    ]


def _captions(contents: Contents) -> Mapping[str, str]:
    """Sentences that depend on how much was drawn."""
    comparison, courses = contents.comparison, contents.courses
    settings = sum(len(series.points) for series in comparison.series)
    counts = {len(point.runs) for series in comparison.series for point in series.points}
    seeds = (
        f"n = {min(counts)}" if len(counts) == 1 else f"n = {min(counts)} to {max(counts)}" if counts else ""
    )
    shown = f"Drawn: {len(courses)} of {settings} settings, those on a front first (at most {MOST_COURSES})."
    lines = len(comparison.baselines)
    return {
        "seeds": f"{seeds} runs a setting" if seeds else "",
        "courses": shown if settings > len(courses) else "",
        "read": f"of at most {MOST_SEEDS} runs" if counts and max(counts) > MOST_SEEDS else "",
        "baselines": f"{MOST_BASELINES} of {lines} lines without privacy are drawn."
        if lines > MOST_BASELINES
        else "",
        "validation": ""
        if all(course.validation_covered for course in courses)
        else "The validation split is private: this accuracy is not covered by ε.",
    }


def _run(run: StoredRun, letter: str) -> Mapping[str, Any]:
    return {
        "name": run.name,
        "id": run.run_id,
        "status": run.status,
        "series": letter,
        "started": _time(run.started),
        "accuracy": "" if run.accuracy is None else f"{run.accuracy:.2%}",
        "covered": not run.split_prefix,
        "steps": "" if run.steps is None else f"{run.steps:,}",
        "guarantee": guarantee_in_words(run),
    }


def _commands(subject: Subject, comparison: Comparison) -> list[tuple[str, str]]:
    """The sweeps' command lines, then each run's; equal ones once."""
    told = [(run.name, run.command) for run in subject.sweeps if not run.is_selection]
    told += [(run.name, run.command) for run in _by_start(comparison.runs)]
    first: dict[str, str] = {}
    for name, command in told:
        if command is not None:
            first.setdefault(command, name)
    return [(name, command) for command, name in first.items()]


def _by_start(runs: Sequence[StoredRun]) -> list[StoredRun]:
    return sorted(runs, key=lambda run: (run.started, run.name))


def _time(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
