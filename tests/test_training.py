"""Whole runs on digits, in this process, with a real store."""

import json
import warnings

import pytest
import torch
import yaml

from dpexp.accounting import MomentsAccountant, Relation, RenyiAccountant, Repeated
from tests.plans import private_plan

TINY = ["+experiment=smoke", "trainer=cpu", "trainer.val_check_interval=5"]


@pytest.fixture
def store(outputs):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")


def only_run(store):
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    return run


def series(store, run, key):
    return {metric.step: metric.value for metric in store.get_metric_history(run.info.run_id, key)}


def artifact(store, run, name):
    return store.download_artifacts(run.info.run_id, name)


def test_epsilon_at_every_logged_step_is_that_of_so_many_lots(dpexp, store):
    assert dpexp(*TINY, "accountant=moments", "privacy.steps=30", "tracking.every=1") == 0
    run = only_run(store)
    epsilons = series(store, run, "privacy/epsilon")
    event = private_plan(num_examples=1438, lot_size=64, noise_multiplier=2, steps=30).step(0).event
    assert list(epsilons) == list(range(1, 31))
    for step, value in epsilons.items():
        accountant, relation = MomentsAccountant(), Relation.ADD_OR_REMOVE_ONE
        cost = accountant.price(Repeated(event, step), relation)
        assert value == pytest.approx(float(accountant.epsilon(cost, 1e-5, relation)), rel=1e-9)
    beside = series(store, run, "privacy/epsilon_rdp")
    assert beside[30] < epsilons[30]
    assert set(series(store, run, "privacy/delta").values()) == {1e-5}


def test_epsilon_agrees_with_an_independent_rdp_accountant(dpexp, store):
    assert dpexp(*TINY, "accountant=rdp", "privacy.steps=30", "tracking.every=10") == 0
    found = series(store, only_run(store), "privacy/epsilon")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dp-accounting's imports warn on new NumPy and absl
        from dp_accounting import dp_event
        from dp_accounting.rdp import RdpAccountant
    for step, value in found.items():
        oracle = RdpAccountant([1 + order for order in RenyiAccountant().orders])
        sampled = dp_event.PoissonSampledDpEvent(64 / 1438, dp_event.GaussianDpEvent(2.0))
        oracle.compose(dp_event.SelfComposedDpEvent(sampled, step))
        assert value == pytest.approx(oracle.get_epsilon(1e-5), rel=1e-6)


def test_a_run_leaves_params_metrics_artifacts_and_a_true_status(dpexp, store, capsys):
    assert dpexp(*TINY, "privacy.epsilon=1", "privacy.steps=20", "seed=3") == 0
    run = only_run(store)
    params, metrics = run.data.params, run.data.metrics
    assert run.info.status == "FINISHED"
    assert run.data.tags["dpexp.kind"] == "train"
    assert run.data.tags["dpexp.epsilon_kind"] == "certified"
    assert params["privacy.noise_multiplier"] == "2"
    assert params["plan.steps"] == "20"
    assert float(params["plan.sampling_probability"]) == 64 / 1438
    assert metrics["final/steps"] == 20
    assert metrics["final/epsilon"] == metrics["privacy/epsilon"] <= 1
    assert 0 < metrics["privacy/delta_at_budget"] <= 1e-5
    assert metrics["final/accuracy"] == metrics["test/accuracy"]
    assert {"val/accuracy", "val/loss", "time/step_s", "nonprivate/train_loss"} <= set(metrics)
    with open(artifact(store, run, "config.yaml"), encoding="utf-8") as file:
        assert yaml.safe_load(file)["seed"] == 3
    with open(artifact(store, run, "plan.json"), encoding="utf-8") as file:
        assert json.load(file)["steps"] == 20
    with open(artifact(store, run, "privacy_statement.txt"), encoding="utf-8") as file:
        assert "adding or removing one example" in file.read()
    saved = torch.load(artifact(store, run, "model.pt"), weights_only=True)
    assert saved["model"]["output.weight"].shape == (10, 64)
    [dataset] = run.inputs.dataset_inputs
    assert dataset.dataset.name == "digits"
    printed = capsys.readouterr().out
    assert "T = 20 lots" in printed
    assert "python -m dpexp task=ui\n" in printed


