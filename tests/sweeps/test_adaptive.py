"""Sweepers that choose later points by earlier results: priced by a filter declared before, or refused."""

import pytest

from tests.sweeps.store import Store, statuses

PARETO = [
    *("+experiment=smoke", "+sweep=pareto", "hydra.sweeper.n_trials=3", "trainer=cpu"),
    *("privacy.lot_size=400", "privacy.epochs=range(1,3)", "trainer.val_check_interval=50"),
]


def test_without_a_shared_budget_nothing_is_started(dpexp, outputs, capsys):
    assert dpexp("-m", "+experiment=smoke", "hydra/sweeper=optuna", "seed=range(0,3)") == 1
    said = capsys.readouterr().err
    assert "expected budget=dataset with the sweeper" in said
    assert "Only a filter declared beforehand prices that" in said
    assert dpexp(*PARETO) == 1
    assert "data.budget_id" in capsys.readouterr().err
    assert Store(outputs).runs() == []


def test_a_search_of_the_front_costs_the_epsilon_of_its_budget_and_is_not_resumed(dpexp, outputs, capsys):
    asked = [*PARETO, "data.budget_id=digits", "budget.epsilon=5"]
    assert dpexp(*asked) == 0
    store = Store(outputs)
    (parent,) = store.parents
    children = store.children(parent)
    assert statuses([parent, *children]) == ["FINISHED"] * 4
    metrics = parent.data.metrics
    assert (metrics["sweep/epsilon_all"], metrics["sweep/epsilon_best"]) == (5, 5)
    assert {child.data.metrics["budget/epsilon_total"] for child in children} == {5}
    assert 0 < max(child.data.metrics["budget/spent_fraction"] for child in children) <= 1
    said = " ".join(capsys.readouterr().out.split())
    assert "fully adaptive" in said
    assert "cannot be resumed" in said
    assert dpexp(*asked, "resume=last") == 1
    assert "resume = 'last': expected null with the sweeper" in capsys.readouterr().err


def test_trials_that_the_budget_does_not_hold_are_refused_and_the_exit_code_says_so(dpexp, outputs, capsys):
    assert dpexp(*PARETO, "data.budget_id=digits", "budget.epsilon=0.05") == 1
    said = capsys.readouterr()
    assert said.err.count("does not fit into what is left") == 3
    assert "resume=last" not in said.out
    assert "3 did not begin" in said.out
    assert Store(outputs).runs() == []  # no trial began
    assert dpexp(*PARETO, "data.budget_id=new") == 1
    assert "budget.epsilon = 'recorded': expected a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("objectives", "message"),
    [("accuracy", "a list, such as"), ("[speed]", "one of accuracy, error, epsilon"), ("[]", "a list")],
)
def test_objectives_are_named_from_a_list(dpexp, outputs, capsys, objectives, message):
    assert dpexp("+experiment=smoke", f"task.objectives={objectives}") == 1
    assert message in capsys.readouterr().err
