"""`task=report` on small stores: what the page says, what it keeps from a browser, and what is refused."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dpexp._validate import UserError
from dpexp.report import write_report
from dpexp.report.figures import FORMATS, NAMES
from tests.report.stores import Recorded, plain, tracking, write

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(1)> $\\frac{$ _\x00\u202e'
SHARES = [
    {"name": "dp_pca", "value": 0.3, "kind": "certified"},
    {"name": "4 lots", "value": 0.6, "kind": "x"},
]


def swept(sigma, seed, parent=None, **changes):
    """One run of a small sweep with its trajectories."""
    epsilon = 1 / sigma
    tags = {"dpexp.command": f"python -m dpexp privacy.noise_multiplier={sigma} seed={seed}"}
    tags |= {} if parent is None else {"dpexp.sweep": parent, "mlflow.parentRunId": parent}
    settings = {
        "name": f"σ={sigma} seed={seed}",
        "seed": seed,
        "params": {"privacy.noise_multiplier": str(sigma)},
        "tags": tags,
        "metrics": {"final/epsilon": epsilon, "final/accuracy": 0.9 - 0.1 * sigma + 0.01 * seed},
        "series": {
            "privacy/epsilon": [epsilon / 2, epsilon],
            "privacy/epsilon_pld": [epsilon / 3, epsilon / 2],
            "val/accuracy": [0.3, 0.6],
        },
        "artifacts": {
            "privacy_statement.txt": f"ε = {epsilon}, for <one> example.",
            "plan.json": json.dumps({"shares": SHARES}),
        },
    }
    return Recorded(**{**settings, **changes})


PARENT = Recorded(
    name="sweep of smoke",
    tags={"dpexp.kind": "sweep", "dpexp.command": "python -m dpexp -m …"},
    metrics={
        "final/epsilon": None,
        "final/accuracy": None,
        "sweep/epsilon_all": 3.21001,
        "sweep/epsilon_best": 3.21001,
        "sweep/delta": 1e-5,
        "sweep/jobs": 4.0,
        "sweep/finished": 4.0,
        "sweep/failed": 0.0,
    },
    artifacts={"sweep_price.txt": "The whole sweep: 4 runs on the same rows together cost ε ≤ 3.2101."},
)


@pytest.fixture
def sweep(outputs):
    [parent] = write(outputs, [PARENT])
    write(outputs, [swept(sigma, seed, parent) for sigma in (1, 2) for seed in (0, 1)])
    return parent


class Page(HTMLParser):
    """What a browser would make of it: elements with attributes, and text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def page_of(written):
    html = written.page.read_text(encoding="utf-8")
    page = Page(html)
    page.text = " ".join(page.text.split())
    return page


def test_a_sweep_is_reported_with_its_price_its_commands_and_every_figure(outputs, sweep):
    write(outputs, [Recorded(name="not of the sweep")])
    written = write_report(tracking(outputs), experiment="smoke", sweep="last")
    text = page_of(written).text
    for said in (
        "ε ≤ 3.2101 at δ = 1e-05",
        "The whole sweep: 4 runs",
        "python -m dpexp -m …",
        "python -m dpexp privacy.noise_multiplier=2 seed=1",
        "ε = 1.0, for <one> example.",
        "81.00%",
    ):
        assert said in text
    assert "not of the sweep" not in text
    assert {path.name for path in written.folder.iterdir()} == {
        "report.html",
        "runs.csv",
        "runs.tex",
        *(f"{name}.{ending}" for name in NAMES for ending in FORMATS),
    }
    assert [row.runs for row in written.rows] == [2, 2]
    client = __import__("mlflow").MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    assert written.logged_to == sweep
    assert "report/report.html" in {file.path for file in client.list_artifacts(sweep, "report")}


