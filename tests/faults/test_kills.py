"""Real processes, killed at random moments: `python -m pytest -m faults`. Figures: docs/design/ledger.md."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from dpexp.accounting import RenyiAccountant, Repeated
from tests.conftest import REPOSITORY
from tests.plans import private_plan

pytestmark = [pytest.mark.faults, pytest.mark.timeout(0)]

KILLS = int(os.environ.get("DPEXP_KILLS", "200"))
STEPS = 150
RUN = [
    "+experiment=smoke",
    "trainer=cpu",
    "trainer.val_check_interval=1000",
    f"privacy.steps={STEPS}",
    "checkpoint.every_seconds=0.05",
    "tracking.every=5",
]
PLAN = private_plan(
    num_examples=1438,
    lot_size=64,
    noise_multiplier=2,
    steps=STEPS,
    epsilon=None,
    accountant=RenyiAccountant(),
)


def epsilon_of(draws):
    """ε of so many lots drawn, by the accountant alone."""
    accountant, relation = PLAN.guarantee.accountant, PLAN.guarantee.relation
    return float(
        accountant.epsilon(accountant.price(Repeated(PLAN.step(0).event, draws), relation), 1e-5, relation)
    )


class Server:
    """A process that has imported everything, and forks one child for each run."""

    def __init__(self, folder):
        settings = {"PYTHONPATH": str(REPOSITORY), "FAULTS_CHILDREN": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.traced"],
            cwd=folder,
            env=os.environ | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, trace, *arguments):
        self._process.stdin.write(" ".join([str(trace), *arguments]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def ended(self):
        return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@pytest.fixture
def server(outputs):
    served = Server(outputs.parent)
    yield served
    served.close()


@pytest.fixture
def store(outputs):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")


def lines(trace):
    return trace.read_text(encoding="utf-8").split() if trace.exists() else []


def killed_somewhere(server, trace, moment, *arguments):
    """Starts a run and kills it `moment` seconds after its first draw, or as many before; its exit code."""
    before = len(lines(trace))
    child = server.start(trace, *arguments)
    deadline = time.monotonic() + 120
    while moment >= 0 and len(lines(trace)) == before and time.monotonic() < deadline:
        if not os.path.exists(f"/proc/{child}") or _is_dead(child):
            break
        time.sleep(0.005)
    time.sleep(abs(moment))
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return server.ended()


def _is_dead(child):
    with open(f"/proc/{child}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def the_run(store):
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    return run


def check(store, outputs, trace, steps=STEPS):
    """After a run came to its end: what was charged covers what was drawn, and all is whole."""
    run, drawn = the_run(store), lines(trace)
    final = run.data.metrics
    assert run.info.status == "FINISHED"
    assert len(set(drawn)) == len(drawn)
    assert final["final/steps"] == steps
    assert final["final/charged_lots"] >= len(drawn)
    assert final["final/epsilon"] >= epsilon_of(len(drawn)) * (1 - 1e-9)
    for key in final:
        points = [point.step for point in store.get_metric_history(run.info.run_id, key)]
        assert len(points) == len(set(points)), key
    return len(drawn), int(final["final/charged_lots"])


def test_killed_at_random_moments_and_resumed_each_time(server, store, outputs, tmp_path, capsys):
    rng, trace = random.Random(7), tmp_path / "trace"
    began, kills, runs, figures = time.monotonic(), 0, 0, []
    while kills < KILLS:
        trace.unlink(missing_ok=True)
        resume = []
        for _ in range(10):  # of one run
            moment = rng.choice([-rng.uniform(0, 1.5), rng.uniform(0, 0.4), rng.uniform(0, 0.4)])
            code = killed_somewhere(server, trace, moment, *RUN, *resume)
            kills += code == -signal.SIGKILL
            if code == 0:
                break
            assert code == -signal.SIGKILL, (tmp_path / "trace.log").read_text(encoding="utf-8")[-3000:]
            resume = ["resume=last"] if _resumable(store, outputs) else []
            if not resume:
                _forget(store, outputs)
        if code != 0:
            server.start(trace, *RUN, *resume)
            assert server.ended() == 0, (tmp_path / "trace.log").read_text(encoding="utf-8")[-3000:]
        figures.append(check(store, outputs, trace))
        runs += 1
        _forget(store, outputs)
    drawn, charged = map(sum, zip(*figures, strict=True))
    with capsys.disabled():
        print(
            f"\n{kills} kills in {runs} runs of {STEPS} lots: {drawn} lots drawn, {charged} charged, "
            f"{time.monotonic() - began:.0f} s"
        )


def _resumable(store, outputs):
    """Whether the run came far enough to exist: before its ledger nothing can have been drawn."""
    experiments = [e for e in store.search_experiments() if e.name != "Default"]
    runs = store.search_runs([e.experiment_id for e in experiments]) if experiments else []
    return any(
        (outputs / "ledgers" / f"{run.info.run_id}.ledger").exists() and "dpexp.plan_hash" in run.data.tags
        for run in runs
    )


def _forget(store, outputs):
    for experiment in store.search_experiments():
        for run in store.search_runs([experiment.experiment_id]):
            store.delete_run(run.info.run_id)
    for name in ("ledgers", "checkpoints"):
        shutil.rmtree(outputs / name, ignore_errors=True)


def test_a_deterministic_run_killed_five_times_comes_to_the_model_of_a_whole_one(
    server, store, outputs, tmp_path
):
    import torch

    settings, trace, resume = [*RUN, "privacy.deterministic=true", "ema=0.9"], tmp_path / "trace", []
    for _ in range(5):
        if killed_somewhere(server, trace, 0.15, *settings, *resume) == 0:
            break
        resume = ["resume=last"]
    server.start(trace, *settings, *resume)
    server.ended()
    one = torch.load(store.download_artifacts(the_run(store).info.run_id, "model.pt"), weights_only=True)
    _forget(store, outputs)
    server.start(tmp_path / "whole", *settings)
    assert server.ended() == 0
    two = torch.load(store.download_artifacts(the_run(store).info.run_id, "model.pt"), weights_only=True)
    for name in ("model", "average"):
        assert all(torch.equal(one[name][key], tensor) for key, tensor in two[name].items())


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_signals_from_outside(server, store, outputs, tmp_path, signals):
    trace = tmp_path / "trace"
    child = server.start(trace, *RUN, "privacy.steps=100000")
    while len(lines(trace)) < 20:
        time.sleep(0.01)
    for number in signals:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
            time.sleep(0.001)
    assert server.ended() == 128 + signals[0]
    status = the_run(store).info.status
    assert status == "KILLED" or (len(signals) == 2 and status == "RUNNING")
    ledger = next((outputs / "ledgers").glob("*.ledger"))
    before, drawn = ledger.stat().st_size, len(lines(trace))
    server.start(trace, *RUN, "privacy.steps=100000", "resume=last")
    while len(lines(trace)) == drawn:
        time.sleep(0.01)
    os.kill(_last_process(ledger), signal.SIGTERM)
    assert server.ended() == 143
    assert ledger.stat().st_size > before
    assert len(set(lines(trace))) == len(lines(trace))


def _last_process(ledger):
    from dpexp.ledger.journal import _entries_of

    return _entries_of(ledger)[0][-1].process


def test_two_processes_cannot_spend_for_one_run(server, store, outputs, tmp_path):
    trace = tmp_path / "trace"
    child = server.start(trace, *RUN, "privacy.steps=100000")
    while not lines(trace):
        time.sleep(0.01)
    second = subprocess.run(
        [
            *(sys.executable, "-m", "tests.faults.traced", str(tmp_path / "second")),
            *(*RUN, "privacy.steps=100000", "resume=last"),
        ],
        cwd=outputs.parent,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert f"in use by process {child}" in second.stderr
    assert not lines(tmp_path / "second")
    os.kill(child, signal.SIGTERM)
    assert server.ended() == 143


def test_a_full_disk(server, store, outputs, tmp_path):
    """The kernel refuses to let any file grow beyond a limit that the ledger meets."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from tests.faults import traced; import dpexp.ledger.journal as j; write = j.Journal._write\n"
        "def limited(self, offset, data):\n"
        "    soft = 2048 if offset >= 1792 else resource.RLIM_INFINITY\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))\n"
        "    try: write(self, offset, data)\n"
        "    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "j.Journal._write = limited; traced.main(sys.argv[1], sys.argv[2:])"
    )
    trace = tmp_path / "trace"
    full = subprocess.run(
        [sys.executable, "-c", code, str(trace), *RUN],
        cwd=outputs.parent,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 1, full.stderr
    assert "File too large" in full.stderr
    assert the_run(store).info.status == "FAILED"
    server.start(trace, *RUN, "resume=last")
    assert server.ended() == 0
    check(store, outputs, trace)
