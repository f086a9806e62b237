"""Objects as the configuration that would make them: plain values, for the record of what ran."""

import dataclasses
import functools
import inspect
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, final

__all__ = ["Named", "as_config", "import_path"]


@final
@dataclass(frozen=True)
class Named:
    """A class or function by its import path, which is imported when it is called."""

    path: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What it makes."""
        return pkgutil.resolve_name(self.path)(*arguments, **keywords)


def as_config(value: Any) -> Any:
    """Plain values, as YAML has them; what a call makes is its `_target_` with its keys.

    A function that has no name of its own is recorded with its source, where that can be read.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {str(key): as_config(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [as_config(part) for part in value]
    if isinstance(value, functools.partial):
        return _partial(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"_target_": import_path(type(value))} | {
            field.name: as_config(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return as_config(value.item())  # a number of NumPy's
    if isinstance(value, PurePath):
        return str(value)
    return _named(value)


def import_path(thing: Any) -> str:
    """The shortest name that a class or function is known by: `dpexp.data.Digits`, say."""
    if isinstance(thing, Named):
        return thing.path
    module, name = str(thing.__module__), str(thing.__qualname__)
    parts = module.split(".")
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if getattr(sys.modules.get(package), name, None) is thing:
            return f"{package}.{name}"
    return f"{module}.{name}"


def _partial(value: "functools.partial[Any]") -> dict[str, Any]:
    arguments = {"_args_": as_config(value.args)} if value.args else {}
    keywords = {key: as_config(part) for key, part in value.keywords.items()}
    return {"_target_": import_path(value.func), "_partial_": True} | arguments | keywords


def _named(value: Any) -> dict[str, Any]:
    known = hasattr(value, "__qualname__")
    path = import_path(value if known else type(value))
    if not known or ("<" not in path and not path.startswith("__main__.")):
        return {"_target_": path}
    try:
        return {"_target_": path, "_source_": inspect.getsource(value)}
    except (OSError, TypeError):  # typed into an interpreter
        return {"_target_": path}
