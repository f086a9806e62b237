"""From a composed configuration to an `Experiment`, and from a command line to the configuration."""

import functools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from dpexp._validate import UserError
from dpexp.cli.guard import check_composed
from dpexp.cli.keys import check_group, check_root, refuse_missing
from dpexp.folders import conf_dir
from dpexp.tracking.tags import COMMAND_TAG, OVERRIDES_TAG
from dpexp.trust import require_trusted_names, trusted_object

if TYPE_CHECKING:
    from dpexp.experiment import Experiment

__all__ = ["composed_experiment", "conf_dir", "current_hydra", "experiment_of", "flags_of", "rerun_overrides"]

_PARTS = ("data", "features", "privacy", "sampling", "accountant", "budget", "schedule", "tracking")
_HEAVY = ("model", "optimizer", "trainer")
_LONGEST_TAG = 5000  # characters that every store takes


def current_hydra() -> Hydra:
    """What composes the configurations of this command line."""
    found = GlobalHydra.instance().hydra
    assert found is not None
    return found


def experiment_of(config: DictConfig, chosen: Any, overrides: Sequence[str]) -> "Experiment":
    """The experiment that a configuration describes; no torch is imported.

    Args:
        config: Composed, without Hydra's own group.
        chosen: Hydra's own group, of the same composition.
        overrides: The command line it was composed from.

    Raises:
        UserError: It names what is not trusted, or a key that nothing takes.
    """
    from dpexp.experiment import Experiment

    check_composed(config)
    check_root(config, conf_dir())
    refuse_missing(config)
    require_trusted_names(_plain(config))  # what interpolations came to, too
    for group in ("task", *_PARTS):
        check_group(config, group)
    parts = {name: _part(config, name) for name in _PARTS}
    return Experiment(
        name=chosen.runtime.choices.get("experiment") or "adhoc",
        model=functools.partial(instantiate, config.model, _convert_="all"),
        optimizer=lambda parameters: instantiate(config.optimizer, _convert_="all")(params=parameters),
        trainer=_later(config.trainer),
        seed=config.seed,
        strict=config.strict,
        physical_batch_size=config.physical_batch_size,
        resume=config.resume,
        config=_plain(config),
        vary=_vary,
        tags=_command_tags([*flags_of(chosen), *rerun_overrides(overrides)]),
        **parts,
    )


def composed_experiment(hydra: Hydra, overrides: Sequence[str], name: str = "config") -> "Experiment":
    """The experiment of another command line, under the same search path and primary configuration `name`."""
    config = hydra.compose_config(
        name, list(overrides), RunMode.RUN, from_shell=False, with_log_configuration=False
    )
    chosen = config.hydra
    with open_dict(config):
        del config["hydra"]
    experiment = experiment_of(config, chosen, overrides)
    for group in _HEAVY:
        check_group(config, group)
    return experiment


def flags_of(chosen: Any) -> list[str]:
    """What stands before the overrides, so that the same files are found; `chosen` is Hydra's own group."""
    sources = [source for source in chosen.runtime.config_sources if source.provider == "command-line"]
    name = chosen.job.config_name
    flags = [part for source in sources for part in ("--config-dir", source.path)]
    return flags if name == "config" else [*flags, "--config-name", name]


def rerun_overrides(overrides: Sequence[str]) -> list[str]:
    """What makes the same run again, alone and from its start."""
    kept = [override for override in overrides if _key(override) not in ("resume", "hydra.mode")]
    in_sweep_file = any(_key(override) == "sweep" for override in kept)
    return [*kept, "hydra.mode=RUN"] if in_sweep_file else kept


def _vary(overrides: Sequence[str]) -> "Experiment":
    """The experiment of this command line with more overrides at its end, and task=train."""
    chosen: Any = HydraConfig.get()
    given = [o for o in chosen.overrides.task if _key(o).split(".")[0] != "task"]
    return composed_experiment(current_hydra(), [*given, *overrides], chosen.job.config_name)


def _part(config: DictConfig, name: str) -> Any:
    """One group, made; what a stage of a chain refuses is named by the key of the stage."""
    try:
        return instantiate(config[name], _convert_="all")
    except InstantiationException:
        stages = config[name].get("stages")
        if isinstance(stages, DictConfig):
            for stage in stages:
                _made_as_a_stage(f"{name}.stages.{stage!s}", name, stages[stage])
        raise


def _made_as_a_stage(path: str, group: str, keys: DictConfig | None) -> None:
    try:
        instantiate(keys, _convert_="all")
    except InstantiationException as error:
        if not isinstance(error.__cause__, UserError):
            raise
        raise UserError(re.sub(rf"\b{group}\.(?!stages)", f"{path}.", str(error.__cause__))) from error


def _command_tags(overrides: Sequence[str]) -> Mapping[str, str]:
    tags = {
        COMMAND_TAG: shlex.join(["python", "-m", "dpexp", *overrides]),
        OVERRIDES_TAG: json.dumps(list(overrides), ensure_ascii=False),
    }
    return {key: value for key, value in tags.items() if len(value) <= _LONGEST_TAG}


def _key(override: str) -> str:
    return override.lstrip("+~").split("=")[0]


def _later(node: DictConfig) -> Any:
    """A partial of the node's target that shows its keywords, and imports it only when called."""
    keys = _plain(node)
    keywords = {key: value for key, value in keys.items() if not key.startswith("_")}
    return functools.partial(_call, keys["_target_"], **keywords)


def _call(target: str, **keywords: Any) -> Any:
    return trusted_object("trainer._target_", target)(**keywords)


def _plain(node: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
