"""CSV and LaTeX: read back, they say what was written, and run nothing."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp.report.comparison import Comparison
from dpexp.report.tables import latex_escaped, runs_csv, setting_rows, settings_latex
from tests.report.stores import Recorded, in_memory, plain

RUNS = [
    Recorded(name="one", params={"privacy.noise_multiplier": "1"}, metrics={"final/epsilon": 1.23456789}),
    Recorded(name="two", tags={"dpexp.command": "python -m dpexp +experiment=smoke"}),
    Recorded(name="failed", status="FAILED", metrics={"final/epsilon": None, "privacy/epsilon": 0.3}),
    plain(name="plain"),
]


def compared(runs):
    return Comparison.of([in_memory(run, number) for number, run in enumerate(runs)])


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_csv_holds_every_run_in_full_precision():
    rows = {row["name"]: row for row in read(runs_csv(compared(RUNS)))}
    assert set(rows) == {run.name for run in RUNS}
    assert float(rows["one"]["epsilon"]) == 1.23456789
    assert rows["one"]["params.privacy.noise_multiplier"] == "1"
    assert rows["two"]["command"] == "python -m dpexp +experiment=smoke"
    assert (rows["failed"]["epsilon"], rows["failed"]["epsilon_charged"]) == ("", "0.3")
    assert (rows["failed"]["series"], rows["failed"]["status"]) == ("", "FAILED")
    assert (rows["plain"]["epsilon"], rows["plain"]["delta"]) == ("", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_text_that_a_spreadsheet_would_run_is_kept_from_it(start):
    hostile = f'{start}HYPERLINK("http://x","y"),"\n'
    runs = [Recorded(name=hostile, params={"model.name": hostile}), Recorded(params={"model.name": "-0.5"})]
    first, second = read(runs_csv(compared(runs)))
    assert first["name"] == first["params.model.name"] == f"'{hostile}"
    assert second["params.model.name"] == "-0.5"


def test_the_latex_table_reads_back():
    rows = setting_rows(compared(RUNS))
    lines = settings_latex(rows, "smoke\n\\end{document}").splitlines()
    assert lines[0].startswith("% ")
    assert not lines[1].startswith("\\end")
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    cells = [[cell.strip() for cell in line.removesuffix(r"\\").split(" & ")] for line in body]
    assert [row[1] for row in cells] == [latex_escaped(row.name) for row in rows]
    assert [row[3] for row in cells] == ["0.7057", "1.2346", "none"]
    assert {len(row) for row in cells} == {8}


SPECIAL = {
    r"\textbackslash{}": "\\",
    r"\textasciicircum{}": "^",
    r"\textasciitilde{}": "~",
    r"\{": "{",
    r"\}": "}",
    r"\$": "$",
    r"\&": "&",
    r"\#": "#",
    r"\%": "%",
    r"\_": "_",
}


@given(st.text(st.sampled_from("\\{}$&#%_^~ aZ9.="), max_size=30))
def test_latex_text_is_escaped_and_can_be_read_back(text):
    pattern = "|".join(map(re.escape, sorted(SPECIAL, key=len, reverse=True)))
    escaped = latex_escaped(text)
    assert re.sub(pattern, lambda match: SPECIAL[match[0]], escaped) == text
    assert not re.sub(pattern, "", escaped).strip(" aZ9.=")
