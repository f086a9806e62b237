"""Runs that are stopped anywhere and go on, in this process, with a real store."""

import errno
import hashlib
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
import torch
from filelock import FileLock

from dpexp.accounting import RenyiAccountant, Repeated
from dpexp.checkpointing import Checkpoints
from dpexp.ledger import Journal
from dpexp.models import MLP
from dpexp.noise import GaussianNoise
from tests.plans import PCA, private_plan
from tests.test_training import artifact, only_run

SHORT = ["+experiment=smoke", "trainer=cpu", "trainer.val_check_interval=50", "privacy.steps=12"]
OFTEN = ["checkpoint.every_seconds=0", "tracking.every=1"]
PLAN = private_plan(
    num_examples=1438, lot_size=64, noise_multiplier=2, steps=12, epsilon=None, accountant=RenyiAccountant()
)


class Crash(BaseException):
    """The process is gone: nothing that runs on the way out may save anything."""


@pytest.fixture
def store(outputs):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")


@pytest.fixture
def trace(monkeypatch):
    """A hash of every noise vector drawn, kept apart from dpexp's own record.

    At draw `act_at`, counted from 0, `act` is called first.
    """

    class Trace:
        act_at, act = None, None
        hashes = ()

    kept = Trace()
    standard_normal = GaussianNoise.standard_normal

    def traced(self, position, size):
        if len(kept.hashes) == kept.act_at:
            kept.act_at = None
            kept.act()
        drawn = standard_normal(self, position, size)
        kept.hashes += (hashlib.sha256(np.ascontiguousarray(drawn)).hexdigest(),)
        return drawn

    monkeypatch.setattr(GaussianNoise, "standard_normal", traced)
    return kept


@pytest.fixture
def crash(monkeypatch, trace):
    """Runs the command line until it crashes before a draw."""
    from dpexp.cli import main

    def run(at, *arguments):
        trace.act_at, trace.act = at, gone
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "on_exception", lambda *args: None)
            patch.setattr("sys.argv", ["dpexp", *arguments])
            with pytest.raises(Crash):
                main()

    def gone():
        raise Crash

    return run


def weights(store, run):
    return torch.load(artifact(store, run, "model.pt"), weights_only=True)


def epsilon_of(draws, releases=0):
    """ε of so many lots drawn, by the accountant alone."""
    accountant, relation = PLAN.guarantee.accountant, PLAN.guarantee.relation
    cost = accountant.price(Repeated(PLAN.step(0).event, draws), relation)
    for _ in range(releases):
        cost = cost + accountant.price(PCA.event, relation)
    return float(accountant.epsilon(cost, 1e-5, relation))


def check_series(store, run):
    for key in run.data.metrics:
        steps = [point.step for point in store.get_metric_history(run.info.run_id, key)]
        assert len(set(steps)) == len(steps), key


def check_files(outputs):
    assert not list(outputs.rglob("*.part"))
    for file in [*outputs.rglob("*.ckpt"), *outputs.rglob("*.ledger")]:
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [0, 1, 12])
def test_a_run_crashed_before_any_draw_goes_on(dpexp, store, outputs, trace, crash, at, monkeypatch):
    features = ["features=dp_pca", "features.components=9"]  # draw 0 is its noise, 1 … 12 are the lots'
    settings = [*SHORT, *OFTEN, *features]
    crash(at, *settings)
    assert only_run(store).info.status == "KILLED"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)  # meanwhile somebody set the clock back
    assert dpexp(*settings, "resume=last") == 0
    run = only_run(store)
    final = run.data.metrics
    assert run.info.status == "FINISHED"
    assert final["final/steps"] == 12
    assert final["final/charged_lots"] == 12 + final["final/forfeited_lots"]
    made = 2 if at == 0 else 1  # the projection was not kept, or it was
    assert len(trace.hashes) == 12 + 1  # nothing was drawn twice, since the crash came before the draw
    assert final["final/epsilon"] >= epsilon_of(12, made) * (1 - 1e-12)
    if at > 1:
        assert final["final/epsilon"] > epsilon_of(12, 1)
    assert final["final/epsilon"] == final["privacy/epsilon"]
    assert len(set(trace.hashes)) == len(trace.hashes)
    check_series(store, run)
    check_files(outputs)
    assert dpexp(*settings, "resume=last") == 1


def test_lots_drawn_after_the_last_checkpoint_are_charged_and_drawn_anew(dpexp, store, trace, crash):
    crash(9, *SHORT, "tracking.every=1")  # the only checkpoint is that before the first lot
    assert dpexp(*SHORT, "tracking.every=1", "resume=last") == 0
    run = only_run(store)
    assert len(trace.hashes) == len(set(trace.hashes)) == 9 + 12
    assert run.data.metrics["final/charged_lots"] >= 9 + 12
    assert run.data.metrics["final/epsilon"] >= epsilon_of(9 + 12)
    check_series(store, run)


class WithDropout(MLP):
    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, inputs):
        return super().forward(self.drop(inputs))