def test_the_statement_names_what_is_not_covered(dpexp, store):
    assert dpexp(*TINY, "privacy.steps=2") == 0
    with open(artifact(store, only_run(store), "privacy_statement.txt"), encoding="utf-8") as file:
        words = file.read()
    for part in ("nonprivate/", "choice of hyperparameters", "floating point", "one row", "If that fails"):
        assert part in words


def test_without_privacy_no_epsilon_appears_anywhere(dpexp, store, capsys):
    assert dpexp(*TINY, "privacy=none", "privacy.steps=20") == 0
    run = only_run(store)
    printed = capsys.readouterr().out
    assert not any("privacy/" in key or "epsilon" in key for key in run.data.metrics)
    assert "ε" not in printed
    assert "epsilon" not in printed
    assert run.data.tags["dpexp.private"] == "false"
    assert "dpexp.epsilon_kind" not in run.data.tags


def test_keys_that_privacy_none_ignores_are_listed(dpexp, outputs, capsys):
    assert dpexp(*TINY, "privacy=none", "privacy.steps=3", "privacy.clip_norm=7") == 0
    assert "privacy.clip_norm=7" in capsys.readouterr().out


@pytest.mark.parametrize("sigma", [1000])
def test_overwhelming_noise_learns_nothing(dpexp, store, sigma):
    assert dpexp(*TINY, f"privacy.noise_multiplier={sigma}") == 0
    assert only_run(store).data.metrics["final/accuracy"] < 0.3


def test_without_privacy_600_lots_reach_90_percent(dpexp, store):
    assert dpexp("+experiment=smoke", "privacy=none", "privacy.steps=600", "tracking.every=100") == 0
    assert only_run(store).data.metrics["final/accuracy"] >= 0.9


def test_a_deterministic_run_repeats_and_says_that_it_guarantees_nothing(dpexp, store, capsys):
    for _ in range(2):
        assert dpexp(*TINY, "privacy.deterministic=true", "privacy.steps=10") == 0
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    one, two = store.search_runs([experiment.experiment_id])
    assert one.data.metrics["test/loss"] == two.data.metrics["test/loss"]
    assert "NOT A" in capsys.readouterr().out


def test_lots_and_noise_do_not_follow_the_seed(dpexp, store):
    for _ in range(2):
        assert dpexp(*TINY, "privacy.steps=10", "seed=5") == 0
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    one, two = store.search_runs([experiment.experiment_id])
    assert one.data.metrics["test/loss"] != two.data.metrics["test/loss"]


def test_metrics_of_a_private_test_split_are_nonprivate(dpexp, store, capsys):
    assert dpexp(*TINY, "privacy.steps=10", "data.test_split=private") == 0
    metrics = only_run(store).data.metrics
    assert "nonprivate/final/accuracy" in metrics
    assert "nonprivate/val/accuracy" in metrics
    assert not {"final/accuracy", "test/accuracy", "val/accuracy"} & set(metrics)
    printed = capsys.readouterr().out
    assert "the test split is private" in printed
    assert "%" not in printed  # no accuracy, not even on the progress bar


def test_a_validation_split_is_cut_from_the_training_rows_and_private(dpexp, store):
    overrides = ["data.validation=200", "data.num_examples=1238", "privacy.steps=10"]
    assert dpexp(*TINY, *overrides) == 0
    metrics = only_run(store).data.metrics
    assert "nonprivate/val/accuracy" in metrics
    assert "final/accuracy" in metrics