def test_the_page_asks_for_nothing_and_no_text_of_the_store_becomes_an_element(outputs):
    hostile = {
        "privacy_statement.txt": HOSTILE,
        "plan.json": json.dumps({"shares": [{**SHARES[0], "name": HOSTILE}] * 2}),
    }
    odd = {"privacy.noise_multiplier": HOSTILE, "data.name": HOSTILE, "privacy.relation": HOSTILE}
    tags = {"dpexp.command": HOSTILE, "dpexp.experiment": HOSTILE, "dpexp.accountant": HOSTILE}
    runs = [swept(1, seed, name=HOSTILE, params=odd, tags=tags, artifacts=hostile) for seed in (0, 1)]
    write(
        outputs, [*runs, swept(2, 0), plain(name=HOSTILE, params={"model": HOSTILE})], experiment=HOSTILE[:60]
    )
    written = write_report(tracking(outputs))
    page = page_of(written)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe", "object", "link", "base"})
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("href", "src", "xlink:href"):
            assert attributes.get(name, "#").startswith("#"), (tag, attributes)
    assert '<script>alert("1")</script>' in page.text
    html = written.page.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|@import", html)
    assert "default-src 'none'" in html
    assert written.folder.parent == outputs / "reports"


def test_what_the_figures_are_not_is_said_on_the_page(outputs):
    write(
        outputs,
        [
            swept(1, 0),
            swept(2, 0, params={"privacy.delta": "1e-06"}, metrics={"final/delta": 1e-6}),
            swept(3, 0, tags={"dpexp.deterministic": "true"}),
            swept(
                4,
                0,
                params={"data.test_split": "private"},
                metrics={"final/accuracy": None, "nonprivate/final/accuracy": 0.4},
            ),
            swept(5, 0, metrics={"final/epsilon": math.inf}),
            Recorded(name="died", status="FAILED", metrics={"final/epsilon": None}),
            plain(metrics={"final/epsilon": None, "final/accuracy": 0.95}),
        ],
    )
    written = write_report(tracking(outputs))
    page = page_of(written)
    for said in (
        "they differ in test split, δ, lots and noise",
        "Arithmetic, not a guarantee: in series",
        "Not covered by ε: the accuracy of series",
        "1 × ε = ∞",
        "1 × FAILED",
        "Runs without privacy have no ε",
        "no figure for all of them together",
    ):
        assert said in page.text, said
    assert "1.79" not in page.text
    assert "inf" not in (written.folder / "runs.tex").read_text()
    assert "no privacy: 95.00%" in written.page.read_text(encoding="utf-8")  # the line's name, in the drawing


def test_of_a_private_selection_only_the_one_result_is_shown(outputs):
    trials = 48_611.0  # digits that no path, version or time of the page holds by chance
    result = Recorded(
        name="selected",
        tags={"dpexp.kind": "sweep", "dpexp.selection": "true"},
        metrics={"final/epsilon": 2.5, "sweep/epsilon_best": 2.5, "sweep/delta": 1e-5, "sweep/jobs": trials},
    )
    artifacts = {"plan.json": json.dumps({"shares": SHARES})}
    [parent] = write(outputs, [replace(result, artifacts=artifacts)])
    write(outputs, [swept(1, 0, parent, name="a trial that leaked")])
    for asked in (None, parent):
        written = write_report(tracking(outputs), experiment="smoke", sweep=asked, log=False)
        text = page_of(written).text
        assert "one ε for the whole procedure" in text
        assert "ε ≤ 2.5 at δ = 1e-05" in text
        assert "leaked" not in text
        assert not (written.folder / "epsilon_by_release.svg").exists()  # ε is not that of one plan
        assert not re.search(r"48\D?611", re.sub(r"[0-9a-f]{32}", "", text))


def test_what_the_best_trial_alone_would_cost_is_not_shown_for_the_selection(outputs):
    result = {"metrics": {"final/epsilon": 2.5, "sweep/epsilon_best": 2.5, "sweep/delta": 1e-5}}
    tags = {"dpexp.kind": "sweep", "dpexp.selection": "true"}
    write(outputs, [Recorded(tags=tags, artifacts={"plan.json": json.dumps({"shares": SHARES})}, **result)])
    written = write_report(tracking(outputs), experiment="smoke")
    assert [row.note for row in written.rows] == ["ε is of a whole private selection"]
    assert not (written.folder / "epsilon_by_release.svg").exists()
    svg = (written.folder / "tradeoff.svg").read_text(encoding="utf-8")
    assert "final ε of a whole private selection, at" in svg
    assert "one run alone, at" not in svg