@pytest.fixture
def crash_in_step(monkeypatch):
    """Runs the command line until it crashes inside an optimizer step, after the noise was drawn."""
    from dpexp.cli import main
    from dpexp.module import DPModule

    descend = DPModule._descend

    def run(at, *arguments):
        def gone(self, gradients, step):
            if step.index == at:
                raise Crash
            descend(self, gradients, step)

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "on_exception", lambda *args: None)
            patch.setattr(DPModule, "_descend", gone)
            patch.setattr("sys.argv", ["dpexp", *arguments])
            with pytest.raises(Crash):
                main()

    return run


PRIVATE = ["optimizer=adam", "privacy.clipping=adaptive", "features=dp_pca", "features.components=9"]
PLAIN = ["privacy=none", "optimizer.momentum=0.9"]


@pytest.mark.parametrize("more", [PRIVATE, PLAIN], ids=["private", "none"])
def test_a_deterministic_run_comes_to_the_same_model_however_often_it_crashes(
    dpexp,
    store,
    crash_in_step,
    more,
):
    model = "model._target_=tests.test_resume.WithDropout"
    settings = [*SHORT, *more, model, "privacy.deterministic=true", "ema=0.9"]
    crash_in_step(3, *settings, *OFTEN)
    crash_in_step(7, *settings, *OFTEN, "resume=last")
    crash_in_step(9, *settings, "resume=last")  # no further checkpoint: resumed from before step 7 again
    assert dpexp(*settings, "resume=last") == 0
    interrupted = only_run(store)
    assert dpexp(*settings) == 0
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    whole = store.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])[0]
    assert whole.info.run_id != interrupted.info.run_id
    one, two = weights(store, interrupted), weights(store, whole)
    assert one.keys() == two.keys()
    for name in ("model", "average"):
        for key, tensor in two[name].items():
            assert torch.equal(one[name][key], tensor), key
    lost = interrupted.data.metrics["final/forfeited_lots"]
    assert lost > 0 == whole.data.metrics["final/forfeited_lots"]
    if "privacy=none" not in more:
        assert interrupted.data.metrics["final/epsilon"] > whole.data.metrics["final/epsilon"]


def test_where_epsilon_limits_a_crash_shortens_training_and_the_run_says_so(
    dpexp, store, crash, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "400")
    settings = [*SHORT, "privacy.noise_multiplier=null", "privacy.epsilon=1"]
    crash(5, *settings)
    capsys.readouterr()
    assert dpexp(*settings, "resume=last") == 0
    printed = capsys.readouterr().out
    final = only_run(store).data.metrics
    assert final["final/epsilon"] <= 1
    assert final["final/steps"] == 12 - final["final/forfeited_lots"] < 12
    assert f"shortened to {int(final['final/steps'])} steps" in printed
    assert "more lots were lost, and are charged" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_inside_a_lot_waits_for_it_and_loses_no_drawn_lot(dpexp, store, trace, capsys, number):
    trace.act_at, trace.act = 5, lambda: signal.raise_signal(number)
    assert dpexp(*SHORT) == 128 + number
    said = capsys.readouterr()
    assert f"Stopped by {number.name}." in said.err
    assert "Traceback" not in said.err
    assert only_run(store).info.status == "KILLED"
    assert len(trace.hashes) == 6
    assert dpexp(*SHORT, "resume=last") == 0
    final = only_run(store).data.metrics
    assert len(set(trace.hashes)) == len(trace.hashes) == 12
    assert only_run(store).info.status == "FINISHED"
    assert final["final/steps"] == 12
    assert final["final/forfeited_lots"] <= 1  # blocks of 1, 2 and 4: the rest of the last
    told = re.findall(r"which stay charged: (\d+) ", said.out)
    assert sum(map(int, told)) == final["final/forfeited_lots"]


