"""The main job on the real files: shortened for CI (`-m data`), whole as reproductions (`-m slow`)."""

import pytest
from mlflow import MlflowClient


def final(outputs):
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    return run.data.metrics


@pytest.mark.data
def test_the_main_job_learns_mnist_in_500_lots(dpexp, outputs):
    assert dpexp("+experiment=mnist_medium", "privacy.steps=500") == 0
    metrics = final(outputs)
    assert metrics["final/accuracy"] > 0.87
    assert 0.70 < metrics["final/epsilon"] < 0.85


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("experiment", "paper", "epsilon", "lots"),
    [
        ("mnist_large", 0.90, 0.5, 1432),
        ("mnist_medium", 0.95, 2, 10_331),
        ("mnist_small", 0.97, 8, 30_633),
        ("mnist_sgd", 0.983, None, 10_000),
    ],
)
def test_the_papers_figures_are_reached_to_1_5_points(dpexp, outputs, experiment, paper, epsilon, lots):
    assert dpexp(f"+experiment={experiment}") == 0
    metrics = final(outputs)
    assert metrics["final/steps"] == lots
    assert abs(metrics["final/accuracy"] - paper) < 0.015
    assert epsilon is None or metrics["final/epsilon"] <= epsilon
