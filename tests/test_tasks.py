"""`task=plan` and `task=figure2`: all the privacy arithmetic, no data, no torch."""

import json

import pytest
from PIL import Image

from dpexp.accounting import accountants_by_name, as_accountant
from dpexp.planning import plan_figures
from tests.plans import PCA, PER_LAYER, plain_plan, private_plan

MEDIUM = "+experiment=mnist_medium"


def width(path):
    with Image.open(path) as image:
        return image.size[0]


@pytest.fixture
def plan_json(dpexp, outputs, capsys):
    def run(*arguments):
        capsys.readouterr()
        assert dpexp("task=plan", "task.format=json", *arguments) == 0
        return json.loads(capsys.readouterr().out)  # stdout carries only the JSON

    return run


def test_the_plan_of_the_main_job_is_priced_by_every_accountant(plan_json):
    found = plan_json(MEDIUM)
    assert found["steps"] == 10_331
    assert set(found["epsilon"]) | set(found["refused"]) == set(accountants_by_name)
    assert found["epsilon"]["moments"]["value"] == pytest.approx(2, abs=1e-3)
    assert found["epsilon"]["moments"]["value"] <= 2
    for name, figure in found["epsilon"].items():
        assert figure["kind"] == as_accountant(name).kind
        assert figure["delta"] == 1e-5
    certified = [figure["value"] for figure in found["epsilon"].values() if figure["kind"] == "certified"]
    assert min(certified) >= found["epsilon"]["exact"]["value"] * (1 - 1e-9)
    assert found["epsilon"]["pld"]["value"] < found["epsilon"]["rdp"]["value"]


def test_shares_and_trajectory_fit_the_whole(plan_json):
    found = plan_json(MEDIUM)
    pca, lots = found["shares"]
    assert (pca["name"], lots["name"]) == ("dp_pca", "10,331 lots")
    whole = found["epsilon"]["moments"]["value"]
    assert max(pca["value"], lots["value"]) < whole < pca["value"] + lots["value"]
    values = [point["value"] for point in found["trajectory"]]
    assert values == sorted(values)
    assert found["trajectory"][-1]["lots"] == 10_331
    assert values[-1] == whole


def test_noise_is_solved_for_each_target_and_what_cannot_be_met_says_why(plan_json):
    found = plan_json(MEDIUM, "task.calibrate=[0.5,1,2]")
    impossible, tight, given = found["calibrated"]
    assert impossible["noise_multipliers"] is None
    assert "0.6966 (certified" in impossible["reason"]
    assert tight["noise_multipliers"]["hidden"] > 4
    assert given["noise_multipliers"]["hidden"] == pytest.approx(4, rel=1e-3)


def test_what_follows_epsilon_by_a_rule_follows_each_target(plan_json):
    [*calibrated] = plan_json("+experiment=mnist_scattering", "task.calibrate=[0.5,1]")["calibrated"]
    for found, epsilon in zip(calibrated, (0.5, 1), strict=True):
        one = plan_json("+experiment=mnist_scattering", f"privacy.epsilon={epsilon}")
        solved = [float(group["noise_multiplier"]) for group in one["groups"]]
        assert list(found["noise_multipliers"].values()) == pytest.approx(solved, rel=1e-4)


def test_no_data_are_touched(dpexp, outputs, monkeypatch):
    from dpexp.data import MNIST

    monkeypatch.setattr(MNIST, "load", lambda self: pytest.fail("data were loaded"))
    assert dpexp(MEDIUM, "task=plan") == 0


def test_the_table_shows_the_kind_of_every_figure(dpexp, outputs, capsys):
    assert dpexp(MEDIUM, "task=plan", "task.plot=true") == 0
    printed = capsys.readouterr().out
    for kind in ("certified", "estimate", "asymptotic"):
        assert kind in printed
    assert "dp_pca alone" in printed
    assert width(outputs / "plans" / "mnist_medium.png") > 500


def test_groups_on_one_lot_are_shown_with_the_noise_that_they_have_jointly(dpexp, outputs, capsys):
    """The paper's σ = 4 of each of two layers is, to the accountant, 4/√2."""
    layers = "privacy.layers={hidden:{parameters:hidden.*},output:{parameters:output.*}}"
    assert dpexp("+experiment=smoke", "task=plan", "privacy.noise_multiplier=4", layers) == 0
    assert "one release of σ = 2.828, which the accountant charges" in capsys.readouterr().out
    assert dpexp("+experiment=smoke", "task=plan", "privacy.noise_multiplier=4.0013", layers) == 0
    assert "σ = 2.829, which" in capsys.readouterr().out  # 2.82935, never more than there is
    assert dpexp("+experiment=smoke", "task=plan") == 0
    assert "jointly" not in capsys.readouterr().out


def test_a_plan_without_privacy_has_nothing_to_price(dpexp, outputs, capsys):
    assert dpexp("+experiment=smoke", "privacy=none", "task=plan") == 1
    assert "nothing to price" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no figures"):
        plan_figures(plain_plan())


def test_groups_with_lots_of_their_own_and_schedules_are_priced():
    layers = PER_LAYER | {"hidden": {"parameters": "hidden.*", "lot_size": 300}}
    figures = plan_figures(private_plan(layers=layers, steps=50, releases=(PCA,)))
    assert figures.at_end[0].accountant == "moments"
    assert {bound.accountant for bound in figures.at_end} >= {"moments", "rdp", "pld", "exact"}


def test_figure_2_has_the_papers_numbers(dpexp, outputs, capsys):
    assert dpexp("task=figure2", "task.format=json", "task.epochs=[100,400]") == 0
    found = json.loads(capsys.readouterr().out)
    curves = found["curves"]
    assert curves["moments"]["epsilon"][0] == pytest.approx(1.26, abs=0.005)
    assert curves["paper_strong_composition"]["epsilon"] == pytest.approx([9.34, 24.22], abs=0.02)
    assert curves["paper_strong_composition"]["kind"] == "heuristic"
    assert curves["exact"]["epsilon"] == pytest.approx([0.94686680, 2.03306527], rel=1e-6)
    assert width(found["png"]) > 500


def test_figure_2_is_also_a_table_and_a_plot_in_the_terminal(dpexp, outputs, capsys):
    assert dpexp("task=figure2") == 0
    printed = capsys.readouterr().out
    assert "1.2586" in printed
    assert "epochs" in printed


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.format=xml", "task.format = 'xml'"),
        ("task.calibrate=[-1]", "task.calibrate = -1"),
        ("+task.plots=1", "Did you mean plot?"),
    ],
)
def test_mistakes_in_the_task_are_explained(dpexp, outputs, capsys, override, message):
    assert dpexp(MEDIUM, "task=plan", override) == 1
    assert message in capsys.readouterr().err
