"""Drawn once, tried once, released once: whatever happens in between."""

import signal
from dataclasses import replace

import pytest

from dpexp._validate import UserError
from dpexp.data import Digits
from dpexp.experiment import Experiment, Whole
from dpexp.lots import FixedSizeSampling
from dpexp.selection import Poisson, Score, record, select
from dpexp.selection.record import Record, Trial
from dpexp.selection.trial import _inside, _PrivateRun
from dpexp.selection.words import statement
from dpexp.stopping import Stopped
from tests.selection.conftest import records, runs_in

pytestmark = pytest.mark.usefixtures("outputs", "private")


def artifacts(store, run):
    return {item.path for item in store.list_artifacts(run.info.run_id)}


def test_the_best_is_released_with_its_point_and_the_price_of_all(store, declared, trials, training):
    trials(4)
    tried = training([0.5, 0.8, 0.7, 0.1])
    selected = select(declared)
    (run,) = runs_in(store)
    lr, sigma = tried.points[1]
    assert selected.overrides == (f"optimizer.lr={lr}", f"privacy.noise_multiplier={sigma}")
    assert selected.accuracy == run.data.metrics["final/accuracy"] == run.data.metrics["val/accuracy"] == 0.8
    assert run.data.params["optimizer.lr"] == str(lr)
    assert run.data.tags["dpexp.kind"] == "sweep"
    assert run.data.tags["dpexp.selection"] == run.data.tags["dpexp.released"] == "true"
    assert run.data.tags["dpexp.sweep"] == run.info.run_id == selected.run_id
    assert run.data.metrics["sweep/epsilon_best"] == run.data.metrics["final/epsilon"] == selected.epsilon
    assert selected.epsilon == float(declared.cost.whole) > 1
    # Of the trial itself neither series nor ε, nor what would let it be resumed.
    assert not {"privacy/epsilon", "nonprivate/train_loss", "sweep/jobs"} & set(run.data.metrics)
    assert not {"dpexp.ledger_head", "dpexp.plan_hash"} & set(run.data.tags)
    assert artifacts(store, run) == {"model.pt", "privacy_statement.txt", "selection.json"}
    with open(store.download_artifacts(run.info.run_id, "model.pt"), encoding="utf-8") as file:
        assert file.read() == "0.8"
    with open(store.download_artifacts(run.info.run_id, "privacy_statement.txt"), encoding="utf-8") as file:
        assert file.read() == selected.statement


def test_a_failed_trial_is_the_worst_and_is_not_retried(store, declared, private, trials, training):
    trials(4)
    tried = training([RuntimeError("memory"), 0.2, float("nan"), ValueError("diverged")])
    assert select(declared).accuracy == 0.2
    assert len(tried.points) == 4
    assert [trial.state for trial in records(private)[0].trials] == ["failed", "scored", "failed", "failed"]


def test_equal_scores_are_decided_by_chance_drawn_beforehand(trials):
    trials(3)
    drawn = [Record.drawn(Poisson(mean_trials=3), 2, terms="", experiment="") for _ in range(200)]
    assert len({trial.tie for one in drawn for trial in one.trials}) == 600
    winners = set()
    for one in drawn:
        for number in range(3):
            one = one.ended(number, 0.5)
        winners.add(one.best)
    assert winners == {0, 1, 2}  # that one of them never wins: 3·(2/3)²⁰⁰, once in 10³⁴
    assert {trial.point for one in drawn for trial in one.trials} == {0, 1}