def test_groups_with_own_lots_and_schedules_run_from_the_command_line(dpexp, store):
    layers = (
        "{hidden:{parameters:'hidden.*',lot_size:32},"
        "output:{parameters:'output.*',clip_norm:{_target_:dpexp.schedules.Linear,start:2,end:1,over:5}}}"
    )
    assert dpexp(*TINY, f"privacy.layers={layers}", "privacy.steps=10") == 0
    assert only_run(store).info.status == "FINISHED"


def test_a_failing_run_ends_failed_and_keeps_what_it_spent(store, monkeypatch):
    from dpexp.cli import main
    from dpexp.sanitizer import Sanitizer

    release = Sanitizer.release

    def fail_late(self, sums, step, *within):
        if step.index == 7:
            raise ZeroDivisionError("the disk is on fire")
        return release(self, sums, step, *within)

    monkeypatch.setattr(Sanitizer, "release", fail_late)
    monkeypatch.setattr("sys.argv", ["dpexp", *TINY, "tracking.every=5"])
    with pytest.raises(ZeroDivisionError):
        main()
    run = only_run(store)
    assert run.info.status == "FAILED"
    assert max(series(store, run, "privacy/epsilon")) == 8  # the eighth lot was charged before it failed


def test_a_run_that_fails_after_a_release_says_what_it_spent(store, monkeypatch):
    from dpexp.cli import main
    from dpexp.features import DPPCA

    def fail(self, inputs, noise):
        raise ZeroDivisionError("after the charge, before the first lot")

    monkeypatch.setattr(DPPCA, "fit", fail)
    features = ["features=dp_pca", "features.components=9"]
    monkeypatch.setattr("sys.argv", ["dpexp", *TINY, *features])
    with pytest.raises(ZeroDivisionError):
        main()
    run = only_run(store)
    assert run.info.status == "FAILED"
    assert series(store, run, "privacy/epsilon")[0] == pytest.approx(0.5519, abs=1e-3)


def keys_of_streams(dpexp, monkeypatch, *arguments):
    """The keys of every stream that a run draws from, and torch's seed during training."""
    from dpexp import training

    keys = {}

    def watch(name, original):
        def made(*args, **keywords):
            noise = keywords.get("noise")
            keys[f"{name}.noise"] = noise.stream.key
            if "lots" in keywords:
                keys[f"{name}.lots"] = keywords["lots"].key
            return original(*args, **keywords)

        return made

    def fit(*args):
        keys["torch"] = torch.initial_seed()
        return original_fit(*args)

    original_fit = training.fit
    with monkeypatch.context() as patch:
        patch.setattr(training, "DPModule", watch("module", training.DPModule))
        patch.setattr(training, "LotDataModule", watch("data", training.LotDataModule))
        patch.setattr(training, "fit", fit)
        assert dpexp(*TINY, "privacy.steps=2", *arguments) == 0
    return keys


def test_every_random_stream_is_its_own_and_none_follows_the_seed(dpexp, outputs, monkeypatch):
    one = keys_of_streams(dpexp, monkeypatch, "seed=5")
    two = keys_of_streams(dpexp, monkeypatch, "seed=5")
    keyed = keys_of_streams(dpexp, monkeypatch, "seed=5", "privacy.deterministic=true")
    assert set(one) == {"module.noise", "data.noise", "data.lots", "torch"}
    everything = [*one.values(), *two.values(), *keyed.values()]
    assert len(set(everything)) == len(everything) == 12


def test_a_deterministic_run_is_keyed_by_the_seed(dpexp, outputs, monkeypatch):
    one, two, other = (
        keys_of_streams(dpexp, monkeypatch, f"seed={seed}", "privacy.deterministic=true")
        for seed in (5, 5, 6)
    )
    assert one == two
    assert not set(one.values()) & set(other.values())


