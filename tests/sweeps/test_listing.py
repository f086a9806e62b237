"""The list of a sweep's jobs: Hydra's own, and its command lines make the same jobs again."""

import shlex

import pytest
from hydra import initialize_config_dir
from hydra.types import RunMode

from dpexp.cli import conf_dir
from dpexp.cli.composition import composed_experiment, current_hydra
from dpexp.cli.listing import Listing


@pytest.fixture
def listed():
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):

        def listing(*overrides):
            config = current_hydra().compose_config("config", list(overrides), RunMode.MULTIRUN)
            return Listing.of(config, current_hydra())

        yield listing


def test_files_are_remembered_for_every_choice_of_a_swept_group_and_once_for_values(listed):
    values = listed("+experiment=smoke", "seed=0,1", "privacy.noise_multiplier=2,4")
    assert [job[1:] for job in values.jobs[:2]] == [
        ["seed=0", "privacy.noise_multiplier=2"],
        ["seed=0", "privacy.noise_multiplier=4"],
    ]
    assert len(values.configurations) == 1
    assert values.configurations == listed("+experiment=smoke", "seed=0,1", "resume=last").configurations
    assert values.configurations != listed("+experiment=smoke", "seed=0,1", "optimizer.lr=3").configurations
    groups = listed("+experiment=smoke,noisy_sgd", "optimizer=sgd,adam", "seed=0,1")
    assert len(groups.jobs) == 8
    assert len(set(groups.configurations)) == 4


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "it's", 'say "x"', "é=1", "a: {b} [c]", "~+x", "\\'", "1.50", "null", ""]
)
def test_command_lines_make_the_same_job_again_whatever_text_is_in_them(listed, name):
    escaped = name.replace("\\'", "\\\\\\'") if "\\'" in name else name.replace("'", "\\'")
    (job,) = listed("+experiment=smoke", f"tracking.experiment='{escaped}'").jobs
    made = composed_experiment(current_hydra(), job)
    assert made.tracking.experiment == name
    again = composed_experiment(current_hydra(), shlex.split(made.tags["dpexp.command"])[3:])
    assert again.tracking.experiment == name
