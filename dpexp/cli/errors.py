"""One screen for one mistake: the key, the value found, what is allowed, what was probably meant."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from dpexp._validate import UserError, did_you_mean, refuse

__all__ = ["Refused", "explain"]

_FOOTER = "(HYDRA_FULL_ERROR=1 shows the traceback.)"


_SPLIT = "With spaces in it, one is put into quotes: 'model.hidden_units=[64, 32]'."


class Refused(BaseException):
    """A user's mistake on its way out, past Hydra's own report of all overrides."""


def explain(error: BaseException, folder: Path) -> str:
    """What to print for an error that Hydra, OmegaConf or dpexp raised.

    Args:
        error: The error, with its causes.
        folder: The configuration folder, searched for what was probably meant.
    """
    for cause in _causes(error):
        if isinstance(cause, UserError):
            return f"dpexp: {cause}\n{_FOOTER}"
    override = getattr(error, "override", None)  # Hydra's parser says which of the arguments it was
    lines = next((str(cause).splitlines() for cause in _causes(error) if str(cause).strip()), [])
    if override:
        lines = [f"cannot read the override {override}", *lines, _instead(override)]
    text = "\n".join(line for line in lines if line.strip())
    return f"dpexp: {_translated(error, text, folder)}\n{_FOOTER}"


def _instead(override: str) -> str:
    """What to write in its place: the same with its value in quotes, where Hydra's grammar can read that."""
    key, separator, value = override.partition("=")
    if (
        not separator
        or key != key.strip()
        or value.count("[") + value.count("{") > len(re.findall(r"[]}]", value))
    ):
        return f"Arguments have the form key=value, as in seed=1. {_SPLIT}"
    escaped = value.replace("\\", r"\\").replace('"', r"\"")
    suggested = f'{key}="{escaped}"'
    try:
        OverridesParser.create().parse_override(suggested)
    except HydraException:
        return ""
    return f"If the value is a text, it needs quotes of its own: {shlex.quote(suggested)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _translated(error: BaseException, text: str, folder: Path) -> str:
    """Hydra's wording of the two commonest mistakes in dpexp's style; its own words for the rest."""
    if override := re.search(r"Could not override '([\w.@/]+)'", text):
        value = re.search(rf"\+{re.escape(override[1])}=(.*)", text)
        return str(_unknown_key(override[1], value[1] if value else "", folder, getattr(error, "chosen", {})))
    if option := re.search(r"Could not (?:find|load) '([\w./-]+)'", text):
        group, _, name = option[1].rpartition("/")
        options = sorted({*_options(group, folder), *(getattr(error, "options", None) or [])})
        return str(refuse(group, name, f"one of {_listed(options)}", did_you_mean(name, options)))
    return text


def _unknown_key(path: str, value: str, folder: Path, chosen: Any) -> UserError:
    """Names what stands beside it in the configuration `chosen`, which is the same without values."""
    group, _, rest = path.partition(".")
    if group == "experiment":
        return UserError(
            f"experiment={value}: expected +experiment={value}, since it is added to the defaults."
        )
    if rest and group not in chosen and group in _groups(folder):
        left_out = f"~{group} leaves the whole group out, and {group}=NAME chooses a file of it."
        return refuse(path, value, f"a group {group} to set it in", left_out)
    if group not in chosen:
        allowed = [*_groups(folder), *_keys(folder / "config.yaml")]
        return refuse(path, value, f"a group or key: {_listed(allowed)}", did_you_mean(group, allowed))
    parent, node, name = group, chosen[group], rest
    while isinstance(node, Mapping) and (first := name.partition(".")[0]) in node:
        parent, node, name = f"{parent}.{first}", node[first], name.partition(".")[2]
    keys = (
        sorted(str(key) for key in node if not str(key).startswith("_")) if isinstance(node, Mapping) else []
    )
    elsewhere = [key for key in _dotted(chosen[group], f"{group}.") if key.endswith(f".{name}")]
    elsewhere += [f"{group}={file.stem}" for file in (folder / group).glob("*.yaml") if rest in _keys(file)]
    hint = f"It is in {_listed(sorted(elsewhere))}." if elsewhere else did_you_mean(name, keys)
    if not isinstance(node, Mapping):
        hint = f"{parent} is {node!r}, which has no keys: set it whole. {hint}"
    elif not hint:
        hint = f"+{path}=… adds a key that no file names, if the class takes it."
    return refuse(path, value, f"a key of {parent}: {_listed(keys)}", hint)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "(nothing)"


def _groups(folder: Path) -> list[str]:
    return [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir()]


def _options(group: str, folder: Path) -> list[str]:
    own = {file.stem for file in (folder / group).glob("*.yaml")}
    return sorted(own | set(_of_plugins(group)))


def _of_plugins(group: str) -> list[str]:
    """Launchers and sweepers come with Hydra and its plugins; they have no file in the folder."""
    stored = ConfigStore.instance()
    try:
        return [Path(name).stem for name in stored.list(group) if name.endswith(".yaml")]
    except OSError:  # a group that no plugin adds to
        return []


def _keys(file: Path, prefix: str = "") -> list[str]:
    return list(_dotted(yaml.safe_load(file.read_text(encoding="utf-8")) or {}, prefix))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if not str(key).startswith("_") and key != "defaults":
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")