def test_an_interrupted_selection_goes_on_with_the_same_number(
    store, declared, private, trials, training, monkeypatch
):
    trials(5)
    tried = training([0.5, 0.4, Stopped(signal.SIGTERM)])
    with pytest.raises(Stopped):
        select(declared)
    assert runs_in(store) == []  # nothing is released
    before = records(private)[0]
    assert [trial.state for trial in before.trials] == ["scored", "scored", "begun", "waiting", "waiting"]

    def never_again(law):
        raise AssertionError("K is drawn once")

    monkeypatch.setattr(record, "draw", never_again)
    with pytest.raises(UserError, match="resume = None: expected last"):
        select(declared)
    more = training([0.3, 0.45])
    assert select(declared, resume="last").accuracy == 0.5
    assert (len(tried.points), len(more.points)) == (3, 2)
    after = records(private)[0]
    assert [trial.point for trial in after.trials] == [trial.point for trial in before.trials]
    assert after.trials[2].state == "failed"
    assert [run.info.status for run in runs_in(store)] == ["FINISHED"]
    with pytest.raises(UserError, match="There is none"):  # it is at its end
        select(declared, resume="last")


def test_a_selection_goes_on_under_its_own_terms_only(declared, trials, training):
    trials(2)
    training([Stopped(signal.SIGINT)])
    with pytest.raises(Stopped):
        select(declared)
    other = replace(declared, laws=(Poisson(mean_trials=3),))
    with pytest.raises(UserError, match="There is none"):
        select(other, resume="last")
    assert other.terms != declared.terms != replace(declared, candidates=declared.candidates[:2]).terms
    with pytest.raises(UserError, match="expected last, or null"):
        select(declared, resume="0123abcd")


def test_a_release_that_was_interrupted_is_made_in_the_same_run(
    store, declared, trials, training, monkeypatch
):
    from dpexp.selection import procedure

    trials(1)
    training([0.5])
    released = procedure.release_best

    def cut(*arguments):
        released(*arguments)
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(procedure, "release_best", cut)
    with pytest.raises(Stopped):
        select(declared)
    assert [run.info.status for run in runs_in(store)] == ["KILLED"]
    monkeypatch.setattr(procedure, "release_best", released)
    select(declared, resume="last")
    (run,) = runs_in(store)
    assert (run.info.status, run.data.metrics["final/accuracy"]) == ("FINISHED", 0.5)


def test_no_trial_and_only_failed_trials_look_the_same(store, declared, trials, training, capsys):
    seen = []
    for count, outcomes in [(0, []), (3, [RuntimeError()] * 3)]:
        trials(count)
        training(outcomes)
        selected = select(declared)
        assert selected.overrides is selected.accuracy is None
        run = next(run for run in runs_in(store) if run.info.run_id == selected.run_id)
        assert run.data.tags["dpexp.released"] == "false"
        assert run.info.status == "FINISHED"
        assert run.data.metrics["final/epsilon"] == float(declared.cost.whole)
        assert "final/accuracy" not in run.data.metrics
        assert not {"optimizer.lr", "privacy.noise_multiplier"} & set(run.data.params)
        told = capsys.readouterr().out.replace(run.info.run_id, "RUN")
        assert "Nothing is released" in told
        assert run.data.tags.pop("dpexp.sweep") == run.info.run_id
        seen.append((told, run.data.metrics, run.data.params, run.data.tags, artifacts(store, run)))
    assert seen[0] == seen[1]


def test_what_is_seen_does_not_depend_on_the_number_of_trials(store, declared, trials, training, capsys):
    seen = []
    for outcomes in ([0.8], [0.1, RuntimeError(), 0.8, 0.7, 0.6, 0.2, 0.3]):
        one_point = replace(declared, candidates=declared.candidates[:1])
        trials(len(outcomes))
        training(outcomes)
        selected = select(one_point)
        run = next(run for run in runs_in(store) if run.info.run_id == selected.run_id)
        run.data.tags.pop("dpexp.sweep")
        told = capsys.readouterr().out.replace(run.info.run_id, "RUN")
        seen.append((told, run.data.metrics, run.data.params, run.data.tags, artifacts(store, run)))
    assert seen[0] == seen[1]
    assert len(runs_in(store)) == 2


