"""Shared fixtures: deterministic property tests, one MLflow store to copy, small data."""

import gc
import os
import shutil
import sys
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.pop("MLFLOW_TRACKING_URI", None)
os.environ["DPEXP_TRUSTED_TARGETS"] = "tests"  # models and data sets that tests define
if "PYTEST_XDIST_WORKER" in os.environ:  # there is a worker for every core: threads would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import absl.logging
import hypothesis
import numpy as np
import pytest

from tests.data import files

# absl (in dp-accounting, an oracle here) closes its stream whenever logging is configured anew, as Hydra
# does at every run: it must not be the file that pytest captures with.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__

hypothesis.settings.register_profile("dpexp", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.load_profile("dpexp")


def pytest_collection_finish():
    """What was imported stays: no collection of garbage need look at it again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def features_folder(tmp_path_factory):
    """Features computed by tests are kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPEXP_FEATURES_DIR", str(tmp_path_factory.mktemp("features")))
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def template_store(tmp_path_factory):
    """An MLflow store made once: making one takes seconds, copying one takes none."""
    from dpexp.tracking import connect

    folder = tmp_path_factory.mktemp("store")
    connect(f"sqlite:///{folder / 'mlflow.db'}", folder)
    return folder / "mlflow.db"


@pytest.fixture
def outputs(tmp_path, template_store, monkeypatch):
    """An outputs folder with an empty store, below the current directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs"
    folder.mkdir()
    shutil.copy(template_store, folder / "mlflow.db")
    return folder


@pytest.fixture(scope="session")
def small_mnist(tmp_path_factory):
    """Overrides that make `data=mnist` read small files of the same format: 1200 training rows."""
    rng = np.random.default_rng(0)
    content = {}
    for split, rows in {"train": 1200, "t10k": 100}.items():
        content[f"{split}-images-idx3-ubyte"] = files.images(
            rng.integers(256, size=(rows, 28, 28), dtype=np.uint8)
        )
        content[f"{split}-labels-idx1-ubyte"] = files.labels(rng.integers(10, size=rows, dtype=np.uint8))
    folder = files.place(tmp_path_factory.mktemp("mnist"), content)
    overrides = [f"data.sha256.{name}={digest}" for name, digest in files.digests(content).items()]
    return [f"data.root={folder}", *overrides]


@pytest.fixture(scope="session")
def small_cifar10(tmp_path_factory):
    """Overrides that make `data=cifar10` read small files of the original format: 200 training rows."""
    return files.overrides("data", tmp_path_factory.mktemp("cifar10"), files.cifar10())


@pytest.fixture(scope="session")
def small_cifar100(tmp_path_factory):
    """The same for the public data set of `features=pretrained_cifar100`."""
    return files.overrides("features.public", tmp_path_factory.mktemp("cifar100"), files.cifar100())


@pytest.fixture
def dpexp(monkeypatch):
    """Runs the command line in this process; returns its exit code."""
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra

    from dpexp.cli import main

    get_mode = Hydra.get_mode

    def mode(self, config_name, overrides):
        """Hydra composes everything once more for it: a quarter of a second a run. Only sweeps set one."""
        in_file = any(override.startswith("+sweep=") for override in overrides)
        return get_mode(self, config_name, overrides) if in_file else None

    monkeypatch.setattr(Hydra, "get_mode", mode)

    def run(*arguments):
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", ["dpexp", *arguments])
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        with pytest.raises(SystemExit) as exit_info:
            main()
        return exit_info.value.code

    return run


@pytest.fixture
def trained(monkeypatch):
    """The experiments that were trained, in order."""
    from dpexp import training

    calls, real = [], training.train

    def counted(experiment):
        calls.append(experiment)
        return real(experiment)

    monkeypatch.setattr(training, "train", counted)
    return calls


REPOSITORY = Path(__file__).parents[1]
