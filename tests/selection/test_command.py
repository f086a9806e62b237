"""The command: its space, its refusals, and what it gives away, which is the best alone."""

import json
import re
import shlex
import shutil

import pytest

from dpexp import selection
from dpexp.selection import record
from dpexp.tracking import connect
from tests.selection.conftest import records, runs_in

COMMAND = ("-m", "+experiment=smoke", "+sweep=private_selection", "trainer=cpu", "privacy.clip_norm=1")
SPACE = ("optimizer.lr=0.1,0.5", "privacy.noise_multiplier=2,3")


def test_the_price_is_shown_without_drawing(dpexp, outputs, private, monkeypatch, capsys):
    monkeypatch.setattr(record, "draw", None)
    assert dpexp(*COMMAND, "optimizer.lr=0.1,0.5", "optimizer.lr=0.3,0.4", "task=plan") == 0
    told = capsys.readouterr().out
    assert "0.3, 0.4" in told  # the later list, in place of the file's
    assert "4, 6" in told  # the file's
    assert "clip_norm" not in told  # one value on the command line: no part of the space
    assert dpexp(*COMMAND, "++optimizer.lr=0.3", "privacy.noise_multiplier=2,3", "task=plan") == 0
    assert "optimizer.lr" not in capsys.readouterr().out  # however it is set
    assert "4; each trial is on a random one" in told
    assert dpexp("+experiment=smoke", "hydra/sweeper=private_selection", "task=plan") == 1
    assert "expected -m" in capsys.readouterr().err  # and not one run, all alone
    assert not private.exists()


def test_the_command_on_record_makes_the_whole_again(dpexp, outputs, monkeypatch):
    asked = []
    monkeypatch.setattr(
        selection, "select", lambda declared, resume: asked.append((declared.command, resume))
    )
    assert dpexp(*COMMAND, *SPACE, "resume=last") == 0
    [(command, resume)] = asked
    assert resume == "last"
    assert command == shlex.join(["python", "-m", "dpexp", *COMMAND, *SPACE])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["optimizer.lr=interval(0,1)"], "expected a list, such as 0.1,0.5"),
        (["task=figure2"], "task = 'dpexp.tasks.Figure2': expected train or plan"),
        (["hydra.sweeper.distribution=normal"], "one of negative_binomial, poisson, cheapest"),
        (["hydra.sweeper.score=test"], "one of val/accuracy"),
        (["privacy.delta=1e-5,1e-6"], "privacy.delta = 1e-06: expected 1e-05"),
        (["optimizer.lrr=1,2"], "optimizer.lrr"),
    ],
)
def test_what_cannot_be_selected_is_refused_before_the_draw(
    dpexp, outputs, private, monkeypatch, capsys, overrides, named
):
    monkeypatch.setattr(record, "draw", None)
    fixed = ["optimizer.lr=0.1", "privacy.noise_multiplier=2"]
    assert dpexp(*COMMAND, *fixed, *overrides) == 1
    assert named in capsys.readouterr().err
    assert not private.exists()


def test_mistakes_of_a_model_are_said_before_the_draw(dpexp, outputs, private, monkeypatch, capsys):
    monkeypatch.setattr(record, "draw", None)
    assert dpexp(*COMMAND, "optimizer.lr=0.1", "privacy.noise_multiplier=2,3", "data.dimensions=63") == 1
    assert dpexp(*COMMAND, "optimizer.lr=0.1,-1", "privacy.noise_multiplier=2") == 1
    err = capsys.readouterr().err
    assert "data.dimensions" in err
    assert "At the point optimizer.lr=-1" in err


def seen_by_the_recipient(outputs, told):
    """Every byte of the outputs, and the console."""
    files = [path for path in sorted(outputs.rglob("*")) if path.is_file()]
    names = "\n".join(str(path.relative_to(outputs)) for path in files)
    return told + names + "".join(path.read_bytes().decode("latin-1") for path in files)


def secrets_of(private):
    """What would tell that there was another trial: names of its files, losses, and the loser's score."""
    (kept,) = records(private)
    for number, trial in enumerate(kept.trials):
        (folder,) = private.glob(f"*/trials/{trial.tie:032x}")
        yield folder.name
        yield from (path.stem for path in folder.glob("ledgers/*.ledger"))
        content = json.loads((folder / "kept.json").read_text(encoding="utf-8"))
        yield repr(content["metrics"]["nonprivate/train_loss"])
        if number != kept.best:
            yield repr(content["metrics"]["val/loss"])


def check_secrecy(dpexp, store, outputs, private, capfd):
    assert dpexp(*COMMAND, *SPACE, "hydra.sweeper.mean_trials=3") == 0
    told = "".join(capfd.readouterr())
    (run,) = runs_in(store)
    seen = seen_by_the_recipient(outputs, told)
    hidden = list(secrets_of(private))
    assert len(hidden) >= 3
    for secret in hidden:
        assert secret not in seen
    assert not re.search(r"trial\.log|kept\.json|record\.json|ledger(s/|\b.*json)", seen)
    database = {f"mlflow.db{end}" for end in ("", ".lock", "-shm", "-wal")}
    of_the_release = {".mlflow_experiment.lock", "artifacts", "running", *database}
    assert {path.name for path in outputs.iterdir()} <= of_the_release
    after = told.partition("nothing is shown until the best is released.")[2]
    found = run.data.params["optimizer.lr"], run.data.params["privacy.noise_multiplier"]
    assert set(re.findall(r"optimizer\.lr=([\d.]+)", after)) == {found[0]}
    assert set(re.findall(r"noise_multiplier=([\d.]+)", after)) == {found[1]}
    with open(store.download_artifacts(run.info.run_id, "plan.json"), encoding="utf-8") as file:
        assert "shares" not in json.load(file)  # no ε of one trial beside that of the whole
    history = [point for key in run.data.metrics for point in store.get_metric_history(run.info.run_id, key)]
    assert {point.step for point in history} == {40}
    return told.replace(run.info.run_id, "RUN")


def masked(told):
    return re.sub(r"[\d.]+ *", "#", told).split()


def test_neither_the_number_of_trials_nor_the_others_are_seen(dpexp, store, outputs, private, trials, capfd):
    trials(4)
    check_secrecy(dpexp, store, outputs, private, capfd)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thirty_commands_give_nothing_away(dpexp, template_store, tmp_path, capfd, monkeypatch):
    """And their consoles have the same words, however many trials there were."""
    told, counts = [], set()
    for number in range(30):
        outputs, private = tmp_path / str(number) / "outputs", tmp_path / str(number) / "private"
        outputs.mkdir(parents=True)
        shutil.copy(template_store, outputs / "mlflow.db")
        monkeypatch.chdir(outputs.parent)
        monkeypatch.setenv("DPEXP_PRIVATE_DIR", str(private))
        store = connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)
        told.append(masked(check_secrecy(dpexp, store, outputs, private / "selections", capfd)))
        counts.add(len(records(private / "selections")[0].trials))
    assert len(counts) > 1  # a logarithmic law of mean 3 gives the same thirty times once in 10¹⁰
    assert all(words == told[0] for words in told)
