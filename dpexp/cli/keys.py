"""No key is merged silently: every one must be a parameter of the object that its group makes."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf

from dpexp import _validate
from dpexp.folders import conf_dir
from dpexp.trust import trusted_object

__all__ = ["check_group", "check_root", "key_of", "refuse_missing", "refuse_values_of_groups"]

_OF_NO_OBJECT = ("experiment", "sweep")  # their files set keys of other groups
_NO_NAME = r"null|true|false|[+-]?(nan|inf)|[+-]?[\d.]+(e[+-]?\d+)?|\{.*"


def check_root(config: DictConfig, folder: Path) -> None:
    """Refuses keys at the top that `conf/config.yaml` does not have, and groups that make nothing."""
    written = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    groups = [next(iter(entry)) for entry in written.pop("defaults") if isinstance(entry, dict)]
    given = _plain(config, resolve=False)
    _refuse_unknown("", given, {*groups, *written} - {"hydra"})
    for group in groups:
        if group != "hydra" and "_target_" not in (given.get(group) or {}):
            expected = f"the class or function to make it with, which {group}=NAME gives"
            raise _validate.UserError(
                f"{group}: found no _target_, expected {expected}.\n{_made_anew(group)}"
            )


def check_group(config: DictConfig, group: str) -> None:
    """Refuses keys of a group that its constructor does not take, and misses those it needs."""
    _check_node(group, _plain(config[group], resolve=True))


def refuse_missing(config: DictConfig) -> None:
    """Refuses a configuration in which keys still wait for the user's value, and names all of them."""
    missing = sorted(_missing("", _plain(config, resolve=False)))
    if missing:
        groups = sorted({key.split(".")[0] for key in missing})
        raise _validate.UserError(
            f"{', '.join(missing)}: found no value, expected one for each.\nSet {missing[0]}=… and so on; "
            f"--cfg job shows the keys of {', '.join(groups)}, and its file in conf/ what they mean."
        )


def key_of(override: str) -> str:
    """What an override sets or chooses, without its sign and its package."""
    return re.split("[@=]", override.lstrip("+~"))[0]


def refuse_values_of_groups(overrides: Sequence[str]) -> None:
    """Refuses `model=null` and `data=5`, for which Hydra has a traceback, and `model={…}`."""
    groups = {entry.name for entry in conf_dir().iterdir() if entry.is_dir()}
    for override in overrides:
        group, value = key_of(override), override.partition("=")[2]
        if not group:
            raise _validate.UserError(f"{override}: found no key, expected key=value.")
        if (group in groups or "/" in group) and re.fullmatch(_NO_NAME, value, re.IGNORECASE):
            hint = "" if "/" in group or group in _OF_NO_OBJECT else _made_anew(group)
            raise _validate.refuse(group, value, "the name of a file", hint)


def _made_anew(group: str) -> str:
    return f"~{group} leaves the group out; +{group}._target_=mine.Class and so on then make it anew."


def _missing(path: str, node: Any) -> Iterator[str]:
    """OmegaConf's `missing_keys` resolves, and stops at the first key that another one refers to."""
    if node == MISSING:
        yield path
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _missing(f"{path}.{key}".lstrip("."), value)


def _check_node(path: str, node: Any) -> None:
    if isinstance(node, list):
        for index, value in enumerate(node):
            _check_node(f"{path}.{index}", value)
    if not isinstance(node, Mapping):
        return
    target = node.get("_target_")
    if target is not None:
        _check_arguments(path, node, _signature(path, target))
    for key, value in node.items():
        _check_node(f"{path}.{key}", value)


def _check_arguments(path: str, node: Mapping[str, Any], signature: inspect.Signature) -> None:
    parameters = signature.parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        _refuse_unknown(f"{path}.", node, set(signature.parameters))
    needed = {
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    missing = needed - set(node)
    if missing and not node.get("_partial_"):
        names = ", ".join(f"{path}.{name}" for name in sorted(missing))
        raise _validate.UserError(f"{path}: {node['_target_']} also needs {names}; set it there.")


def _refuse_unknown(prefix: str, node: Mapping[str, Any], allowed: set[str]) -> None:
    for key in node:
        if key not in allowed and not str(key).startswith("_"):
            expected = f"a key that is taken: {', '.join(sorted(allowed))}"
            hint = _validate.did_you_mean(str(key), allowed)
            if prefix:  # of a group, whose file or experiment may have been written for another _target_
                hint = f"{hint} ~{prefix}{key} leaves it out.".lstrip()
            raise _validate.refuse(f"{prefix}{key}", node[key], expected, hint)


def _signature(path: str, target: str) -> inspect.Signature:
    return inspect.signature(trusted_object(f"{path}._target_", target))


def _plain(config: Any, *, resolve: bool) -> Any:
    return OmegaConf.to_container(config, resolve=resolve) if OmegaConf.is_config(config) else config
