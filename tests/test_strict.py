"""Strict mode: what leaves a run is exactly what is listed, whatever else a run would have told."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp.data import Digits
from dpexp.data.splits import Examples
from dpexp.noise import SecureGaussianNoise
from dpexp.streams import Stream
from dpexp.strict import METRICS, CoveredRun
from tests.test_training import TINY, artifact, only_run, store  # noqa: F401

STRICT = [*TINY, "strict=true", "privacy.steps=12", "tracking.every=1"]
PRIVATE = ["data.validation=200", "data.num_examples=1238", "data.test_split=private"]
EPSILON = {
    "privacy/epsilon",
    "privacy/delta",
    "privacy/epsilon_pld",
    "privacy/epsilon_moments",
    "privacy/epsilon_strong_composition",
    "estimate/epsilon_exact",
    "asymptotic/epsilon_gdp",
    "final/epsilon",
    "final/delta",
    "final/steps",
    "final/charged_lots",
    "final/forfeited_lots",
}
PUBLIC = {"val/accuracy", "val/loss", "test/accuracy", "test/loss", "final/accuracy"}
TAGS = {
    "dpexp.kind",
    "dpexp.private",
    "dpexp.experiment",
    "dpexp.version",
    "dpexp.python",
    "dpexp.torch",
    "dpexp.numpy",
    "dpexp.epsilon_kind",
    "dpexp.accountant",
    "dpexp.strict",
    "dpexp.seed",
    "dpexp.plan_hash",
    "dpexp.ledger_head",
    "dpexp.budget",
    "dpexp.command",
    "dpexp.overrides",
    "mlflow.source.name",
    "mlflow.runName",
}


@pytest.mark.parametrize(("splits", "public"), [([], PUBLIC), (PRIVATE, set())], ids=["public", "private"])
def test_a_strict_run_stores_exactly_what_is_covered(dpexp, store, capsys, splits, public):  # noqa: F811
    assert dpexp(*STRICT, *splits) == 0
    run = only_run(store)
    assert set(run.data.metrics) == EPSILON | public
    assert set(run.data.tags) == TAGS
    assert not run.inputs.dataset_inputs
    stored = {item.path for item in store.list_artifacts(run.info.run_id)}
    assert stored == {"config.yaml", "plan.json", "privacy_statement.txt", "model.pt"}
    [output] = run.outputs.model_outputs
    assert store.get_logged_model(output.model_id).name == "model"
    with open(artifact(store, run, "config.yaml"), encoding="utf-8") as file:
        assert "noise: secure" in file.read()
    solved = {"plan.steps", "plan.sampling_probability", "plan.noise_multiplier"}
    listed = "task data features model privacy sampling accountant budget optimizer schedule trainer tracking"
    groups = listed.split()
    roots = {"seed", "strict", "resume", "compile", "physical_batch_size", "memory_mb", "ema", "views"}
    roots |= {"checkpoint.every_seconds", "checkpoint.keep"}
    assert {p for p in run.data.params if p.partition(".")[0] not in groups} == solved | roots
    with open(artifact(store, run, "privacy_statement.txt"), encoding="utf-8") as file:
        words = file.read()
    assert "Strict: no figure" in words
    assert ("private rows of validation and test were not evaluated" in words) == (not public)
    assert "%" not in capsys.readouterr().out or public
    history = [m for key in run.data.metrics for m in store.get_metric_history(run.info.run_id, key)]
    assert len({metric.timestamp for metric in history}) == 1  # times of lots would tell their sizes


def test_the_noise_of_a_strict_run_is_secure_whatever_is_set(dpexp, outputs, monkeypatch, capsys):
    from dpexp import training

    made = []
    module = training.DPModule
    monkeypatch.setattr(training, "DPModule", lambda **k: made.append(k["noise"]) or module(**k))
    assert dpexp(*STRICT, "privacy.noise=default") == 0
    assert [type(noise) for noise in made] == [SecureGaussianNoise]
    assert "whatever was set" in " ".join(capsys.readouterr().out.split())


def test_private_rows_are_not_evaluated_at_all(dpexp, outputs, monkeypatch):
    from dpexp.module import DPModule

    monkeypatch.setattr(DPModule, "validation_step", lambda *_: pytest.fail("private rows were evaluated"))
    monkeypatch.setattr(DPModule, "test_step", lambda *_: pytest.fail("private rows were evaluated"))
    assert dpexp(*STRICT, *PRIVATE) == 0


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("privacy=none", "no guarantee to be strict about"),
        ("privacy.deterministic=true", "anyone can draw them again"),
        ("strict=yes please", "true or false"),
        ("+trainer.profiler=simple", "absent with strict=true"),
    ],
)
def test_what_cannot_be_strict_is_refused(dpexp, outputs, capsys, override, reason):
    assert dpexp(*STRICT, override) == 1
    assert reason in capsys.readouterr().err


class Heard:
    run_id = experiment_id = "x"

    def __init__(self):
        self.heard = {}

    def record(self, step, metrics, *, timestamp=None):
        self.heard |= metrics

    log_params = set_tags = lambda self, told: self.heard.update(told)

    def log_text(self, text, name):
        self.heard[name] = text

    def log_artifact(self, path):
        self.heard[path.name] = path


NAMES = st.one_of(
    st.text("abn/_.psilo\n", max_size=12),
    st.sampled_from([pattern.replace("\\w+", "x") for pattern in METRICS]),
    st.sampled_from(["privacy/epsilon", "val/loss", "final/steps", "time/step_s", "memory/peak_mb"]),
)


@given(NAMES, st.sampled_from(["nonprivate/", "nonprivate/final/", "time/", "memory/", "Nonprivate/"]))
def test_nothing_below_nonprivate_ever_passes(name, prefix):
    run = Heard()
    strict = CoveredRun(run, {"seed": 0})
    strict.record(1, {prefix + name: 1.0, f"{name}/nonprivate": 1.0, name + "\nprivacy/epsilon": 1.0})
    strict.set_tags({prefix + name: "1"})
    strict.log_params({prefix + name: 1})
    strict.log_text("words", prefix + name)
    assert run.heard == {}


def test_a_metric_that_nobody_has_listed_is_dropped():
    run = Heard()
    CoveredRun(run, {}).record(1, {"privacy/epsilon": 1.0, "train/loss": 2.0, "privacy/lots_of_row_7": 3.0})
    assert run.heard == {"privacy/epsilon": 1.0}


def printed_by(dpexp, outputs, capsys, monkeypatch, rows):
    """Everything on the screen and in log files of a run on so many training rows, without names of runs."""
    load = Digits.load

    def fewer(self):
        splits = load(self)
        train = Examples(inputs=splits.train.inputs[:rows], targets=splits.train.targets[:rows])
        return replace(splits, train=train)

    monkeypatch.setattr(Digits, "load", fewer)
    assert dpexp(*STRICT, *PRIVATE) == 0
    monkeypatch.setattr(Digits, "load", load)
    said = capsys.readouterr()
    logs = "".join(path.read_text() for path in sorted((outputs / "runs").rglob("*.log"))[-1:])
    return re.sub(
        r"[0-9a-f]{32}|\d{4}-\d\d-\d\d[ _][\d:,.-]+|experiments/\d+", "…", said.out + said.err + logs
    )


def test_the_screen_does_not_depend_on_how_many_rows_there_are(dpexp, outputs, capsys, monkeypatch):
    monkeypatch.setattr(Stream, "secret", classmethod(lambda cls: Stream(bytes(32))))
    one = printed_by(dpexp, outputs, capsys, monkeypatch, 1238)
    assert "lots" in one
    assert one == printed_by(dpexp, outputs, capsys, monkeypatch, 1237)
    assert one == printed_by(dpexp, outputs, capsys, monkeypatch, 40)


def test_only_without_strict_the_number_of_rows_is_warned_of(dpexp, outputs, capsys):
    for strict, warned in (("true", False), ("false", True)):
        assert dpexp(*TINY, "privacy.steps=2", "data.num_examples=1500", f"strict={strict}") == 0
        said = capsys.readouterr().out + "".join(path.read_text() for path in outputs.rglob("*.log"))
        assert ("has 1438 training rows" in said) == warned
