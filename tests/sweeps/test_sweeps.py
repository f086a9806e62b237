"""A multirun: one parent, a run for each job, found again, priced and closed whatever happens."""

import json
import shlex

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from dpexp.accounting import RenyiAccountant, total
from dpexp.cli import conf_dir
from dpexp.stopping import Stopped
from dpexp.sweeps import Ticket
from tests.conftest import REPOSITORY
from tests.plans import private_plan
from tests.sweeps.store import SWEEP, statuses

FOUR = [*SWEEP, "privacy.noise_multiplier=2,4", "seed=0,1"]


def test_a_grid_is_one_parent_with_a_run_for_each_job_and_the_price_of_all(dpexp, store, capsys):
    assert dpexp(*FOUR) == 0
    (parent,) = store.parents
    children = store.children(parent)
    assert statuses([parent, *children]) == ["FINISHED"] * 5
    assert parent.info.experiment_id == children[0].info.experiment_id
    assert [json.loads(child.data.tags["dpexp.overrides"])[-2:] for child in children] == [
        [f"privacy.noise_multiplier={sigma}", f"seed={seed}"] for sigma in (2, 4) for seed in (0, 1)
    ]
    assert children[3].data.tags["dpexp.command"].startswith("python -m dpexp +experiment=smoke trainer=cpu")
    assert parent.data.tags["dpexp.command"].endswith("privacy.noise_multiplier=2,4 seed=0,1")

    metrics = parent.data.metrics
    assert metrics["sweep/epsilon_all"] == metrics["sweep/epsilon_best"] == _price_of_four()
    assert (metrics["sweep/jobs"], metrics["sweep/failed"], metrics["sweep/delta"]) == (4, 0, 1e-5)
    said = capsys.readouterr().out
    assert "4 runs on the same rows together cost" in " ".join(said.split())
    assert "Not covered" not in said  # a job's statement is with its run
    assert all(child.info.run_id in said for child in children)

    runs = store.table(parent)
    for row, child, sigma in zip(runs, children, (2, 2, 4, 4), strict=True):
        plan = _smoke_plan(sigma)
        alone = float(total(plan.guarantee.open_account(plan.guarantee.accountant), list(plan.phases(2))))
        assert float(row["epsilon"]) == alone == child.data.metrics["final/epsilon"]
        assert float(row["accuracy"]) == child.data.metrics["final/accuracy"]
        assert (row["run_id"], row["command"]) == (child.info.run_id, child.data.tags["dpexp.command"])
    lines = [line for line in said[said.index("Each run alone") :].splitlines() if "FINISHED" in line]
    assert [line.replace("│", " ").split()[1:3] for line in lines] == [
        [f"privacy.noise_multiplier={sigma}", f"seed={seed}"] for sigma in (2, 4) for seed in (0, 1)
    ]


def _price_of_four():
    plans = [_smoke_plan(sigma) for sigma in (2, 2, 4, 4)]
    guarantee = plans[0].guarantee
    phases = [phase for plan in plans for phase in plan.phases(2)]
    return pytest.approx(float(total(guarantee.open_account(guarantee.accountant), phases)), rel=1e-12)


def _smoke_plan(sigma):
    keys = {"noise_multiplier": sigma, "clip_norm": 1, "lot_size": 64, "steps": 2, "epsilon": None}
    return private_plan(num_examples=1438, accountant=RenyiAccountant(), **keys)


def test_a_failed_job_stops_no_other_and_resume_does_it_alone(
    dpexp, store, failing, trained, capsys, monkeypatch
):
    failing.append(RuntimeError("The model broke."))
    assert dpexp(*FOUR) == 1
    said = capsys.readouterr()
    assert "Job 2 failed." in said.err
    assert "The model broke." in said.err
    assert "resume=last does what is left" in said.out
    (parent,) = store.parents
    assert statuses([parent, *store.children(parent)]) == [
        "FAILED",
        "FINISHED",
        "FINISHED",
        "FAILED",
        "FINISHED",
    ]
    price = parent.data.metrics["sweep/epsilon_all"]
    failed, done = store.table(parent)[2:]
    assert failed["epsilon"] == done["epsilon"]  # charged whole
    assert parent.data.metrics["sweep/failed"] == 1

    assert dpexp(*FOUR, "resume=last") == 0
    assert len(trained) == 5
    (parent,) = store.parents
    children = store.children(parent)
    assert statuses([parent, *children]) == ["FINISHED"] * 5  # the failed one went on as the same run
    lost = children[2].data.metrics["final/forfeited_lots"]
    assert lost == 1  # charged before its noise, and in no model
    assert parent.data.metrics["sweep/epsilon_all"] > price
    capsys.readouterr()

    assert dpexp(*FOUR, "resume=last") == 1
    assert "has done all its jobs" in capsys.readouterr().err
    assert dpexp(*FOUR[:-1], "seed=0,2", "resume=last") == 1
    assert "a sweep of smoke with the same overrides" in capsys.readouterr().err


