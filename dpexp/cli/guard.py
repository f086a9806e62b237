"""What a configuration may make Hydra do: every composed one is checked before anything of it is used.

Hydra itself makes objects of its own group (launchers, sweepers, callbacks, log handlers) and sets
environment variables before `dpexp` is called, so that the check is where configurations are composed.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers.oc import select

from dpexp import _validate
from dpexp.cli.keys import key_of, refuse_values_of_groups
from dpexp.trust import HYDRA, require_trusted_names, trusted_object

__all__ = ["check_composed", "install"]

# Exact names: dictConfig would find `logging.os.system` too.
_LOGGING = (
    "logging.StreamHandler",
    "logging.FileHandler",
    "logging.NullHandler",
    "logging.Formatter",
    "logging.handlers.RotatingFileHandler",
    "logging.handlers.TimedRotatingFileHandler",
)
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_SETTABLE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
_READABLE = ("HOME", "USER", "LOGNAME", "HOSTNAME", "PWD", "TMPDIR", "CUDA_VISIBLE_DEVICES")
_READABLE_PREFIXES = ("DPEXP_", "SLURM_")
_MISSING = object()


def install() -> None:
    """Makes Hydra check what it composes, and takes resolvers away that would get around the check."""
    if not getattr(ConfigLoaderImpl.load_configuration, "checked", False):
        ConfigLoaderImpl.load_configuration = _checked(  # type: ignore[method-assign]
            ConfigLoaderImpl.load_configuration
        )
    for maker_of_nodes in ("oc.create", "oc.decode"):  # they turn text into mappings, `_target_` included
        OmegaConf.clear_resolver(maker_of_nodes)
    OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
    OmegaConf.register_new_resolver("oc.select", _selected, replace=True)


def check_composed(config: Any) -> None:
    """Refuses what would run code that nobody trusted.

    Args:
        config: A composed configuration, with or without Hydra's own group; not yet resolved.

    Raises:
        UserError: A name that is not trusted, a factory of log handlers, or an environment variable.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    hydra = plain.pop("hydra", None) or {}
    require_trusted_names(plain)
    require_trusted_names(hydra, "hydra.", HYDRA)
    _import_what_hydra_makes(hydra, "hydra.")
    for group in ("hydra_logging", "job_logging"):
        _check_logging(f"hydra.{group}", hydra.get(group))
    for name, value in ((hydra.get("job") or {}).get("env_set") or {}).items():
        if name not in _SETTABLE:
            expected = f"one of {', '.join(_SETTABLE)}"
            raise _validate.refuse(f"hydra.job.env_set.{name}", value, expected, "Set it in your shell.")


def _checked(load: Callable[..., DictConfig]) -> Callable[..., DictConfig]:
    @functools.wraps(load)
    def checked(
        loader: Any, config_name: str | None, overrides: list[str], *rest: Any, **more: Any
    ) -> DictConfig:
        refuse_values_of_groups(overrides)
        try:
            config = load(loader, config_name, overrides, *rest, **more)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise _validate.UserError(f"A configuration file cannot be read: {error}.") from error
        except ConfigCompositionException as error:
            with contextlib.suppress(HydraException):  # a choice was wrong, not a value
                chosen = load(loader, config_name, _choices(loader, overrides), *rest, **more)
                error.chosen = OmegaConf.to_container(chosen, resolve=False)  # type: ignore[attr-defined]
            raise
        check_composed(config)
        return config

    checked.checked = True  # type: ignore[attr-defined]
    return checked


def _choices(loader: Any, overrides: list[str]) -> list[str]:
    """Those that choose a file of a group."""
    groups = loader.list_groups("")
    return [override for override in overrides if "/" in (key := key_of(override)) or key in groups]


def _import_what_hydra_makes(node: Any, path: str) -> None:
    """Launchers and the like are imported by Hydra in any case; here it is seen where they lead."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            trusted_object(f"{path}_target_", node["_target_"], HYDRA)
        for key, value in node.items():
            _import_what_hydra_makes(value, f"{path}{key}.")


def _check_logging(path: str, node: Any) -> None:
    if isinstance(node, str) and node.startswith("ext://") and node not in _STREAMS:
        raise _validate.refuse(path, node, f"one of {', '.join(_STREAMS)}")
    if isinstance(node, list):
        for value in node:
            _check_logging(path, value)
    if not isinstance(node, Mapping):
        return
    if "()" in node:
        trusted_object(f"{path}.()", node["()"])
    if "class" in node and node["class"] not in _LOGGING:
        raise _validate.refuse(f"{path}.class", node["class"], f"one of {', '.join(_LOGGING)}")
    for key, value in node.items():
        _check_logging(f"{path}.{key}", value)


def _selected(key: str, default: Any = None, *, _parent_: Any) -> Any:
    """`oc.select`, with a default that makes no nodes."""
    if not isinstance(default, str | int | float | bool | None):
        raise _validate.refuse("oc.select", default, "a plain default: mappings may not come from text")
    return select(key, default, _parent_=_parent_)


def _environment(name: str, default: Any = _MISSING) -> Any:
    """`oc.env`, for names that hold no secrets: what it gives is logged, and sent to the store."""
    if name not in _READABLE and not name.startswith(_READABLE_PREFIXES):
        expected = f"the name of a variable that begins with {' or '.join(_READABLE_PREFIXES)}"
        hint = f"Its value would be logged. If it is no secret: export DPEXP_{name}, and read that."
        raise _validate.refuse("oc.env", name, expected, hint)
    if default is _MISSING and name not in os.environ:
        raise _validate.refuse("oc.env", name, "a variable that is set, or a default after a comma")
    return os.environ.get(name, None if default is _MISSING else default)
