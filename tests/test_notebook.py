"""Experiments from Python: defaults, the record, variants, results; and the notebook of the docs."""

import functools
import warnings
from dataclasses import replace

import nbformat
import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from dpexp._validate import UserError
from dpexp.data import Digits, published
from dpexp.folders import conf_dir
from dpexp.models import MLP
from dpexp.notebook import Experiment, Result, Results, run_all
from dpexp.notebook.trade_off import Point, trade_off
from dpexp.options import Options
from dpexp.price import Charged, price_of
from dpexp.privacy import DPSGD, NoPrivacy
from dpexp.schedules import Constant, Linear
from tests.conftest import REPOSITORY
from tests.test_training import artifact, only_run, store  # noqa: F401

SHORT = DPSGD(noise_multiplier=2, clip_norm=1, lot_size=64, steps=6)


def experiment(**changes):
    keys = {"name": "notebook", "data": Digits(), "privacy": SHORT}
    keys |= {"model": functools.partial(MLP, 64, [8], 10)}
    return Experiment(**(keys | changes))


def test_what_is_left_out_is_what_the_configuration_chooses():
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = OmegaConf.to_container(compose("config"), resolve=True)
    del composed["task"]
    assert Experiment(name="adhoc", data=Digits(), privacy=DPSGD()).config == composed


def test_a_variant_is_worked_out_anew_and_recorded_as_it_is():
    one = experiment(optimizer=functools.partial(torch.optim.SGD, lr=0.5))
    two = replace(one, optimizer=functools.partial(torch.optim.SGD, lr=0.25), seed=7)
    three = replace(two, privacy=replace(SHORT, noise_multiplier=3), options=Options(ema=0.9))
    assert (one.schedule, two.schedule) == (Constant(0.5), Constant(0.25))
    assert two.config["optimizer"]["lr"] == two.config["schedule"]["value"] == 0.25
    assert two.config["seed"] == 7
    assert (three.config["privacy"]["noise_multiplier"], three.config["ema"]) == (3, 0.9)
    assert replace(three, seed=1).options.ema == 0.9


def test_what_was_given_stays_as_it_was_given():
    schedule = Linear(start=0.5, end=0.1, over=3)
    one = experiment(schedule=schedule, config={"seed": 3, "ema": 0.5})
    two = replace(one, optimizer=functools.partial(torch.optim.SGD, lr=0.25))
    assert two.schedule is schedule
    assert two.config == {"seed": 3, "ema": 0.5}
    assert two.options.ema == 0.5


def test_a_strict_variant_records_secure_noise():
    strict = replace(experiment(), strict=True)
    assert strict.config["privacy"]["noise"] == "secure"
    assert replace(strict, seed=4).config["seed"] == 4


def test_functions_without_a_name_are_recorded_with_their_source():
    config = experiment(model=lambda: MLP(64, [5], 10)).config
    assert "MLP(64, [5], 10)" in config["model"]["_source_"]
    yaml.safe_dump(config)  # plain values only


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": torch.nn.Linear(64, 10)}, "model is a Linear: expected a function that makes one"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1)}, "optimizer is a SGD"),
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=1)}, "schedule = None: expected a schedule"),
    ],
)
def test_what_would_not_be_a_run_of_its_own_is_refused(changes, said):
    with pytest.raises(UserError, match=said):
        experiment(**changes)


def test_published_data_sets_are_made_by_name():
    images = published("mnist", shape=[1, 28, 28], root="/nowhere")
    assert (images.num_examples, images.input_shape, images.root) == (60000, (1, 28, 28), "/nowhere")
    assert published("imdb_tokens").vocabulary == 10000
    with pytest.raises(UserError, match=r"Did you mean mnist\?"):
        published("mnits")
    with pytest.raises(UserError, match=r"Did you mean shape\?"):
        published("mnist", shap=[28, 28])
    with pytest.raises(UserError, match="make the object itself"):
        published("arrays")


def result(accuracy=0.5, epsilon=1.0, **changes):
    keys = {"delta": 1e-5, "steps": 6, "run_id": "r", "experiment_id": "1", "tracking_uri": "u"}
    keys |= {"accuracy": accuracy, "epsilon": epsilon, "deterministic": False, "statement": "ε < 1"}
    return Result(**(keys | changes))


def of(experiments, results):
    price = price_of([Charged.whole(experiment.plan()) for experiment in experiments])
    return Results(tuple(experiments), tuple(results), price)