def test_points_are_random_and_nothing_is_dated_before_the_last_trial(
    store, declared, private, outputs, trials, training
):
    trials(60)
    tried = training([0.9, *[0.5] * 59])
    select(declared)
    assert len(set(tried.points)) == 4  # that a point is never drawn: 4·(3/4)⁶⁰, once in 10⁷ runs
    (run,) = runs_in(store)
    last = max(path.stat().st_mtime for path in private.rglob("trial.log"))
    assert run.info.start_time >= int(last * 1000)
    history = [point for key in run.data.metrics for point in store.get_metric_history(run.info.run_id, key)]
    assert all(point.timestamp >= run.info.start_time for point in history)
    files = [path for path in (outputs / "artifacts").rglob("*") if path.is_file()]
    assert "MLmodel" in {path.name for path in files}
    assert all(path.stat().st_mtime >= last for path in files)
    assert not any(b"2020" in path.read_bytes() for path in files)


def test_the_private_store_is_its_owners_alone(declared, private, trials, training):
    trials(3)
    training([0.5, 0.6, 0.4])
    select(declared)
    for path in (private, *private.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    models = [path for path in private.rglob("model.pt") if path.parent.name == "files"]
    assert [path.read_text() for path in models] == ["0.6"]  # of the best alone


def test_a_private_store_that_others_can_read_is_refused(declared, private, outputs, monkeypatch):
    private.mkdir(parents=True, mode=0o755)
    with pytest.raises(UserError, match="nobody else may read"):
        select(declared)
    monkeypatch.setenv("DPEXP_PRIVATE_DIR", str(outputs / "private"))
    with pytest.raises(UserError, match="outside"):
        select(declared)


def test_what_a_trial_says_as_it_leaves_the_process_is_for_its_log_alone(
    store, declared, private, trials, training
):
    trials(2)
    training([SystemExit("a loss of 0.731")])
    with pytest.raises(SystemExit) as left:
        select(declared)
    assert "0.731" not in f"{left.value}{left.value.__cause__}"
    assert left.value.__suppress_context__
    assert any("0.731" in path.read_text() for path in private.rglob("trial.log"))
    training([0.5])
    assert select(declared, resume="last").accuracy == 0.5  # it is not made again


def test_the_configuration_on_record_is_the_declared_one(declared, tmp_path):
    """Also where it is worked out from the parts, of which a trial has other ones."""
    made = Experiment(name="python", data=Digits(), privacy=declared.experiment.privacy)
    candidate = replace(declared.candidates[0], experiment=made)
    whole = Whole(epsilon=declared.cost.whole, statement="")
    inside = _inside(candidate.experiment, tmp_path, _PrivateRun(tmp_path), whole)
    assert inside.tracking.folder == tmp_path
    assert inside.config == made.config


def test_the_statement_assumes_what_every_trial_must_keep(declared):
    first, *others = declared.candidates
    whole = replace(first, plan=replace(first.plan, sampling=FixedSizeSampling()))
    mixed = replace(declared, candidates=(whole, *others))
    mixed.__dict__["trial"] = declared.trial  # the price is no matter here
    for winner in (whole, others[0], None):
        words = statement(mixed, winner)
        for candidate in (whole, others[0]):
            assert candidate.plan.sampling.in_words in words


def test_a_test_accuracy_that_trials_were_compared_by_is_said_to_be_optimistic(declared):
    winner = declared.candidates[0]
    assert "optimistic" in statement(declared, winner)  # smoke validates on the test split
    assert "optimistic" not in statement(declared, None)
    data = replace(winner.experiment.data, validation=200, validation_split="public", num_examples=1238)
    held_out = replace(winner, experiment=replace(winner.experiment, data=data))
    apart = replace(declared, candidates=(held_out,))
    assert "optimistic" not in statement(apart, held_out)
    assert "optimistic" in statement(replace(apart, score=Score("test/loss")), held_out)


def test_a_record_is_read_as_it_was_written():
    trials = (
        Trial(point=1, tie=5, state="scored", score=0.25),
        Trial(point=0, tie=7, state="failed"),
        Trial(point=2, tie=1),
    )
    kept = Record(terms="ab", experiment="smoke", trials=trials)
    assert Record.read(kept.text) == kept
    assert kept.best == 0
    assert kept.waiting == [2]
