"""Whole runs on data sets of the user's own, and on files in CIFAR's format."""

import numpy as np
import pandas as pd
import pytest

from tests.data.files import digests
from tests.data.test_cifar import CIFAR10_FILES, placed

TINY = ["+experiment=smoke", "trainer=cpu", "trainer.val_check_interval=1", "privacy.steps=2"]
LOTS = ["privacy.lot_size=4", "model.hidden_units=[]"]
HERE = "tests.data.test_own"


def test_a_csv_file_trains(dpexp, outputs, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.random(40), "b": rng.random(40), "target": rng.integers(2, size=40)})
    table.to_csv(tmp_path / "mine.csv", index=False)
    keys = ["data.num_examples=32", "data.num_classes=2", "data.dimensions=2", "data.inputs=[a,b]"]
    assert dpexp(*TINY, *LOTS, "data=arrays", f"data.train={tmp_path}/mine.csv", *keys) == 0


OWN = [
    "data=torch_dataset",
    f"+data.train._target_={HERE}.Numbered",
    f"+data.test._target_={HERE}.Noisy",
    "data.num_examples=10",
    "data.num_classes=2",
    "data.dimensions=6",
    "data.shape=[2,3]",
    "data.statistics=none",
]


def test_a_torch_data_set_trains_lot_by_lot(dpexp, outputs):
    assert dpexp(*TINY, *LOTS, *OWN, "data.workers=0", "data.validation=2", "data.num_examples=8") == 0


def test_a_lightning_data_module_trains(dpexp, outputs):
    names = [f"+data.module._target_={HERE}.Module", "data.train=training", "data.test=testing"]
    keys = ["data=lightning", *names, *OWN[3:], "data.workers=0"]
    assert dpexp(*TINY, *LOTS, *keys) == 0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["data=digits", "data.validation=100"], "the last 100 training rows"),
        (["data=digits", "data.validation={every: 5}"], "the training rows of every: 5"),
        (["data=digits", "data.validation={hashed: 0.2}"], "the training rows of hashed: 0.2"),
        (["data=digits"], "the test split, declared public"),
        ([*OWN, f"+data.held_out._target_={HERE}.Numbered"], "data.held_out, declared private"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_plan_says_which_rows_are_for_validation(dpexp, outputs, capsys, keys, words):
    assert dpexp(*TINY, "privacy.lot_size=4", "task=plan", *keys) == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"val/* is {words}" in printed


def test_features_need_rows_in_memory(dpexp, outputs, capsys):
    pca = ["features=dp_pca", "features.components=2", "data.workers=0"]
    assert dpexp(*TINY, *LOTS, *OWN, *pca) == 1
    assert "Set data.in_memory to true" in capsys.readouterr().err
    assert dpexp(*TINY, *LOTS, *OWN, *pca, "data.in_memory=true") == 0


def test_the_plan_of_a_torch_data_set_makes_none(dpexp, outputs):
    assert dpexp(*TINY, *LOTS, *OWN, "+data.train.bad=nonsense", "task=plan") == 0


def test_cifar_trains_on_files_of_the_real_format(dpexp, outputs, tmp_path):
    root = placed(tmp_path / "cifar", CIFAR10_FILES)
    known = ",".join(f"{name}:{digest}" for name, digest in digests(CIFAR10_FILES).items())
    keys = ["data=cifar10", f"data.root={root}", "data.num_examples=15"]
    assert dpexp(*TINY, *LOTS, *keys, f"data.sha256={{{known}}}") == 0


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_two_workers_read_the_lots_that_none_reads(dpexp, outputs):
    from mlflow import MlflowClient

    weights = []
    for workers in (0, 2):
        keys = [
            f"data.workers={workers}",
            "data.test_split=public",
            "privacy.deterministic=true",
            "privacy.steps=5",
        ]
        assert dpexp(*TINY, *LOTS, *OWN, *keys) == 0
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    for run in store.search_runs([experiment.experiment_id]):
        weights.append((run.data.metrics["test/loss"], run.data.metrics["final/epsilon"]))
    assert len(weights) == 2
    assert weights[0] == weights[1]