def test_a_table_names_what_differs():
    settings = [replace(SHORT, noise_multiplier=sigma) for sigma in (2, 4)]
    private = [experiment(seed=seed, privacy=privacy) for privacy in settings for seed in (0, 1)]
    plain = experiment(privacy=NoPrivacy(lot_size=64, steps=6))
    results = of((*private, plain), (result(epsilon=1 + 1e-9),) * 4 + (result(epsilon=None, delta=None),))
    table = results.table()
    assert list(table.columns[:4]) == ["name", "seed", "privacy._target_", "privacy.noise_multiplier"]
    assert list(table["privacy.noise_multiplier"][:4]) == [2, 2, 4, 4]
    assert table["epsilon"].isna().tolist() == [False] * 4 + [True]
    assert table["epsilon"][0] == 1.000001  # rounded up
    assert "no ε bounds" in str(results)
    assert "<table" in results._repr_html_()
    assert "&lt; 1" in result()._repr_html_()


def test_the_price_of_all_runs_is_that_of_their_composition(outputs, monkeypatch):
    monkeypatch.setattr("dpexp.notebook.results.train", lambda *_: result())
    both = run_all([experiment(), experiment(seed=1)])
    twice = run_all([experiment(privacy=replace(SHORT, steps=12))])
    assert float(both.price.bounds[0]) == float(twice.price.bounds[0])
    assert "2 runs on the same rows" in both.in_words
    assert "not simply add up" in (both + twice).in_words  # the second may have been chosen by the first


def test_only_epsilons_of_one_kind_share_a_mark():
    runs = of(
        (
            experiment(),
            experiment(seed=1),
            experiment(privacy=replace(SHORT, delta=1e-6)),
            experiment(privacy=NoPrivacy(lot_size=64, steps=6)),
        ),
        (result(0.4), result(0.6), result(delta=1e-6), result(0.9, None, delta=None)),
    )
    [axes] = runs.plot().axes
    labels = axes.get_legend_handles_labels()[1]
    assert len(labels) == 3
    assert sum("δ = 1e-05" in label for label in labels) == sum("δ = 1e-06" in label for label in labels) == 1
    [line] = [
        line for line in axes.lines if line.get_label() == "notebook on digits, N = 1,438, without privacy"
    ]
    assert set(line.get_ydata()) == {0.9}
    marks = [container.lines[0].get_xydata().tolist() for container in axes.containers]
    assert marks == [[[1.0, 0.5]], [[1.0, 0.5]]]  # two seeds are one mark at their mean


def test_without_an_accuracy_that_may_be_shown_there_is_no_plot():
    with pytest.raises(UserError, match="declared public"):
        of((experiment(),), (result(accuracy=None),)).plot()
    assert trade_off([Point(group="g", setting="s", epsilon=1.0, accuracy=0.5)]).axes


def test_runs_from_python_are_recorded_as_those_of_the_command_line(outputs, store, capsys):  # noqa: F811
    runs = run_all([experiment()])
    assert "Plan of" not in capsys.readouterr().out
    found = only_run(store)
    assert found.info.run_id == runs[0].run_id
    assert found.data.params["privacy.noise_multiplier"] == "2"
    assert found.data.params["model._args_"] == "[64, [8], 10]"
    assert found.data.metrics["final/epsilon"] == runs[0].epsilon
    with open(artifact(store, found, "config.yaml"), encoding="utf-8") as file:
        assert yaml.safe_load(file) == runs.experiments[0].config


def test_nothing_is_trained_where_one_of_several_is_impossible(outputs, monkeypatch):
    monkeypatch.setattr("dpexp.notebook.results.train", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(UserError, match=r"privacy\.epsilon"):
        run_all([experiment(), experiment(privacy=replace(SHORT, epsilon=1e-4))])


def test_a_failure_says_which_runs_are_complete(outputs, monkeypatch):
    outcomes = iter([result(run_id="first")])
    monkeypatch.setattr("dpexp.notebook.results.train", lambda *_: next(outcomes))
    with pytest.raises(StopIteration) as raised:
        run_all([experiment(), experiment(seed=1)])
    assert raised.value.__notes__ == ["Run 2 of 2 failed. Complete before it: first."]


@pytest.mark.notebook
def test_the_notebook_of_the_docs_runs(outputs, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))  # the kernel starts elsewhere
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own
        from nbclient import NotebookClient

        found = nbformat.read(REPOSITORY / "docs" / "guide" / "notebook.ipynb", as_version=4)
        NotebookClient(found, timeout=240, resources={"metadata": {"path": str(outputs.parent)}}).execute()
    told = [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in told if output.output_type == "stream" and output.name == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in told)
