"""The bars of docs/recipes.md, which says which of them are missed: `python -m pytest -m recipes`."""

import pytest
from mlflow import MlflowClient

SEEDS = (0, 1, 2)


@pytest.mark.recipes
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("experiment", "epsilon", "least"),
    [
        ("mnist_scattering", 0.5, 0.978),
        ("mnist_scattering", 2, 0.986),
        ("mnist_scattering", 8, 0.988),
        ("fashion_scattering", 3, 0.897),
    ],
)
def test_the_mean_of_three_seeds_reaches_its_bar(dpexp, outputs, experiment, epsilon, least):
    for seed in SEEDS:
        assert dpexp(f"+experiment={experiment}", f"privacy.epsilon={epsilon}", f"seed={seed}") == 0
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [found] = [e for e in store.search_experiments() if e.name != "Default"]
    runs = [run.data.metrics for run in store.search_runs([found.experiment_id])]
    assert len(runs) == len(SEEDS)
    assert all(run["final/epsilon"] <= epsilon for run in runs)
    assert sum(run["final/accuracy"] for run in runs) / len(runs) >= least
