"""Every experiment and every option of every group works, with and without privacy and features."""

import functools
import math
from itertools import zip_longest

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from dpexp.cli import conf_dir
from dpexp.cli.keys import check_group, check_root
from dpexp.cli.resolvers import register

GROUPS = sorted(folder.name for folder in conf_dir().iterdir() if folder.is_dir())
EXPERIMENTS = sorted(file.stem for file in (conf_dir() / "experiment").glob("*.yaml"))
OPTIONS = {
    group: [f"{group}={file.stem}" for file in sorted((conf_dir() / group).glob("*.yaml"))]
    for group in GROUPS
    if group not in ("experiment", "hydra", "sweep")
}
TOGETHER = zip_longest(*(options for group, options in OPTIONS.items() if group != "data"))
ROUNDS = [[option] for option in OPTIONS["data"]]  # some leave to the user what features interpolate
ROUNDS += [[option for option in column if option] for column in TOGETHER]  # one of each group at once


@functools.cache
def composed(*overrides):
    """The configuration, to look at and not to change."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", list(overrides))


def changes_of(experiment):
    """None, and those that leave something out that the experiment has."""
    text = (conf_dir() / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    yield []
    for group in ("privacy", "features"):
        if f"override /{group}: none" not in text:
            yield [f"{group}=none"]


def small_public(features, small_mnist, small_cifar100):
    """Small files, and one epoch of training, for layers that are trained on public data."""
    stages = {"features": features} | {
        f"features.stages.{k}": v for k, v in (features.get("stages") or {}).items()
    }
    [trained] = [path for path, stage in stages.items() if stage.get("public")] or [None]
    if trained is None:
        return []
    mnist = [override.replace("data.", f"{trained}.public.", 1) for override in small_mnist]
    small = {"cifar100": small_cifar100, "fashion_mnist": mnist}
    return [f"{trained}.epochs=1", *small[stages[trained].public.name]]


@pytest.mark.parametrize(
    ("experiment", "changes"),
    [(experiment, changes) for experiment in EXPERIMENTS for changes in changes_of(experiment)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "as is",
)
def test_every_experiment_trains_for_two_lots(
    dpexp, outputs, small_mnist, small_cifar10, small_cifar100, experiment, changes
):
    at_hand = ["data=digits", "privacy.lot_size=200"]  # in place of what would have to be fetched
    replaced = {"mnist": small_mnist, "fashion_mnist": small_mnist, "census": at_hand, "imdb": at_hand}
    replaced |= {"cifar10": [*small_cifar10, "privacy.lot_size=4"]}
    config = composed(f"+experiment={experiment}", *changes)
    data = replaced.get(config.data.name, [])
    data = [*data, *small_public(config.features, small_mnist, small_cifar100)]
    overrides = ["privacy.steps=2", "trainer.val_check_interval=1", "trainer=cpu"]
    assert dpexp(f"+experiment={experiment}", *overrides, *data, *changes) == 0


@pytest.mark.parametrize("options", ROUNDS, ids=lambda options: options[0])
def test_every_option_has_exactly_the_keys_of_its_constructor(options):
    config = composed("privacy.steps=1", *options)
    check_root(config, conf_dir())
    for option in options:
        check_group(config, option.split("=")[0])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_says_what_it_reproduces_and_is_a_short_delta(experiment):
    text = (conf_dir() / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1].startswith("# ")
    assert len(lines) <= 50
    assert "_target_" not in text
    assert "model" not in yaml.safe_load(text), "sizes belong to the model's file: any model= can then follow"


def test_the_keys_of_privacy_are_the_same_with_and_without():
    keys = [
        set(yaml.safe_load((conf_dir() / "privacy" / f"{name}.yaml").read_text(encoding="utf-8")))
        for name in ("dp_sgd", "none")
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("experiment", "sigma", "sigma_pca", "epsilon"),
    [("mnist_small", 2, 4, 8), ("mnist_medium", 4, 7, 2), ("mnist_large", 8, 16, 0.5)],
)
def test_the_papers_settings(experiment, sigma, sigma_pca, epsilon):
    config = composed(f"+experiment={experiment}")
    assert config.privacy.noise_multiplier == sigma
    assert config.features.noise_multiplier == sigma_pca
    assert config.privacy.epsilon == epsilon
    assert config.privacy.delta == 1e-5
    assert (config.privacy.clip_norm, config.privacy.lot_size) == (4, 600)
    assert config.features.components == 60
    assert list(config.model.hidden_units) == [1000]
    assert config.accountant.max_order == 32
    assert (config.optimizer.lr, config.schedule.end, config.schedule.over) == (0.1, 0.052, 10)


@pytest.mark.parametrize("option", OPTIONS["features"])
def test_no_features_take_every_key_of_the_others(option):
    keys = set(composed("privacy.steps=1", option).features)
    assert keys <= set(composed("privacy.steps=1", "features=none").features)


@pytest.mark.parametrize(
    "recipe", ["mnist_scattering", "fashion_scattering", "census_logistic", "imdb_linear"]
)
def test_recipes_follow_epsilon_alone(recipe):
    rates = {}
    for epsilon in (0.5, 2, 8):
        config = composed(f"+experiment={recipe}", f"privacy.epsilon={epsilon}")
        assert config.privacy.noise_multiplier is None
        assert config.accountant._target_.endswith("PLDAccountant")
        rates[epsilon] = config.optimizer.lr
    assert rates[0.5] < rates[2] < rates[8]
    assert rates[8] / rates[2] == pytest.approx(rates[2] / rates[0.5])  # one power of ε


@pytest.mark.parametrize("stage", ["centering", "whitening"])
def test_what_a_stage_of_the_recipe_costs_is_saved_without_it(dpexp, capsys, stage):
    for left_out in ([], [f"features.stages.{stage}=null"]):
        assert dpexp("+experiment=mnist_scattering", "task=plan", *left_out) == 0
        assert (f"{stage}_" in capsys.readouterr().out) is not bool(left_out)


@pytest.mark.parametrize(("epsilon", "expected"), [(16, 24), (1, 3), (None, 3), (0, 3), (math.inf, 3)])
def test_a_rule_in_epsilon_is_a_power_of_it(epsilon, expected):
    register()
    config = OmegaConf.create({"epsilon": epsilon, "lr": "${times_power:3,${epsilon},0.75}"})
    assert config.lr == pytest.approx(expected)