def test_the_logged_noise_multiplier_is_the_one_used(dpexp, store):
    assert dpexp(*TINY, "privacy.noise_multiplier=null", "privacy.epsilon=1", "privacy.steps=20") == 0
    logged = float(only_run(store).data.params["plan.noise_multiplier"])
    plan = private_plan(
        num_examples=1438,
        lot_size=64,
        noise_multiplier=logged,
        steps=None,
        epsilon=1,
        accountant=RenyiAccountant(),
    )
    assert plan.steps >= 20  # logged as no more than it was


def test_lots_charged_drawn_and_stepped_must_be_those_planned():
    from dpexp import training
    from dpexp.ledger import Ledger

    with pytest.raises(RuntimeError, match="must be equal"):
        training._check_counts(private_plan(steps=3), Ledger(private_plan(steps=3)), 0, drawn=2, stepped=3)


def test_adaptive_clipping_runs_says_so_and_records_its_public_clip_norm(dpexp, store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # so that the table is not wrapped
    settings = ["privacy.clipping=adaptive", "privacy.adaptive.quantile=0.8", "privacy.deterministic=true"]
    paths = []
    for _ in range(2):
        assert dpexp(*TINY, *settings, "privacy.steps=10", "tracking.every=1") == 0
        assert "0.8 quantile of the norms" in capsys.readouterr().out
        [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
        run = store.search_runs([experiment.experiment_id], order_by=["start_time DESC"])[0]
        paths.append(series(store, run, "privacy/clip_norm_all"))
    assert list(paths[0]) == list(range(1, 11))
    assert len(set(paths[0].values())) == 10
    assert paths[0] == paths[1]
    with open(artifact(store, run, "plan.json"), encoding="utf-8") as file:
        [group] = json.load(file)["groups"]
    assert group["clipping"] == "adaptive"


def test_automatic_clipping_runs_and_says_so(dpexp, store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert dpexp(*TINY, "privacy.clipping=automatic", "privacy.steps=3") == 0
    assert "AUTO-S" in capsys.readouterr().out
    assert not [key for key in only_run(store).data.metrics if "clip_norm" in key]


def test_privacy_none_takes_the_keys_of_clipping(dpexp, store):
    keys = ["privacy.clipping=adaptive", "privacy.adaptive.quantile=0.8"]
    assert dpexp(*TINY, "privacy=none", *keys, "privacy.steps=2") == 0


def test_the_last_lot_has_accuracy_and_epsilon_however_short_the_run(dpexp, store):
    assert dpexp("+experiment=smoke", "privacy.steps=7", "trainer.val_check_interval=100") == 0
    run = only_run(store)
    assert set(series(store, run, "val/accuracy")) == {7}
    assert 7 in series(store, run, "privacy/epsilon")


def test_each_step_has_one_point_and_the_first_is_what_came_before_the_lots(dpexp, store):
    features = ["features=dp_pca", "features.components=9"]
    assert dpexp(*TINY, *features, "privacy.steps=10", "accountant=moments") == 0
    run = only_run(store)
    for key in ("privacy/epsilon", "privacy/epsilon_rdp", "val/accuracy"):
        steps = [point.step for point in store.get_metric_history(run.info.run_id, key)]
        assert len(steps) == len(set(steps)), key
    assert series(store, run, "privacy/epsilon")[0] == pytest.approx(0.6966, abs=1e-3)
    assert "dpexp.version" in run.data.tags


def test_secure_noise_runs_and_says_so(dpexp, store, capsys):
    assert dpexp(*TINY, "privacy.noise=secure", "privacy.steps=5") == 0
    assert "ChaCha20" in capsys.readouterr().out
    assert only_run(store).info.status == "FINISHED"


def test_the_statement_names_the_counts_of_adaptive_clipping(dpexp, store):
    assert dpexp(*TINY, "privacy.clipping=adaptive", "privacy.steps=2") == 0
    with open(artifact(store, only_run(store), "privacy_statement.txt"), encoding="utf-8") as file:
        assert "noisy counts that move the clip norm of all" in file.read()
