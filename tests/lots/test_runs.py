"""Whole runs on digits with each sampler: ε at every logged lot is what the accountant says of those lots."""

import pytest

from dpexp.accounting import (
    BallsAndBins,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    Relation,
    RenyiAccountant,
    Repeated,
)

N, SIGMA = 1438, 2.0
NOISE = Gaussian(noise_multiplier=SIGMA)
LOTS = 25
CASES = {
    # sampling: overrides, relation, and what has been released after so many lots
    "fixed_size": (
        ["privacy.lot_size=64"],
        Relation.REPLACE_ONE,
        lambda t: Repeated(FixedSizeSampled(gaussian=NOISE, lot_size=64, population=N), t),
    ),
    "partition": (  # 1438 // 64 = 22 lots an epoch
        ["privacy.lot_size=64"],
        Relation.ZERO_OUT,
        lambda t: Partitioned(gaussian=NOISE, epochs=-(-t // 22)),
    ),
    "balls_and_bins": (
        ["privacy.lot_size=71.9"],
        Relation.ADD_OR_REMOVE_ONE,
        lambda t: BallsAndBins(gaussian=NOISE, lots=20, epochs=-(-t // 20)),
    ),
}


@pytest.mark.parametrize("sampling", CASES)
def test_epsilon_of_a_run_is_that_of_its_lots(dpexp, outputs, capsys, sampling):
    from mlflow import MlflowClient

    overrides, relation, released = CASES[sampling]
    arguments = ["trainer=cpu", f"privacy.steps={LOTS}", "tracking.every=1", f"privacy.relation={relation}"]
    assert dpexp("+experiment=smoke", f"sampling={sampling}", *arguments, *overrides) == 0
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    logged = {m.step: m.value for m in store.get_metric_history(run.info.run_id, "privacy/epsilon")}
    assert list(logged) == list(range(1, LOTS + 1))
    accountant = RenyiAccountant()
    for lots, value in logged.items():
        cost = accountant.price(released(lots), relation)
        assert value == pytest.approx(float(accountant.epsilon(cost, 1e-5, relation)), rel=1e-9)
    assert run.data.metrics["final/epsilon"] == logged[LOTS]
    heuristic = "heuristic/epsilon_as_if_poisson" in run.data.metrics
    assert heuristic == (sampling == "partition")
    with open(store.download_artifacts(run.info.run_id, "privacy_statement.txt"), encoding="utf-8") as file:
        words = file.read()
    assert ("It is not assumed that lots are secret" in words) == (sampling == "partition")
    assert ("one lot of every epoch, whatever the other rows" in words) == (sampling == "balls_and_bins")


def test_data_of_another_size_than_declared_end_a_run_with_fixed_lots_before_anything_is_released(
    dpexp, outputs, capsys
):
    arguments = ["trainer=cpu", "privacy.steps=2", "privacy.relation=replace_one", "data.num_examples=1400"]
    assert dpexp("+experiment=smoke", "sampling=fixed_size", *arguments) != 0
    assert "expected 1438 training rows" in capsys.readouterr().err


def test_a_relation_without_a_bound_ends_a_run_on_one_screen(dpexp, outputs, capsys):
    assert dpexp("+experiment=smoke", "sampling=partition", "task=plan") != 0
    assert "privacy.relation=zero_out, replace_one" in capsys.readouterr().err


def test_noisy_sgd_shows_the_limit_beside_the_certified_figure(dpexp, outputs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert dpexp("+experiment=noisy_sgd", "task=plan") == 0
    printed = capsys.readouterr().out
    assert "fixed_size sampling" in printed
    assert "replacing one example by another" in printed
    assert "gdp (asymptotic)" in printed
