"""`python -m dpexp`: Hydra composes a configuration, and its objects run a task."""

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from dpexp._validate import UserError, refuse
from dpexp.cli.errors import explain
from dpexp.cli.guard import check_composed, install
from dpexp.cli.keys import check_group, check_root
from dpexp.cli.resolvers import register
from dpexp.stopping import Stopped, answer_signals
from dpexp.trust import require_trusted_names, trusted_object

if TYPE_CHECKING:
    from dpexp.experiment import Experiment
    from dpexp.tasks import Task

__all__ = ["conf_dir", "experiment_of", "main"]

register()
install()  # on import, so that it holds in the processes that launchers start

_PARTS = ("data", "features", "privacy", "sampling", "accountant", "budget", "schedule", "tracking")
_HEAVY = ("model", "optimizer", "trainer")
_SELECTION = "hydra_plugins.private_selection."


class Refused(BaseException):
    """A user's mistake on its way out of a single run, past Hydra's own report of all overrides."""


def conf_dir() -> Path:
    """The configuration folder: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parents[1] / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "conf"


def main() -> NoReturn:
    """Runs `python -m dpexp`, and turns a user's mistakes into one message."""
    traceback_wanted = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra re-raises instead of printing and exiting
    answer_signals()
    try:
        _application()
    except Stopped as stopped:
        print(f"\n{stopped} A run that was open is closed as KILLED; resume=last goes on.", file=sys.stderr)
        sys.exit(128 + stopped.signal_number)
    except (Refused, UserError, HydraException, OmegaConfBaseException) as error:
        if traceback_wanted:
            raise
        mistake = error.__cause__ if isinstance(error, Refused) and error.__cause__ else error
        print(explain(mistake, conf_dir()), file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _application(config: DictConfig) -> float | None:
    try:
        return _run(config)
    except (UserError, HydraException) as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise  # the other jobs go on
        raise Refused from error


def _run(config: DictConfig) -> float | None:
    _refuse_one_trial()
    experiment = _experiment(config, HydraConfig.get().runtime.choices.get("experiment"))
    task: Task = instantiate(config.task, _convert_="all")
    if task.makes:
        experiment.plan()  # impossible privacy arithmetic is refused before torch is even imported
    for group in task.makes:
        check_group(config, group)
    return task.run(experiment)


def _refuse_one_trial() -> None:
    """A sweeper that Hydra would not ask must not be taken for granted."""
    found = HydraConfig.get()
    if found.mode is RunMode.RUN and str(found.sweeper.get("_target_", "")).startswith(_SELECTION):
        hint = "Without it this would be one run, shown like any other."
        raise refuse("hydra/sweeper", "private_selection", "-m before it, or +sweep=private_selection", hint)


def _experiment(config: DictConfig, name: str | None) -> "Experiment":
    from dpexp.experiment import Experiment

    check_composed(config)
    require_trusted_names(_plain(config))  # what interpolations came to, too
    check_root(config, conf_dir())
    for group in ("task", *_PARTS):
        check_group(config, group)
    parts = {name: instantiate(config[name], _convert_="all") for name in _PARTS}
    return Experiment(
        name=name or "adhoc",
        model=functools.partial(instantiate, config.model, _convert_="all"),
        optimizer=lambda parameters: instantiate(config.optimizer, _convert_="all")(params=parameters),
        trainer=_later(config.trainer),
        seed=config.seed,
        strict=config.strict,
        physical_batch_size=config.physical_batch_size,
        resume=config.resume,
        config=_plain(config),
        vary=_vary,
        **parts,
    )


def _vary(overrides: Sequence[str]) -> "Experiment":
    """The experiment of this command line with more overrides at its end, and task=train."""
    given = [override for override in HydraConfig.get().overrides.task if not _is_of_task(override)]
    composed = GlobalHydra.instance().hydra
    assert composed is not None
    config = composed.compose_config(
        "config", [*given, *overrides], RunMode.RUN, from_shell=False, with_log_configuration=False
    )
    return experiment_of(config)


def experiment_of(config: DictConfig) -> "Experiment":
    """The experiment of a composed configuration that still has Hydra's own group; all groups are checked."""
    name = config.hydra.runtime.choices.get("experiment")
    with open_dict(config):
        del config["hydra"]
    experiment = _experiment(config, name)
    for group in _HEAVY:
        check_group(config, group)
    return experiment


def _is_of_task(override: str) -> bool:
    return override.lstrip("+~").split("=")[0].split(".")[0] == "task"


def _later(node: DictConfig) -> Any:
    """A partial of the node's target that shows its keywords, and imports it only when called."""
    keys = _plain(node)
    keywords = {key: value for key, value in keys.items() if not key.startswith("_")}
    return functools.partial(_call, keys["_target_"], **keywords)


def _plain(node: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _call(target: str, **keywords: Any) -> Any:
    return trusted_object("trainer._target_", target)(**keywords)
