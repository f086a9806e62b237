"""The data sets of `conf/data` by name, for use without the command line."""

import os
import re
from collections.abc import Mapping
from typing import Any

import yaml

from dpexp._validate import UserError, did_you_mean, refuse
from dpexp.data.dataset import Dataset
from dpexp.data.own import made
from dpexp.folders import conf_dir

__all__ = ["published"]

_ROOT = "${oc.env:DPEXP_DATA_DIR,null}"
_OTHER_KEY = re.compile(r"\$\{data\.(\w+)\}")


def published(name: str, **changes: Any) -> Dataset:
    """A data set as `data=name` on the command line has it, with some keys changed.

    Args:
        name: `mnist`, `fashion_mnist`, `cifar10`, `digits`, …: a file of `conf/data`.
        **changes: Keys of it, such as `shape=[1, 28, 28]`.

    Raises:
        UserError: There is no such data set or key, or a value is impossible.
    """
    files = {path.stem: path for path in (conf_dir() / "data").glob("*.yaml")}
    if name not in files:
        raise refuse("data", name, f"one of {', '.join(sorted(files))}", did_you_mean(name, files))
    keys = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    for key in changes:
        if key not in keys:
            raise refuse(f"data.{key}", changes[key], f"a key of {files[name]}", did_you_mean(key, keys))
    keys |= changes
    found = made("data", _resolved(keys, keys))
    assert isinstance(found, Dataset)
    return found


def _resolved(node: Any, keys: Mapping[str, Any]) -> Any:
    """Without the interpolations that `conf/data` uses."""
    if isinstance(node, Mapping):
        return {name: _resolved(value, keys) for name, value in node.items()}
    if node == _ROOT:
        return os.environ.get("DPEXP_DATA_DIR")
    if node == "???":
        raise UserError("data: a key is ??? in this file and has no default; make the object itself.")
    other = _OTHER_KEY.fullmatch(node) if isinstance(node, str) else None
    return node if other is None else keys[other[1]]
