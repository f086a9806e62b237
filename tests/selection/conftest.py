"""A declared selection among four points, and a training that takes no time."""

import contextlib
import json
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from dpexp.cli import conf_dir
from dpexp.cli.composition import composed_experiment, current_hydra
from dpexp.selection import NegativeBinomial, Score, Selection, Space, record
from dpexp.tracking import connect

OVERRIDES = ("+experiment=smoke", "privacy.clip_norm=1", "trainer=cpu")
SPACE = Space({"optimizer.lr": ["0.1", "0.5"], "privacy.noise_multiplier": ["2", "3"]})


def experiment(*overrides):
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return composed_experiment(current_hydra(), [*OVERRIDES, *overrides])


@pytest.fixture(scope="session")
def experiments():
    return [experiment(*point) for point in SPACE.points]


@pytest.fixture(scope="session")
def declared(experiments):
    """Immutable, and priced once."""
    laws = [NegativeBinomial(mean_trials=10)]
    return Selection.of(SPACE, experiments, laws=laws, score=Score("val/accuracy"), command="python -m dpexp")


@pytest.fixture
def private(tmp_path, monkeypatch):
    """The private store of a test."""
    monkeypatch.setenv("DPEXP_PRIVATE_DIR", str(tmp_path / "private"))
    return tmp_path / "private" / "selections"


@pytest.fixture
def store(outputs):
    return connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)


def runs_in(store):
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    return list(store.search_runs(experiments))


def records(private):
    paths = sorted(private.glob("*/record.json"))
    return [record.Record.read(path.read_text(encoding="utf-8")) for path in paths]


@pytest.fixture
def trials(monkeypatch):
    """Makes K what a test says: `trials(5)`."""

    def fix(count):
        monkeypatch.setattr(record, "draw", lambda law: count)

    return fix


class Training:
    """In place of `train`: accuracies by turn; an exception is raised in its turn."""

    def __init__(self, outcomes):
        self.outcomes, self.points = list(outcomes), []

    def __call__(self, experiment):
        outcome = self.outcomes[len(self.points)]
        lr = experiment.config["optimizer"]["lr"]
        self.points.append((lr, experiment.privacy.noise_multiplier))
        with experiment.recording(name=experiment.name, run_name="", run_id=None) as run:
            run.set_tags({"dpexp.kind": "train", "dpexp.seed": "0", "dpexp.ledger_head": "ab"})
            run.log_params({"optimizer.lr": lr, "plan.steps": 40})
            run.record(20, {"val/accuracy": 0.999, "privacy/epsilon": 0.1, "nonprivate/train_loss": 3.5})
            if isinstance(outcome, BaseException):
                raise outcome
            run.record(40, {"val/accuracy": outcome, "test/accuracy": outcome, "final/accuracy": outcome})
            run.log_text(experiment.whole.statement, "privacy_statement.txt")
            with contextlib.chdir(experiment.tracking.folder):
                Path("model.pt").write_text(json.dumps(outcome), encoding="utf-8")
                run.log_artifact(Path("model.pt"))
                Path("model").mkdir()
                Path("model/MLmodel").write_text(
                    "utc_time_created: '2020-02-02 02:02:02.0'\n", encoding="utf-8"
                )
                run.log_model(Path("model"), step=40)


@pytest.fixture
def training(monkeypatch):
    """Puts accuracies in place of trainings: `training([0.3, RuntimeError()])`."""

    def fake(outcomes):
        found = Training(outcomes)
        monkeypatch.setattr("dpexp.training.train", found)
        return found

    return fake
