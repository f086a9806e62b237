"""`write_report`: from the store to a folder with the page, its figures and tables."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import final

from dpexp import _validate
from dpexp.report.comparison import Comparison
from dpexp.report.courses import chosen_points, read_course
from dpexp.report.figures import FORMATS, NAMES, draw_figures
from dpexp.report.folder import whole_folder
from dpexp.report.notices import notices
from dpexp.report.page import Contents, page
from dpexp.report.price import Price
from dpexp.report.store import Store
from dpexp.report.subject import Subject, find_subject
from dpexp.report.tables import SettingRow, runs_csv, setting_rows, settings_latex
from dpexp.tracking import MLflowTracking

__all__ = ["Written", "write_report"]

_PAGE, _CSV, _LATEX = "report.html", "runs.csv", "runs.tex"
_OURS = frozenset({_PAGE, _CSV, _LATEX, *(f"{name}.{ending}" for name in NAMES for ending in FORMATS)})
_NOTHING: Mapping[str, str] = MappingProxyType({})


@final
@dataclass(frozen=True, kw_only=True)
class Written:
    """A report that was written.

    Attributes:
        folder: Where it is.
        title: What it is about.
        rows: Its settings, as in its first table.
        notices: What a reader must know before comparing.
        logged_to: The sweep's parent run that has it as an artifact, or None.
    """

    folder: Path
    title: str
    rows: tuple[SettingRow, ...]
    notices: tuple[str, ...]
    logged_to: str | None

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / _PAGE

    @property
    def tables(self) -> list[Path]:
        """The runs as CSV, the settings as LaTeX."""
        return [self.folder / _CSV, self.folder / _LATEX]


def write_report(
    tracking: MLflowTracking,
    *,
    experiment: str | None = None,
    sweep: str | None = None,
    tags: Mapping[str, str] = _NOTHING,
    name: str | None = None,
    log: bool = True,
) -> Written:
    """Reads the store, and writes a report below `reports/` in the outputs folder. No data are touched.

    Args:
        tracking: The store, and the outputs folder.
        experiment: The MLflow experiment; None takes that of `tracking`, of `sweep`, or the only one that
            has runs.
        sweep: The id of a sweep's parent run, or `last`; None for all runs of the experiment.
        tags: What the runs must be tagged with.
        name: Of the folder; None makes one from what the report is about.
        log: Also stores the report as an artifact of the sweep's parent, where a sweep was asked for.

    Returns:
        What was written. Of an earlier report of that name nothing is left.

    Raises:
        UserError: There is no store, no such experiment or sweep, or no run that came to its end.
    """
    store = Store(tracking)
    subject = find_subject(store, experiment=experiment or tracking.experiment, sweep=sweep, tags=tags)
    comparison = Comparison.of(subject.runs)
    _require_something_to_show(subject, comparison)
    folder = tracking.folder / "reports" / (_slug(subject) if name is None else _checked(name))
    rows = setting_rows(comparison)
    with whole_folder(folder, _OURS) as new:
        _write(store, subject, comparison, rows, new)
    logged_to = subject.sweep.run_id if log and subject.sweep is not None else None
    if subject.sweep is not None and logged_to is not None:
        store.keep_folder(subject.sweep, folder, "report")
    return Written(
        folder=folder,
        title=subject.name,
        rows=tuple(rows),
        notices=tuple(notices(subject, comparison)),
        logged_to=logged_to,
    )


def _write(
    store: Store, subject: Subject, comparison: Comparison, rows: list[SettingRow], folder: Path
) -> None:
    courses = [read_course(store, series, point) for series, point in chosen_points(comparison)]
    contents = Contents(
        subject=subject,
        store=store.shown_uri,
        comparison=comparison,
        rows=rows,
        courses=courses,
        figures=draw_figures(comparison, courses, folder),
        prices=[Price.of(store, parent) for parent in subject.sweeps],
    )
    texts = {
        _PAGE: page(contents),
        _CSV: runs_csv(comparison),
        _LATEX: settings_latex(rows, subject.name),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")


def _require_something_to_show(subject: Subject, comparison: Comparison) -> None:
    if comparison.series or comparison.baselines:
        return
    found = "; ".join(f"{each.run.name}: {each.reason}" for each in comparison.undrawn[:5])
    raise _validate.refuse(
        f"runs of {subject.name} that came to an end with ε and accuracy",
        0,
        "at least one",
        f"Found: {found}.",
    )


def _slug(subject: Subject) -> str:
    """A file name of the subject, whose text comes from a store; different ones stay different."""
    slug = re.sub(r"[^\w.-]+", "-", subject.name).strip(".-")[:80]
    if slug in (subject.name, subject.name.replace(", ", "-").replace(" ", "-").replace("=", "-")):
        return slug
    return f"{slug}-{hashlib.sha256(subject.name.encode()).hexdigest()[:8]}"


def _checked(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise _validate.refuse("task.name", name, "the name of a folder: letters, digits, - _ and dots")
    return name
