"""Figures 3, 4 and 5: each run once, resumable, read off what the store holds, priced as a whole."""

import csv

import pytest
from PIL import Image

from dpexp._validate import UserError
from dpexp.reproduction import Sweep
from dpexp.reproduction.archive import agrees
from dpexp.reproduction.figure4 import lots_for
from dpexp.sanitizer import Sanitizer
from tests.plans import PCA, PER_LAYER, plain_plan, private_plan

SMOKE = ["trainer=cpu", "privacy.steps=4", "trainer.val_check_interval=2"]
FIGURE_3 = ["task=figure3", "task.settings=[smoke]", "privacy.epsilon=3", *SMOKE]
FIGURE_4 = ["task=figure4", "task.settings=[smoke]", "privacy.epsilon=3", *SMOKE]
FIGURE_5 = [
    "task=figure5",
    "task.experiment=smoke",
    "task.overrides=[]",
    "task.panels=[noise,hidden_units]",
    "task.sweeps.noise.values=[2,3]",
    "task.sweeps.hidden_units.values=[64,8]",
    *SMOKE,
]


def rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def width(path):
    with Image.open(path) as image:
        return image.size[0]


def test_figure_5_goes_on_where_it_was_stopped_and_charges_the_attempt(
    dpexp, outputs, trained, monkeypatch, capsys
):
    release, fails = Sanitizer.release, {"in": 2}

    def failing(self, *arguments):
        if len(trained) == fails["in"]:
            raise UserError("The disk is full.")
        return release(self, *arguments)

    monkeypatch.setattr(Sanitizer, "release", failing)
    assert dpexp(*FIGURE_5) == 1
    assert len(trained) == 2
    fails["in"] = None

    assert dpexp(*FIGURE_5) == 0
    assert [call.tags["dpexp.value"] for call in trained] == [
        "2",
        "3",
        "3",
        "8",
    ]  # 64 units are the reference
    found = rows(outputs / "figures" / "figure5.csv")
    assert [(row["panel"], float(row["value"])) for row in found] == [
        ("noise", 2),
        ("noise", 3),
        ("hidden_units", 64),
        ("hidden_units", 8),
    ]
    assert found[0]["run_id"] == found[2]["run_id"]
    assert all(0 <= float(row["accuracy"]) <= 1 and row["lots"] == "4" for row in found)
    assert float(found[0]["epsilon"]) > float(found[1]["epsilon"]) > 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "noise multiplier σ: 3 runs on the same rows together" in printed  # two, and the one that failed
    assert "Whole figure: 4 runs on the same rows together" in printed
    assert width(outputs / "figures" / "figure5.png") > 500
    assert (outputs / "figures" / "figure5.svg").exists()

    assert dpexp(*FIGURE_5, "task.collect_only=true") == 0
    assert dpexp(*FIGURE_5) == 0
    assert len(trained) == 4  # neither trains anything
    assert dpexp(*FIGURE_5, "privacy.clip_norm=2", "task.collect_only=true") == 1  # other runs than these
    assert "runs of figure5 in the store = 0" in capsys.readouterr().err


def test_figures_3_and_4_share_their_runs(dpexp, outputs, trained, capsys):
    assert dpexp(*FIGURE_3) == 0
    found = rows(outputs / "figures" / "figure3.csv")
    assert [int(row["lots"]) for row in found] == [2, 4]
    assert float(found[0]["delta"]) < float(found[1]["delta"]) < 1e-5
    assert width(outputs / "figures" / "figure3.png") > 500

    assert dpexp(*FIGURE_4, "task.epsilons=[1e-3,0.3,3]", "task.deltas=[1e-2,1e-5]") == 0
    assert len(trained) == 1
    readings = rows(outputs / "figures" / "figure4.csv")
    by_pair = {(float(r["delta"]), float(r["epsilon"])): r for r in readings}
    last = by_pair[1e-5, 3]
    assert (last["lots"], last["all_lots"], last["accuracy"]) == ("4", "True", found[-1]["accuracy"])
    assert (1e-5, 1e-3) not in by_pair  # it pays for no lot
    assert width(outputs / "figures" / "figure4.png") > 500


@pytest.mark.parametrize(("epsilon", "delta"), [(2, 1e-5), (0.8, 1e-5), (0.6, 1e-2), (1, 1e-4)])
def test_a_pair_pays_for_the_lots_of_a_run_planned_for_exactly_it(epsilon, delta):
    keys = {"layers": PER_LAYER, "epsilon": 2, "releases": (PCA,)}
    whole = private_plan(**keys)
    exact = private_plan(**keys | {"epsilon": epsilon, "delta": delta})
    lots = lots_for(whole, epsilon, delta)
    assert lots == min(exact.steps, whole.steps)
    assert lots > 0


def test_a_pair_that_the_first_release_alone_exceeds_pays_for_nothing():
    whole = private_plan(layers=PER_LAYER, releases=(PCA,))
    assert lots_for(whole, 0.5, 1e-5) == 0
    with pytest.raises(ValueError, match="Without privacy"):
        lots_for(plain_plan(), 1, 1e-5)


def test_a_stored_run_agrees_with_the_configuration_it_was_made_from():
    config = {
        "seed": 0,
        "model": {"hidden_units": [8]},
        "tracking": {"every": 10},
        "physical_batch_size": None,
    }
    stored = {"seed": "0", "model.hidden_units": "[8]", "tracking.every": "1", "physical_batch_size": "32"}
    assert agrees(stored, config, {"seed"})
    assert not agrees(stored | {"model.hidden_units": "[9]"}, config, {"seed"})
    assert agrees(stored, config | {"ema": None}, {"seed"})  # a key that the older run did not know
    assert not agrees(stored, config | {"ema": 0.9}, {"ema"})  # unless this point sets it
    assert not agrees({}, config, set())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*FIGURE_5, "task.panels=[nois]"], "Did you mean noise?"),
        ([*FIGURE_5, "task.seeds=[-1]"], "task.seeds = -1"),
        ([*FIGURE_5, "task.sweeps.noise.values=[-2]"], "privacy.noise_multiplier = -2"),
        ([*FIGURE_5, "task.sweeps.noise.overrides=['privacy.noise={value}x']"], "privacy.noise = '2x'"),
        ([*FIGURE_5, "data.test_split=private"], "private"),
        (["+experiment=smoke", *FIGURE_3], "leave +experiment out"),
        ([*FIGURE_3, "task.settings=[smok]"], "Did you mean smoke?"),
        ([*FIGURE_4, "task.deltas=[2]"], "task.deltas = 2"),
        ([*FIGURE_4, "task.collect_only=true"], "runs of figure3 in the store = 0"),
    ],
)
def test_mistakes_are_explained_before_anything_is_trained(
    dpexp, outputs, trained, capsys, arguments, message
):
    assert dpexp(*arguments) == 1
    assert message in capsys.readouterr().err
    assert not trained


def test_a_sweep_needs_values_and_a_place_for_them():
    with pytest.raises(UserError, match="at least one number"):
        Sweep(label="σ", overrides=["privacy.noise_multiplier={value}"], values=[])
    with pytest.raises(UserError, match="an override with"):
        Sweep(label="σ", overrides=["privacy.noise_multiplier=4"], values=[1])
    assert Sweep(label="L", overrides=["a={value}", "b=[{value}]"], values=[1]).at(20) == ["a=20", "b=[20]"]