def test_a_sweep_that_is_stopped_is_closed_and_goes_on(dpexp, store, failing, trained, capsys):
    failing.append(Stopped(15))
    assert dpexp(*FOUR) == 128 + 15
    (parent,) = store.parents
    assert statuses([parent, *store.children(parent)]) == ["KILLED", "FINISHED", "FINISHED", "KILLED"]
    # Whoever stops has seen results: those that did not begin count as if they had.
    assert parent.data.metrics["sweep/epsilon_all"] == _price_of_four()
    said = " ".join(capsys.readouterr().out.split())
    assert "1 did not, 1 did not begin." in said
    assert "All jobs that can run are charged whole, since they were listed beforehand." in said
    client = store.client
    client.update_run(parent.info.run_id, status="RUNNING")  # as SIGKILL leaves them
    client.update_run(store.children(parent)[2].info.run_id, status="RUNNING")
    assert dpexp(*FOUR, "resume=last") == 0
    assert len(trained) == 5
    (parent,) = store.parents
    assert statuses([parent, *store.children(parent)]) == ["FINISHED"] * 5
    assert parent.data.metrics["sweep/jobs"] == 4


def test_what_is_left_is_not_done_under_other_files(dpexp, store, failing, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "my files" / "experiment"
    folder.mkdir(parents=True)
    file = folder / "own.yaml"
    text = "# @package _global_\ndefaults:\n  - smoke\nprivacy: {noise: '${oc.env:DPEXP_NOISE}'}\n"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("DPEXP_NOISE", "default")
    flags = ["--config-dir", str(folder.parent)]
    command = [*flags, "-m", "+experiment=own", *SWEEP[2:], "privacy.noise_multiplier=2,4"]
    failing.append(RuntimeError("no"))
    assert dpexp(*command) == 1
    (parent,) = store.parents
    assert shlex.split(parent.data.tags["dpexp.command"]) == ["python", "-m", "dpexp", *command]
    child = store.children(parent)[0]
    assert shlex.split(child.data.tags["dpexp.command"])[3:6] == [*flags, "+experiment=own"]

    monkeypatch.setenv("DPEXP_NOISE", "secure")
    capsys.readouterr()
    assert dpexp(*command, "resume=last") == 1
    said = capsys.readouterr().err
    assert "job 0 was done as run" in said
    assert "another configuration" in said
    file.write_text(f"{text}optimizer: {{lr: 0.01}}\n", encoding="utf-8")
    assert dpexp(*command, "resume=last") == 1
    assert "the same overrides and configuration files" in capsys.readouterr().err


def test_private_and_other_runs_together_have_no_price(dpexp, store, capsys):
    assert dpexp(*SWEEP, "privacy=dp_sgd,none") == 0
    (parent,) = store.parents
    assert "sweep/epsilon_all" not in parent.data.metrics
    assert "1 of 2 runs are without privacy" in " ".join(capsys.readouterr().out.split())


def test_a_sweep_in_a_file_sets_multirun_and_values_and_its_jobs_can_be_made_alone(dpexp, store):
    assert dpexp(*SWEEP[1:], "+sweep=noise", "hydra.sweeper.params={privacy.noise_multiplier:'3,6'}") == 0
    (parent,) = store.parents
    overrides = json.loads(store.children(parent)[1].data.tags["dpexp.overrides"])
    assert "privacy.noise_multiplier=6" in overrides
    assert dpexp(*overrides) == 0
    assert len(store.parents) == 1  # that was a run of its own


def test_what_cannot_be_swept_is_refused_before_anything_is_recorded(dpexp, store, monkeypatch, capsys):
    assert dpexp(*SWEEP, "seed=0,1", "resume=last") == 1
    assert "There is none in the store" in capsys.readouterr().err
    assert dpexp(*SWEEP, "privacy.sigma=1,2") == 1
    assert "privacy.sigma" in capsys.readouterr().err
    assert store.runs() == []
    monkeypatch.setattr("dpexp.cli.sweep.open_sweep", lambda config: None)
    monkeypatch.setattr("dpexp.plugins.sweep_parent.open_sweep", lambda config: None)
    assert dpexp(*SWEEP, "seed=0,1") == 1
    assert "Job 1 knows of no sweep to belong to" in capsys.readouterr().err
    assert store.runs() == []
    assert Ticket.found() is None


@pytest.mark.parametrize("path", sorted((REPOSITORY / "conf" / "sweep").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_sweep_file_is_documented_and_varies_keys_that_there_are(path):
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        overrides = ["+experiment=mnist_medium", f"+sweep={path.stem}", "data.budget_id=mnist"]
        config = compose("config", overrides, return_hydra_config=True)
    assert config.hydra.mode.name == "MULTIRUN"
    for key in config.hydra.sweeper.get("params") or {}:
        assert OmegaConf.select(config, key, default="absent") != "absent", key
    page = (REPOSITORY / "docs" / "guide" / "sweeps.md").read_text(encoding="utf-8")
    assert f"`{path.stem}`" in page
    assert path.read_text(encoding="utf-8").startswith("# @package _global_\n# ")
