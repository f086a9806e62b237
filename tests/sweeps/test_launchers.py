"""Launchers: the same numbers from each, also on a store that the jobs find empty.

`pip install -e ".[test,ray,submitit]" && python -m pytest -m launchers`; a launcher that is missing fails.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.sweeps.store import Store, statuses

pytestmark = [pytest.mark.launchers, pytest.mark.timeout(900)]

NINE = [
    *("+experiment=smoke", "trainer=cpu", "privacy.steps=20", "tracking.every=1"),
    *("privacy.deterministic=true", "privacy.noise_multiplier=2,4,8", "seed=0,1,2"),
]
LAUNCHERS = {
    "basic": [],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "ray": ["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"],
    "submitit_local": ["hydra/launcher=submitit_local"],
}


def start(folder, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-m", "dpexp", "-m", *arguments]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return figures(tmp_path_factory.mktemp("basic"), "basic")


def figures(folder, launcher):
    """What a fresh store holds of the nine jobs after the launcher ran them."""
    assert start(folder, *LAUNCHERS[launcher], *NINE).wait() == 0, (folder / "log.txt").read_text()[-3000:]
    store = Store(folder / "outputs")
    (parent,) = store.parents
    children = store.children(parent)
    assert statuses([parent, *children]) == ["FINISHED"] * 10
    assert len(store.runs()) == 10
    return parent.data.metrics, [_numbers(store, child) for child in children]


def _numbers(store, child):
    timeless = {key: value for key, value in child.data.metrics.items() if not key.startswith("time/")}
    points = store.client.get_metric_history(child.info.run_id, "privacy/epsilon")
    return timeless, [(point.step, point.value) for point in points]


@pytest.mark.parametrize("launcher", ["joblib", "ray", "submitit_local"])
def test_every_launcher_gives_the_same_numbers_and_loses_none(tmp_path, reference, launcher):
    assert figures(tmp_path, launcher) == reference
    assert all(len(points) == 20 for _, points in reference[1])


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_killed_sweep_does_only_what_is_missing(tmp_path, template_store, launcher):
    arguments = [
        *LAUNCHERS[launcher],
        *("+experiment=smoke", "trainer=cpu", "privacy.steps=300", "privacy.noise_multiplier=4,8"),
        *("checkpoint.every_seconds=0", "seed=0,1"),
    ]
    (tmp_path / "outputs").mkdir()
    shutil.copy(template_store, tmp_path / "outputs" / "mlflow.db")
    process = start(tmp_path, *arguments)
    store = Store(tmp_path / "outputs")
    while not _one_done_and_one_under_way(store):
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
        time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (parent,) = store.parents
    before = {child.info.run_id: child.info for child in store.children(parent)}
    assert "RUNNING" in statuses([parent]) + statuses(store.children(parent))

    assert start(tmp_path, *arguments, "resume=last").wait() == 0, (tmp_path / "log.txt").read_text()[-3000:]
    (parent,) = store.parents
    children = store.children(parent)
    assert {run.info.status for run in store.runs()} <= {"FINISHED", "KILLED"}
    finished = [child for child in children if child.info.status == "FINISHED"]
    assert sorted(int(child.data.tags["dpexp.job"]) for child in finished) == [0, 1, 2, 3]
    for child in finished:
        info = before.get(child.info.run_id)
        if info is not None and info.status == "FINISHED":
            assert child.info.end_time == info.end_time  # not touched again
    assert parent.data.metrics["sweep/finished"] == 4


def _one_done_and_one_under_way(store):
    parents = store.parents
    children = store.children(parents[0]) if parents else []
    under_way = [c for c in children if c.info.status == "RUNNING" and "privacy/epsilon" in c.data.metrics]
    return bool(under_way) and any(child.info.status == "FINISHED" for child in children)
