"""The runs as CSV for programs, and the settings as LaTeX for papers."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self, final

from dpexp.report.comparison import Comparison, Point, Series
from dpexp.report.settings import Settings
from dpexp.report.stored import StoredRun, in_one_line
from dpexp.report.terms import Terms
from dpexp.report.words import accuracy_in_words, delta_in_words, epsilon_in_words, guarantee_in_words

__all__ = ["SettingRow", "latex_escaped", "runs_csv", "setting_rows", "settings_latex"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "ε": r"\(\varepsilon\)",
    "σ": r"\(\sigma\)",
    "δ": r"\(\delta\)",
    "∞": r"\(\infty\)",
    "–": "--",
    "…": r"\dots{}",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet takes for the start of one


@final
@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting in words.

    Attributes:
        series: Letter of the series; empty without privacy.
        name: What tells the setting apart.
        runs: How many, differing in seed only.
        epsilon: Greatest ε of one of its runs alone, rounded up.
        delta: Its δ.
        accuracy: Mean, and least and greatest where there are several.
        on_front: No other setting of its series has less ε and more accuracy.
        note: What the figures are not.
    """

    series: str
    name: str
    runs: int
    epsilon: str
    delta: str
    accuracy: str
    on_front: bool
    note: str

    @classmethod
    def of(cls, series: Series, point: Point) -> Self:
        """The row of a point."""
        return cls(
            series=series.letter,
            name=point.name or series.terms.experiment,
            runs=len(point.runs),
            epsilon=epsilon_in_words(point.epsilon),
            delta=delta_in_words(point.runs[0].delta),
            accuracy=accuracy_in_words(point.accuracies),
            on_front=point in series.front,
            note="; ".join(series.terms.caveats),
        )


def setting_rows(comparison: Comparison) -> list[SettingRow]:
    """All settings that are drawn, by series and ε; then those without privacy."""
    rows = [SettingRow.of(series, point) for series in comparison.series for point in series.points]
    for baseline in comparison.baselines:
        point = baseline.point
        rows.append(
            SettingRow(
                series="",
                name=f"no privacy, {point.name}" if point.name else "no privacy",
                runs=len(point.runs),
                epsilon="none",
                delta="none",
                accuracy=accuracy_in_words(point.accuracies),
                on_front=False,
                note="" if baseline.covered else "accuracy not covered by ε",
            )
        )
    return rows


def runs_csv(comparison: Comparison) -> str:
    """Every run, drawn or not, with what varies; figures in full precision."""
    settings, places = Settings(comparison.runs), _places(comparison)
    rows = [
        {**_row(run), **places.get(run.run_id, {"series": "", "on_front": ""})} | _varied(settings, run)
        for run in comparison.runs
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\r\n")
    writer.writerow({key: _guarded(key) for key in rows[0]})
    writer.writerows({key: _guarded(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _places(comparison: Comparison) -> Mapping[str, Mapping[str, Any]]:
    return {
        run.run_id: {"series": series.letter, "on_front": point in series.front}
        for series in comparison.series
        for point in series.points
        for run in point.runs
    }


def _row(run: StoredRun) -> dict[str, Any]:
    terms = asdict(Terms.of(run)) if run.is_private or run.is_selection else {}
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "started": datetime.fromtimestamp(run.started / 1000, UTC).isoformat(timespec="seconds"),
        "seconds": run.seconds,
        "experiment": run.experiment,
        "seed": run.seed,
        "epsilon": run.epsilon,
        "epsilon_charged": run.spent,
        "delta": run.delta if terms else None,
        "accuracy": run.accuracy,
        "accuracy_covered": not run.split_prefix,
        "steps": run.steps,
        **{name: terms.get(name) for name in ("relation", "sampler", "accountant", "kind", "budget")},
        "randomness": terms.get("randomness"),
        "procedure": terms.get("procedure"),
        "guarantee": guarantee_in_words(run),
        "command": run.command,
    }


def _varied(settings: Settings, run: StoredRun) -> dict[str, str | None]:
    return {f"params.{key}": run.params.get(key) for key in settings.keys}


def _guarded(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay."""
    if not isinstance(value, str) or not value.startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip() == text


def settings_latex(rows: Sequence[SettingRow], title: str) -> str:
    """A table for a paper; it needs the package booktabs."""
    lines = [
        f"% {in_one_line(title)}",
        r"% Needs \usepackage{booktabs}. Each epsilon is of one run alone, rounded up;",
        "% accuracy: mean (least - greatest) over runs that differ only in seed.",
        r"\begin{tabular}{llrrrlll}",
        r"\toprule",
        r"Series & Setting & Runs & \(\varepsilon\) & \(\delta\) & Test accuracy & Front & Note \\",
        r"\midrule",
        *_latex_rows(rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_rows(rows: Iterable[SettingRow]) -> Iterator[str]:
    for row in rows:
        cells = (
            row.series,
            row.name,
            str(row.runs),
            row.epsilon,
            row.delta,
            row.accuracy,
            "yes" if row.on_front else "",
            row.note,
        )
        yield " & ".join(map(latex_escaped, cells)) + r" \\"


def latex_escaped(text: str) -> str:
    """The text as LaTeX prints it: no command, no comment, no end of a cell."""
    return "".join(_LATEX.get(letter, letter) for letter in in_one_line(text))
