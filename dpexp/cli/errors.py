"""One screen for one mistake: the key, the value found, what is allowed, what was probably meant."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dpexp._validate import UserError, did_you_mean

__all__ = ["explain"]

_FOOTER = "(HYDRA_FULL_ERROR=1 shows the traceback.)"


def explain(error: BaseException, folder: Path) -> str:
    """What to print for an error that Hydra, OmegaConf or dpexp raised.

    Args:
        error: The error, with its causes.
        folder: The configuration folder, searched for what was probably meant.
    """
    for cause in _causes(error):
        if isinstance(cause, UserError):
            return f"dpexp: {cause}\n{_FOOTER}"
    text = "\n".join(line for line in str(error).splitlines() if line.strip())
    hint = _hint(text, folder)
    return "\n".join(part for part in (f"dpexp: {text}", hint, _FOOTER) if part)


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _hint(text: str, folder: Path) -> str:
    if override := re.search(r"Could not override '([\w.@/]+)'", text):
        return _meant_key(override[1], folder)
    if option := re.search(r"Could not (?:find|load) '([\w./-]+)'", text):
        group, _, name = option[1].rpartition("/")
        return did_you_mean(name, _options(group, folder))
    return ""


def _meant_key(path: str, folder: Path) -> str:
    group, _, rest = path.partition(".")
    if not rest:
        return did_you_mean(group, [*_groups(folder), *_keys(folder / "config.yaml")])
    keys = {key for file in sorted((folder / group).glob("*.yaml")) for key in _keys(file)}
    if not keys:
        return did_you_mean(group, _groups(folder))
    hint = did_you_mean(rest, keys)
    return hint.replace("mean ", f"mean {group}.") if hint else f"Keys of {group}: {', '.join(sorted(keys))}."


def _groups(folder: Path) -> list[str]:
    return [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir()]


def _options(group: str, folder: Path) -> list[str]:
    return [file.stem for file in sorted((folder / group).glob("*.yaml"))]


def _keys(file: Path, prefix: str = "") -> list[str]:
    return list(_dotted(yaml.safe_load(file.read_text(encoding="utf-8")) or {}, prefix))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items():
        if not str(key).startswith("_") and key != "defaults":
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from _dotted(value, f"{prefix}{key}.")