@pytest.mark.parametrize(("status", "warned"), [("RUNNING", True), ("KILLED", True), ("FINISHED", False)])
def test_a_price_that_may_be_too_low_by_now_is_shown_as_such(outputs, status, warned):
    [parent] = write(outputs, [replace(PARENT, status=status)])
    write(outputs, [swept(sigma, 0, parent) for sigma in (1, 2)])
    text = page_of(write_report(tracking(outputs), experiment="smoke", sweep="last", log=False)).text
    assert (f"The sweep is {status}: this is its price when it was last recorded" in text) is warned


def test_no_text_of_the_store_reaches_the_terminal_as_a_command(dpexp, outputs, capsys):
    hostile = "\x1b]0;title\x07\x1b[2Jred"
    runs = [swept(1, 0), swept(2, 0, params={"privacy.noise_multiplier": hostile}, name=hostile)]
    write(outputs, runs)
    assert dpexp("+experiment=smoke", "task=report") == 0
    assert dpexp("+experiment=smoke", "task=report", "+task.filter.dpexp.seed=7") == 1
    write(outputs, [swept(1, 0)], experiment=f"other {hostile}")
    assert dpexp("task=report") == 1
    told = "".join(capsys.readouterr())
    assert "[2Jred" in told
    assert "\x1b]0" not in told
    assert "\x1b[2J" not in told


def test_the_command_line_filters_by_tags_and_prints_where_it_is(dpexp, outputs, capsys):
    write(outputs, [swept(sigma, seed) for sigma in (1, 2) for seed in (0, 1)])
    assert dpexp("+experiment=smoke", "task=report", "+task.filter.dpexp.seed=1", "task.name=mine") == 0
    printed = capsys.readouterr().out
    assert str(outputs / "reports" / "mine" / "report.html") in printed
    assert "● " in printed
    assert len((outputs / "reports" / "mine" / "runs.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["task.experiment=smok"], "Did you mean smoke?"),
        (["task.experiment=smoke", "task.sweep=last"], "There are no sweeps"),
        (["task.experiment=smoke", "+task.filter.dpexp.seed=7"], "task.filter leaves none"),
        (["task.name=../up"], "task.name = '../up'"),
        (["task.sweep=7"], "Quote what is a number"),
        (["task.log=maybe"], "task.log = 'maybe'"),
    ],
)
def test_mistakes_are_explained(dpexp, outputs, capsys, arguments, said):
    write(outputs, [Recorded()])
    assert dpexp("task=report", *arguments) == 1
    assert said in capsys.readouterr().err
    assert not (outputs / "reports" / "smoke").exists()


def test_an_empty_store_and_one_without_finished_runs_are_refused(outputs, tmp_path):
    with pytest.raises(UserError, match="none has runs"):
        write_report(tracking(outputs))
    with pytest.raises(UserError, match="a store that exists"):
        write_report(tracking(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    write(outputs, [Recorded(name="died", status="KILLED")])
    with pytest.raises(UserError, match="died: KILLED"):
        write_report(tracking(outputs))


def test_two_experiments_are_listed_and_not_guessed_between(outputs):
    for name in ("smoke", "other"):
        write(outputs, [Recorded()], experiment=name)
    with pytest.raises(UserError, match="other, smoke"):
        write_report(tracking(outputs))


def test_a_failure_while_writing_leaves_the_earlier_report(outputs, monkeypatch):
    write(outputs, [Recorded()])
    written = write_report(tracking(outputs))
    before = {path.name: path.read_bytes() for path in written.folder.iterdir()}
    monkeypatch.setattr("dpexp.report.writing.page", lambda contents: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tracking(outputs))
    assert {path.name: path.read_bytes() for path in written.folder.iterdir()} == before