def test_what_cannot_be_resumed_is_refused_with_a_reason(dpexp, store, outputs, crash, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert dpexp(*SHORT, "resume=last") == 1
    assert "Start one without resume" in capsys.readouterr().err
    crash(9, *SHORT, *OFTEN)
    run_id = only_run(store).info.run_id
    ledger = outputs / "ledgers" / f"{run_id}.ledger"
    checkpoints = outputs / "checkpoints" / run_id
    shutil.copytree(outputs, outputs.with_name("kept"))

    def refusal(*overrides):
        capsys.readouterr()
        assert dpexp(*SHORT, *OFTEN, *overrides) == 1
        shutil.rmtree(outputs / "ledgers")
        shutil.rmtree(outputs / "checkpoints")
        for name in ("ledgers", "checkpoints"):
            shutil.copytree(outputs.with_name("kept") / name, outputs / name)
        return capsys.readouterr().err

    other = ["privacy.noise_multiplier=4", f"resume={run_id}"]
    assert "privacy.noise_multiplier: 2 → 4" in refusal(*other)
    said = refusal("privacy.noise_multiplier=4", "resume=last")
    assert f"newest unfinished one is {run_id}" in said
    assert "privacy.noise_multiplier: 2 → 4" in said
    assert "privacy.steps: 12 → 13" in refusal("privacy.steps=13", f"resume={run_id}")
    assert "resume = 'abc'" in refusal("resume=abc")
    ledger.unlink()
    assert "is missing" in refusal("resume=last")
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: len(whole) // 512 * 256])
    assert "older than its run" in refusal("resume=last")
    ledger.write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    assert "entry 1 is corrupt" in refusal("resume=last")
    for file in checkpoints.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert "none of them is here as it was written" in refusal("resume=last")
    with FileLock(ledger.with_suffix(".lock")):
        assert f"in use by process {os.getpid()}" in refusal("resume=last")
    newest = sorted(checkpoints.iterdir())[-1]
    newest.write_bytes(b"not a checkpoint")
    assert dpexp(*SHORT, *OFTEN, "resume=last") == 0  # the one before is taken
    assert only_run(store).data.metrics["final/forfeited_lots"] >= 1


def test_a_full_disk_ends_the_run_with_one_message_and_it_goes_on_later(
    dpexp, store, trace, capsys, monkeypatch
):
    append = Journal.append

    def full(self, kind, **fields):
        if len(trace.hashes) == 3 and fields.get("count"):
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", refuse)
                return append(self, kind, **fields)
        return append(self, kind, **fields)

    def refuse(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        assert dpexp(*SHORT) == 1
    said = capsys.readouterr().err
    assert "No space left on device. Nothing was drawn on its account." in said
    assert "Traceback" not in said
    assert only_run(store).info.status == "FAILED"
    assert len(trace.hashes) == 3
    assert dpexp(*SHORT, "resume=last") == 0
    assert only_run(store).info.status == "FINISHED"


def test_where_nothing_can_be_written_nothing_is_drawn(dpexp, outputs, trace, capsys):
    (outputs / "ledgers").write_text("a file where the folder should be", encoding="utf-8")
    assert dpexp(*SHORT) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert trace.hashes == ()


def test_a_checkpoint_is_not_chosen_by_results(dpexp, outputs, capsys):
    assert dpexp(*SHORT, "+checkpoint.monitor=val/accuracy") == 1
    assert "checkpoint.monitor" in capsys.readouterr().err


def test_checkpoints_hold_no_key_and_only_the_newest_stay(dpexp, store, outputs, monkeypatch):
    from dpexp.streams import Stream

    keys = []
    monkeypatch.setattr(Stream, "secret", lambda: keys.append(os.urandom(32)) or Stream(keys[-1]))
    assert dpexp(*SHORT, *OFTEN, "checkpoint.keep=3") == 0
    run_id = only_run(store).info.run_id
    files = sorted((outputs / "checkpoints" / run_id).iterdir())
    assert [file.name for file in files] == [f"step-{step:09d}.ckpt" for step in (10, 11, 12)]
    [key] = keys
    secrets = [key, *(Stream(key).child(name).key for name in ("noise", "lots", "torch"))]
    for file in [*outputs.rglob("*.ckpt"), *outputs.rglob("*.ledger"), *outputs.rglob("*.json")]:
        assert not any(secret in file.read_bytes() for secret in secrets)


FILTERED = [*SHORT[:-1], "budget=filter", "privacy.epsilon=1", "budget.order=20"]


def test_under_a_filter_a_finished_run_may_be_prolonged_with_the_same_epsilon(dpexp, store, trace):
    assert dpexp(*FILTERED, "privacy.steps=8") == 0
    before = only_run(store)
    assert dpexp(*FILTERED, "privacy.steps=12", "resume=last") == 0
    run = only_run(store)
    assert run.info.run_id == before.info.run_id
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final/steps"] == run.data.metrics["final/charged_lots"] == 12
    assert run.data.metrics["final/epsilon"] == before.data.metrics["final/epsilon"] == 1.0
    assert len(set(trace.hashes)) == len(trace.hashes) == 12
    check_series(store, run)


def test_but_not_with_another_order_nor_to_a_shorter_t(dpexp, store, capsys):
    assert dpexp(*FILTERED, "privacy.steps=8") == 0
    run_id = only_run(store).info.run_id
    assert dpexp(*FILTERED, "budget.order=21", "privacy.steps=12", f"resume={run_id}") == 1
    assert "plan.guarantee.accountant.order: 20 → 21" in capsys.readouterr().err
    assert dpexp(*FILTERED, "privacy.steps=8", "resume=last") == 1
    assert "is finished" in capsys.readouterr().err


def test_under_a_filter_what_a_stopped_run_has_not_drawn_is_returned(dpexp, store, trace, monkeypatch):
    trace.act_at, trace.act = 5, lambda: os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr("dpexp.ledger.pace.Pace.next_size", lambda pace: 7)
    assert dpexp(*FILTERED, "privacy.steps=12") == 143
    assert dpexp(*FILTERED, "privacy.steps=12", "resume=last") == 0
    final = only_run(store).data.metrics
    assert final["final/forfeited_lots"] == 0
    assert final["final/charged_lots"] == len(trace.hashes) == 12
