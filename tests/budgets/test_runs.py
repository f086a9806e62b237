"""Runs that share a budget, from the command line."""

import json

import pytest
from mlflow import MlflowClient

from dpexp.budgets.database import BudgetStoreError
from dpexp.budgets.store import BudgetStore
from dpexp.data import Digits
from dpexp.features import DPPCA
from tests.budgets.stores import store_at

SHARED = ["+experiment=smoke", "trainer=cpu", "budget=dataset", "data.budget_id=people"]
SHOWN = [*SHARED, "task=budget", "task.format=json"]


@pytest.fixture
def shown(dpexp, capsys):
    def run(*changes):
        capsys.readouterr()
        assert dpexp(*SHOWN, *changes) == 0
        return json.loads(capsys.readouterr().out)

    return run


def printed(capsys):
    """What was printed, in one line and without frames."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def runs_of(outputs):
    client = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    return client.search_runs([found.experiment_id for found in client.search_experiments()])


def test_runs_features_and_sweeps_are_charged_and_what_would_pass_the_total_touches_no_data(
    dpexp, outputs, capsys, monkeypatch, shown
):
    opening = [*SHARED, "budget.epsilon=1.5", "privacy.steps=70"]
    pca = ["features=dp_pca", "features.components=9", "features.noise_multiplier=16"]
    assert dpexp(*opening, *pca) == 0
    assert "All runs charged to the budget of the data set" in printed(capsys)
    assert dpexp("-m", *SHARED, "privacy.steps=2", "seed=1,2") == 0
    found = shown("privacy.steps=70")
    assert [run["releases"] for run in found["runs"]] == [71, 2, 2]
    trained = [run for run in runs_of(outputs) if run.data.tags["dpexp.kind"] == "train"]
    assert {run["mlflow_run"] for run in found["runs"]} == {run.info.run_id for run in trained}
    first = next(run for run in trained if run.data.params["privacy.steps"] == "70")
    assert first.data.tags["dpexp.budget"] == "dataset"
    assert 0 < first.data.metrics["budget/spent_fraction"] < found["spent"]["fraction"] < 1
    entries = store_at(outputs / "budgets.db").read("people")[2]
    of_the_first = [entry.name for entry in entries if entry.run == entries[0].run]
    assert of_the_first[:2] == ["dp_pca", "lot 1"]  # then blocks that follow the pace
    assert of_the_first[-1].endswith("70")

    monkeypatch.setattr(Digits, "load", lambda self: pytest.fail("data were loaded"))
    capsys.readouterr()
    assert dpexp(*SHARED, "privacy.steps=5000") == 1
    message = capsys.readouterr().err
    fit = shown("privacy.steps=5000")["left"]["lots"]
    assert f"What would fit: the first {fit:,} of the 5,000" in message
    assert len(shown()["runs"]) == 3  # who was refused is not among the runs
    assert shown()["spent"] == found["spent"]


def test_data_with_a_budget_are_spent_from_it_and_nothing_else(dpexp, outputs, capsys):
    assert dpexp("+experiment=smoke", "data.budget_id=people") == 1
    assert "expected budget=dataset" in capsys.readouterr().err
    assert dpexp(*SHARED, "budget.epsilon=1", "privacy=none") == 1
    assert "privacy = 'none'" in capsys.readouterr().err


def test_nothing_is_drawn_where_the_store_fails(dpexp, outputs, capsys, monkeypatch):
    def lost(self, *_):
        raise BudgetStoreError("The budget store is gone.")

    monkeypatch.setattr(BudgetStore, "reserve", lost)
    monkeypatch.setattr(DPPCA, "fit", lambda self, *_: pytest.fail("noise was drawn"))
    pca = ["features=dp_pca", "features.components=9", "features.noise_multiplier=16"]
    assert dpexp(*SHARED, "budget.epsilon=3", *pca) == 1
    assert "store is gone" in capsys.readouterr().err
    assert [run.info.status for run in runs_of(outputs)] == ["FAILED"]


def test_the_same_rows_under_another_name_are_refused(dpexp, outputs, capsys):
    assert dpexp(*SHARED, "budget.epsilon=3", "privacy.steps=1") == 0
    assert dpexp(*SHARED[:-1], "data.budget_id=others", "budget.epsilon=3", "privacy.steps=1") == 1
    assert "expected 'people'" in capsys.readouterr().err


def test_a_budget_is_shown_as_tables_and_plots(dpexp, outputs, capsys):
    assert dpexp(*SHARED, "budget.epsilon=3", "privacy.steps=1") == 0
    capsys.readouterr()
    assert dpexp(*SHARED, "task=budget") == 0
    screen = printed(capsys)
    for words in ("Budget of people", "% of the filter", "one Gaussian release", "smoke σ=2 T=1 seed=0"):
        assert words in screen
    assert (outputs / "budgets" / "people.png").stat().st_size > 10_000
    assert dpexp(*SHARED[:-1], "data.budget_id=peopl", "task=budget") == 1
    assert "Did you mean people?" in capsys.readouterr().err
    assert dpexp("+experiment=smoke", "task=budget") == 1
    assert "budget=dataset with task=budget" in capsys.readouterr().err


def test_a_filter_and_an_odometer_say_what_they_claim(dpexp, outputs, capsys):
    short = ["+experiment=smoke", "trainer=cpu", "privacy.steps=2"]
    assert dpexp(*short, "budget=filter", "privacy.epsilon=1.5") == 0
    screen = printed(capsys)
    assert "ε = 1.5 at δ = 1e-05" in screen
    assert "stopped or prolonged" in screen
    assert dpexp(*short, "budget=odometer") == 0
    assert "realized loss, certified" in printed(capsys)
    metrics = {run.data.tags["dpexp.budget"]: run.data.metrics for run in runs_of(outputs)}
    assert metrics["filter"]["final/epsilon"] == metrics["filter"]["privacy/epsilon"] == 1.5
    assert "privacy/epsilon_pld" not in metrics["filter"]
    assert metrics["odometer"]["privacy/realized_loss"] > metrics["odometer"]["final/epsilon"]
    assert "privacy/epsilon_odometer" not in metrics["odometer"]
