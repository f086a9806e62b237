"""A sweep whose jobs are all known before the first one: which they are, and what files make them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

__all__ = ["Listing"]


@final
@dataclass(frozen=True)
class Listing:
    """The list of Hydra's basic sweeper.

    Attributes:
        jobs: The command line of each job, by its number.
        configurations: What the files come to, as text, for each choice among swept groups: with the command
            line they say what every job is.
    """

    jobs: Sequence[Sequence[str]]
    configurations: Sequence[str]

    @classmethod
    def of(cls, config: DictConfig, hydra: Hydra) -> Self:
        """The list of a multirun.

        Args:
            config: As composed for the multirun.
            hydra: What composes the jobs.

        Raises:
            HydraException: A sweep is no list, or a configuration cannot be composed.
        """
        given = [f"{key}={values}" for key, values in (config.hydra.sweeper.params or {}).items()]
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        overrides = parser.parse_overrides([*given, *config.hydra.overrides.task])
        name = config.hydra.job.config_name
        bases = _product([override for override in overrides if _decides_files(override, hydra)])
        return cls(_product(overrides), [_composed(hydra, name, base) for base in bases])


def _product(overrides: list[Override]) -> list[list[str]]:
    return BasicSweeper.split_arguments(overrides, None)[0]


def _decides_files(override: Override, hydra: Hydra) -> bool:
    """Swept values of plain keys stand in the command line in full."""
    group = override.key_or_group
    return not override.is_sweep_override() or bool(hydra.config_loader.get_group_options(group))


def _composed(hydra: Hydra, name: str, overrides: list[str]) -> str:
    config = hydra.compose_config(
        name, overrides, RunMode.RUN, from_shell=False, with_log_configuration=False
    )
    plain: Any = OmegaConf.to_container(config, resolve=False)
    kept = {key: value for key, value in plain.items() if key not in ("hydra", "resume")}
    return json.dumps(kept, sort_keys=True, default=str)
