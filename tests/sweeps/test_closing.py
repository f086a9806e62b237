"""What may be lost on the way to a sweep's price, and must not make it smaller, or hide an error."""

import math

import pytest

from dpexp.budgets import DatasetBudget
from dpexp.ledger import LedgerError
from dpexp.stopping import Stopped
from dpexp.sweeps import Child, adaptive_price
from dpexp.tracking.alive import alive, is_alive
from tests.plans import private_plan
from tests.sweeps.store import SWEEP, statuses


def test_a_deleted_run_stays_charged_and_is_not_taken_for_done(dpexp, store, failing, capsys):
    command = [
        *SWEEP,
        "privacy.noise_multiplier=2,4",
        "budget=dataset",
        "data.budget_id=d",
        "budget.epsilon=5",
    ]
    failing.append(RuntimeError("no"))
    assert dpexp(*command) == 1
    (parent,) = store.parents
    price = parent.data.metrics["sweep/epsilon_all"]
    store.client.delete_run(store.children(parent)[1].info.run_id)
    assert dpexp(*command, "resume=last") == 0
    (parent,) = store.parents
    assert statuses([parent, *store.children(parent)]) == ["FINISHED"] * 3  # a new run for job 1
    assert parent.data.metrics["sweep/epsilon_all"] > price
    assert "3 runs on the same rows" in " ".join(capsys.readouterr().out.split())


def test_jobs_that_would_be_recorded_elsewhere_are_refused(dpexp, outputs, store, capsys):
    assert dpexp(*SWEEP, "tracking.outputs=a,b") == 1
    assert "do not sweep over tracking" in capsys.readouterr().err
    assert store.runs() == []
    assert not (outputs.parent / "a" / "mlflow.db").exists()


def test_an_error_in_pricing_hides_no_other_and_withdraws_what_was_claimed(
    dpexp, store, failing, capsys, monkeypatch
):
    command = [*SWEEP, "privacy.noise_multiplier=4"]
    failing.append(Stopped(15))
    assert dpexp(*command) == 128 + 15
    (parent,) = store.parents
    assert parent.data.metrics["sweep/epsilon_all"] > 0
    capsys.readouterr()

    def lost(children, jobs, charged):
        raise LedgerError("The ledger is gone.")

    monkeypatch.setattr("dpexp.sweeps.listed_price", lost)
    failing.append(Stopped(15))
    assert dpexp(*command, "resume=last") == 128 + 15
    said = capsys.readouterr().err
    assert "has no price yet. The ledger is gone." in said
    assert "Stopped by SIGTERM" in said
    (parent,) = store.parents
    assert parent.info.status == "KILLED"
    assert math.isnan(parent.data.metrics["sweep/epsilon_all"])
    assert dpexp(*command, "resume=last") == 1  # all is done, and still nobody knows what it cost
    assert "The ledger is gone." in capsys.readouterr().err
    assert statuses(store.parents) == ["FAILED"]


def test_jobs_that_a_launcher_passes_over_are_no_success(dpexp, store, capsys, monkeypatch):
    monkeypatch.setattr("dpexp.tasks.Train.run", lambda self, experiment: None)
    assert dpexp(*SWEEP, "seed=0,1") == 1
    said = capsys.readouterr()
    assert "0 jobs came to their end, 2 did not begin" in " ".join(said.out.split())
    assert "jobs failed" in said.err
    assert store.parents == []


def test_a_search_without_values_is_refused_before_anything_is_spent(dpexp, store, capsys):
    budget = ["budget=dataset", "data.budget_id=d", "budget.epsilon=5", "data.test_split=private"]
    assert dpexp(*SWEEP, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=1", "seed=range(0,3)", *budget) == 1
    assert "the test split is private" in capsys.readouterr().err
    assert store.runs() == []


def test_a_run_has_begun_when_its_ledger_says_so(tmp_path):
    run = Child(run_id="one", job=0, status="FAILED", deleted=False, tags={}, metrics={})
    assert not run.begun(tmp_path)
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "one.ledger").touch()
    assert run.begun(tmp_path)


def test_a_run_is_alive_while_somebody_writes_to_it(tmp_path):
    assert not is_alive(tmp_path, "one")
    with alive(tmp_path, "one"):
        assert is_alive(tmp_path, "one")
        assert not is_alive(tmp_path, "two")
    (tmp_path / "one.running").touch()  # as a killed process leaves it
    assert not is_alive(tmp_path, "one")


@pytest.mark.parametrize(
    ("epsilon", "charged", "bounds"), [(5, ["one", "two"], [5]), (5, ["one"], []), (None, ["one", "two"], [])]
)
def test_a_search_costs_the_budget_that_all_its_runs_were_charged_to_on_record(
    tmp_path, epsilon, charged, bounds
):
    budget = DatasetBudget(
        id="d",
        epsilon=epsilon,
        delta=1e-6,
        relation="add_or_remove_one",
        orders=None,
        store=str(tmp_path / "b.db"),
    )
    plan = private_plan(steps=10, epsilon=None, budget=budget)
    for run_id in charged:
        budget.open(plan, label=run_id).attach(run_id)
    price = adaptive_price([_child("one"), _child("two")], budget, tmp_path)
    assert [float(bound) for bound in price.bounds] == bounds
    assert {bound.delta for bound in price.bounds} <= {1e-6}


def _child(run_id):
    return Child(
        run_id=run_id, job=0, status="FAILED", deleted=False, tags={"dpexp.plan_hash": "0"}, metrics={}
    )
