"""The command line as a person meets it: messages, exit codes, interruptions."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY

SMOKE = "+experiment=smoke"

MISTAKES = [
    (["+experiment=smok"], ["experiment = 'smok'", "smoke", "Did you mean smoke?"]),
    (["experiment=smoke"], ["+experiment=smoke"]),
    ([SMOKE, "privcy=none"], ["privcy = 'none'", "Did you mean privacy?"]),
    ([SMOKE, "privacy=nne"], ["privacy = 'nne'", "dp_sgd, none", "Did you mean none?"]),
    ([SMOKE, "accountant=foo"], ["accountant = 'foo'", "moments"]),
    (["-m", SMOKE, "hydra/launcher=basci"], ["hydra/launcher = 'basci'", "basic", "Did you mean basic?"]),
    (["-m", SMOKE, "hydra/sweeper=private_selecton"], ["basic", "Did you mean private_selection?"]),
    ([SMOKE, "sed=1"], ["sed = '1'", "Did you mean seed?"]),
    ([SMOKE, "+foo=1"], ["foo = 1", "seed"]),
    (
        [SMOKE, "privacy.noise_multplier=3"],
        ["privacy.noise_multplier = '3'", "Did you mean noise_multiplier?"],
    ),
    ([SMOKE, "+privacy.typo=1"], ["privacy.typo = 1", "noise_multiplier"]),
    ([SMOKE, "+privacy.nose_multiplier=1"], ["Did you mean noise_multiplier?"]),
    ([SMOKE, "+model.hiden=3"], ["model.hiden = 3", "Did you mean hidden_units?"]),
    (["data=arrays"], ["data.dimensions, data.num_classes, data.num_examples, data.train: found no value"]),
    (
        ["data=arrays", "data.train=x.csv", "data.num_classes=2"],
        ["data.dimensions, data.num_examples: found"],
    ),
    ([SMOKE, "privacy.delta=2"], ["privacy.delta = 2: expected a number > 0 and < 1"]),
    ([SMOKE, "privacy.delta=abc"], ["privacy.delta = 'abc'"]),
    ([SMOKE, "privacy.lot_size=5000"], ["privacy.lot_size = 5000", "q = L/N must be at most 1"]),
    ([SMOKE, "privacy.noise_multiplier=-1"], ["privacy.noise_multiplier = -1"]),
    ([SMOKE, "privacy.noise_multiplier=0"], ["privacy=none"]),
    ([SMOKE, "privacy.clip_norm=0"], ["privacy.clip_norm = 0"]),
    ([SMOKE, "privacy.clipping=adaptve"], ["privacy.clipping = 'adaptve'", "Did you mean adaptive?"]),
    ([SMOKE, "privacy.adaptive.quantile=2"], ["privacy.adaptive.quantile = 2", "> 0 and < 1"]),
    ([SMOKE, "+privacy.adaptive.quantil=0.4"], ["privacy.adaptive.quantil", "Did you mean quantile?"]),
    ([SMOKE, "privacy.steps=0"], ["privacy.steps = 0"]),
    ([SMOKE, "privacy.epsilon=0.0001"], ["privacy.epsilon = 0.0001", "one lot cost"]),
    (
        [SMOKE, "features=dp_pca", "features.components=9", "privacy.epsilon=0.1"],
        ["dp_pca alone costs", "privacy.epsilon = 0.1"],
    ),
    ([SMOKE, "+trainer.gradient_clip_val=3"], ["trainer.gradient_clip_val", "privacy.clip_norm"]),
    ([SMOKE, "+trainer.accumulate_grad_batches=2"], ["physical_batch_size"]),
    ([SMOKE, "trainer.precision=16-mixed"], ["trainer.precision", "32-true"]),
    ([SMOKE, "+trainer.profiler=simpel"], ["trainer: ", "'simple', 'advanced'", "'profiler': 'simpel'"]),
    ([SMOKE, "trainer.accelerator=mps"], ["trainer: ", "trainer=auto takes what there is"]),
    ([], ["privacy.steps = None", "+experiment=NAME"]),
    ([SMOKE, "trainer.devices=2"], ["trainer.devices = 2"]),
    ([SMOKE, "+trainer.limit_test_batches=0"], ["trainer.limit_test_batches"]),
    ([SMOKE, "trainer.val_check_interval=0.5"], ["trainer.val_check_interval = 0.5"]),
    ([SMOKE, "optimizer.lr=-1"], ["optimizer: ", "Invalid learning rate"]),
    ([SMOKE, "tracking.uri=http://me:SECRET@host"], ["tracking.uri", "MLFLOW_TRACKING_URI"]),
    ([SMOKE, "tracking.uri=./mlruns"], ["tracking.uri = './mlruns'"]),
    ([SMOKE, "+trainer.max_steps=3"], ["trainer.max_steps", "privacy.steps"]),
    ([SMOKE, "model.hidden_units=[-1]"], ["model.hidden_units = -1"]),
    ([SMOKE, "privacy.layers={a:{parameters:'hiden.*'}}"], ["privacy.layers.a.parameters = 'hiden.*'"]),
    ([SMOKE, "privacy.layers={a:{parameters:'hidden.*'}}"], ["output.weight is matched by no group"]),
    ([SMOKE, "optimizer._target_=torch.optim.Nope"], ["optimizer._target_ = 'torch.optim.Nope'"]),
    ([SMOKE, "physical_batch_size=0"], ["physical_batch_size = 0"]),
    ([SMOKE, "seed=-1"], ["seed = -1"]),
    ([SMOKE, "tracking.every=0"], ["tracking.every = 0"]),
    ([SMOKE, "model.out_features=7"], ["model: shape of its outputs = (5, 7)", "data.num_classes = 10"]),
    ([SMOKE, "task=plan", "task.calibrate=true"], ["task.calibrate = True", "[0.5,1,2]"]),
    (["+experiment=mnist_scattering", "features.groups=9"], ["features.stages.scattering.groups"]),
    (["+experiment=mnist_scattering", "data=digits"], ["features.stages.scattering.shape = [28, 28]"]),
    (
        ["+experiment=mnist_scattering", "features.stages.whitening.noise_multiplier=0"],
        ["features.stages.whitening.noise_multiplier = 0"],
    ),
    (
        ["+experiment=smoke", "features=whitened", "features.stages=none"],
        ["features.stages = 'none'", "names with features"],
    ),
    (
        ["+experiment=mnist_medium", "task=plan", "privacy.epsilon=0.3"],
        ["dp_pca alone costs", "noise multipliers under features"],
    ),
    ([SMOKE, "privacy.delta="], ["privacy.delta"]),
    ([SMOKE, "privacy.delta=[1"], ["privacy.delta"]),
    ([SMOKE, "tracking.uri=/home/José/my (runs)"], ["""'tracking.uri="/home/José/my (runs)"'"""]),
    (
        [SMOKE, "data.train=x"],
        ["a key of data: budget_id, dimensions, name, num_classes,", "It is in data=arrays, data=lightning"],
    ),
    ([SMOKE, "sed=1", "model=resnet", "model.hidden_units=[9]"], ["Did you mean seed?"]),
    (
        [SMOKE, "model=resnet", "model.hidden_units=[9]"],
        ["a key of model: depth,", "model=linear"],
    ),
    ([SMOKE, "privacy.quantile=0.3"], ["It is in privacy.adaptive.quantile."]),
    (["-m", SMOKE, "checkpoint.kep=1,2"], ["a key of checkpoint: every_seconds, keep", "Did you mean keep?"]),
    ([SMOKE, "seed.x=3"], ["seed.x = '3': expected a key of seed"]),
    ([SMOKE, "seed"], ["key=value, as in seed=1"]),
    ([SMOKE, "model.hidden_units=[64,"], ["With spaces in it", "'model.hidden_units=[64, 32]'"]),
    ([SMOKE, "seed = 3"], ["key=value, as in seed=1"]),
    ([SMOKE, "=3"], ["=3: found no key"]),
    ([SMOKE, "model.hidden_units=100"], ["model.hidden_units = 100: expected a list", "such as [100]"]),
    ([SMOKE, "optimizer.lr=fast"], ["'fast': expected a number", "optimizer.lr"]),
    ([SMOKE, "resume=abc"], ["resume = 'abc'", "last is the newest"]),
    (["+experiment=null"], ["experiment = 'null': expected the name of a file."]),
    ([SMOKE, "+model=null"], ["model = 'null'"]),
    ([SMOKE, "model@model=NULL"], ["model = 'NULL'"]),
    ([SMOKE, "data=false"], ["data = 'false'"]),
    ([SMOKE, "model=nan"], ["model = 'nan'"]),
    (["-m", SMOKE, "hydra/launcher=null"], ["hydra/launcher = 'null': expected the name of a file"]),
    (["-m", SMOKE, "data=5,6"], ["data = '5'"]),
    ([SMOKE, "~model", "model.depth=3"], ["model.depth = '3': expected a group model", "model=NAME"]),
    ([SMOKE, "privacy.delta.x=3"], ["privacy.delta is 1e-05, which has no keys"]),
    ([SMOKE, "hydra/job_logging=foo"], ["hydra/job_logging = 'foo'", "default, disabled"]),
    (["-m", SMOKE, "hydra/launcher=joblib", "data.rot=1"], ["a key of data: budget_id"]),
    ([SMOKE, "data.rot=1", "model=mlpp"], ["model = 'mlpp'", "Did you mean mlp?"]),
    (["+experiment=mnist_medium", "model=linear", "task=train"], ["'hidden.*'", "privacy.layers=null"]),
    (
        ["+experiment=mnist_medium", "privacy.layers.hidden.parameters=hiden.*"],
        ["'hiden.*'", "Did you mean hidden.*?"],
    ),
    *(
        ([SMOKE, f"{group}={value}"], [f"{group} = '{value}': expected the name of a file", f"~{group}"])
        for group, value in [("model", "null"), ("data", "5"), ("privacy", "-1.5e3"), ("trainer", "true")]
    ),
    ([SMOKE, "model={hidden_units:[]}"], ["model = '{hidden_units:[]}': expected the name of a file"]),
    *(
        ([SMOKE, f"~{group}"], [f"{group}: found no _target_", f"{group}=NAME"])
        for group in ("task", "data", "model", "sampling", "budget", "schedule", "trainer", "tracking")
    ),
]


@pytest.mark.parametrize(("arguments", "parts"), MISTAKES, ids=lambda value: " ".join(value)[:60])
def test_a_mistake_gets_one_screen_without_a_traceback(dpexp, outputs, capsys, arguments, parts):
    assert dpexp(*arguments) == 1
    printed = capsys.readouterr()
    for part in parts:
        assert part in printed.err
    assert "Traceback" not in printed.err
    assert "SECRET" not in printed.err + printed.out
    assert len(printed.err.splitlines()) <= 12
    assert not (outputs / "artifacts").exists()  # nothing was started


BROKEN = {
    "bracket": (b"model:\n  hidden_units: [1\n", ["mine.yaml", "line 3"]),
    "tab": (b"model:\n\tdepth: 1\n", ["mine.yaml", "line 3"]),
    "object": (b"model: !!python/name:os.system\n", ["mine.yaml", "python/name"]),
    "encoding": ("seed: 1 # größe".encode("latin-1"), ["configuration file", "utf-8"]),
    "interpolation": (b"seed: ${oops\n", ["${oops"]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_cannot_be_read_is_told_with_its_place(dpexp, outputs, tmp_path, capsys, kind):
    content, parts = BROKEN[kind]
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_bytes(b"# @package _global_\n" + content)
    assert dpexp("--config-dir", str(folder.parent), "+experiment=mine") == 1
    printed = capsys.readouterr().err
    for part in parts:
        assert part in printed
    assert "Traceback" not in printed


def test_options_of_the_users_own_folder_are_listed(dpexp, outputs, tmp_path, capsys):
    folder = tmp_path / "mine" / "model"
    folder.mkdir(parents=True)
    (folder / "mylin.yaml").write_text("_target_: mynet.Net\n", encoding="utf-8")
    assert dpexp("--config-dir", str(folder.parent), SMOKE, "model=mylni") == 1
    assert "Did you mean mylin?" in capsys.readouterr().err


def test_a_misspelt_key_in_an_experiment_file_is_an_error(dpexp, outputs, tmp_path, capsys):
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    text = "# @package _global_\nprivacy:\n  noise_mulitplier: 4\n  steps: 5\n"
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert dpexp("--config-dir", str(folder.parent), "+experiment=mine") == 1
    assert "Did you mean noise_multiplier?" in capsys.readouterr().err


def test_the_model_of_the_guide_runs_as_it_is_printed(dpexp, outputs, tmp_path):
    guide = (REPOSITORY / "docs" / "guide" / "keys.md").read_text(encoding="utf-8")
    [block] = [part for part in guide.split("```yaml\n") if "_target_: torch.nn.Linear" in part]
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    (folder / "linear.yaml").write_text(block.split("```")[0], encoding="utf-8")
    assert dpexp("--config-dir", str(folder.parent), "+experiment=linear", "privacy.steps=2") == 0


def test_the_traceback_is_there_on_request(dpexp, outputs, monkeypatch):
    from dpexp._validate import UserError
    from dpexp.cli import main

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["dpexp", SMOKE, "privacy.delta=2"])
    with pytest.raises(BaseException) as error:  # noqa: PT011
        main()
    causes = [error.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(cause, UserError) for cause in causes)


def test_several_runs_at_once(dpexp, outputs, capsys):
    from mlflow import MlflowClient

    assert dpexp("-m", SMOKE, "privacy.steps=2", "seed=0,1") == 0
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    runs = store.search_runs([experiment.experiment_id], "tags.`dpexp.kind` = 'train'")
    assert sorted(run.data.params["seed"] for run in runs) == ["0", "1"]


def test_an_interrupted_run_ends_killed(outputs):
    from mlflow import MlflowClient

    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    command = [sys.executable, "-m", "dpexp", SMOKE, "privacy.steps=1000000"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        command,
        cwd=outputs.parent,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        run = _wait_for_metric(store, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 143
    assert "SIGTERM" in errors
    assert "Traceback" not in errors
    found = store.get_run(run.info.run_id)
    assert found.info.status == "KILLED"
    assert found.data.metrics["privacy/epsilon"] > 0


def _wait_for_metric(store, process):
    deadline = time.monotonic() + 200  # most of it to import, on a busy machine
    while time.monotonic() < deadline and process.poll() is None:
        for experiment in store.search_experiments():
            for run in store.search_runs([experiment.experiment_id]):
                if "privacy/epsilon" in run.data.metrics:
                    return run
        time.sleep(1)
    raise AssertionError(f"no metric came: {process.stderr.read()}")
