"""`task=report`: what the runs in a store came to, as a page, figures and tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dpexp import _validate
from dpexp.experiment import Experiment
from dpexp.report.stored import in_one_line
from dpexp.report.tables import SettingRow
from dpexp.report.writing import Written, write_report
from dpexp.tracking import flatten

__all__ = ["Report"]

_MOST_ROWS = 25


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """Writes a report over the runs of an MLflow experiment, or of one sweep.

    Attributes:
        experiment: The MLflow experiment; None takes that of the command line (`tracking.experiment`, or
            `+experiment=NAME`), or the only one in the store.
        sweep: The id of a sweep's parent run, or `last`; None for all runs.
        filter: Tags that the runs must have, compared as text; nested keys are joined by dots.
        name: Of the folder below `outputs/reports`; None makes one.
        log: Also stores the report as an artifact of the sweep's parent, where `sweep` chooses one.
    """

    makes = ()
    experiment: str | None = None
    sweep: str | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    log: bool = True

    def __post_init__(self) -> None:
        for key in ("experiment", "sweep", "name"):
            value = getattr(self, key)
            if value is not None and not (isinstance(value, str) and value):
                raise _validate.refuse(f"task.{key}", value, "text, or null", "Quote what is a number.")
        if not isinstance(self.filter, Mapping):
            hint = "For instance: +task.filter.dpexp.seed=0"
            raise _validate.refuse("task.filter", self.filter, "tags with their values", hint)
        if not isinstance(self.log, bool):
            raise _validate.refuse("task.log", self.log, "true or false")

    def run(self, experiment: Experiment) -> None:
        """Writes it and says where; of `experiment` only name and tracking are used.

        Raises:
            UserError: The store has nothing of what was asked for.
        """
        named = None if experiment.name == "adhoc" else experiment.name
        written = write_report(
            experiment.tracking,
            experiment=self.experiment or experiment.tracking.experiment or named,
            sweep=self.sweep,
            tags={key: _as_tag(value) for key, value in flatten(self.filter).items()},
            name=self.name,
            log=self.log,
        )
        _show(Console(), written)


def _show(console: Console, written: Written) -> None:
    console.print(_table(written.title, written.rows))
    for notice in written.notices:
        console.print(f"• {escape(notice)}", highlight=False)
    for path in (written.page, *written.tables):
        console.print(str(path), soft_wrap=True, highlight=False, markup=False)
    console.print("each figure beside them as SVG, PNG and PDF", highlight=False)
    if written.logged_to is not None:
        console.print(f"also an artifact of run {written.logged_to}, in report/", highlight=False)


def _table(title: str, rows: Iterable[SettingRow]) -> Table:
    rows = list(rows)
    table = Table(title=_for_terminal(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("series", "setting", "runs", "ε ≤", "δ", "test accuracy", "front", "note"):
        table.add_column(heading, justify="right" if heading in ("runs", "ε ≤") else "left")
    for row in rows[:_MOST_ROWS]:
        front = "●" if row.on_front else ""
        cells = (row.series, row.name, str(row.runs), row.epsilon, row.delta, row.accuracy, front, row.note)
        table.add_row(*map(_for_terminal, cells))
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS} more settings: see the page"
    return table


def _for_terminal(text: str) -> str:
    """Text of the store, which must not be markup, or move the cursor."""
    return escape(in_one_line(text))


def _as_tag(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
