"""Which classes and functions a configuration may name by `_target_`.

A configuration is passed on between people, and naming `os.system` in one would run a stranger's command. So
names are taken from a short list of packages, which the user extends in the environment: a place that no
configuration file can write to.
"""

import os
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, final

from dpexp import _validate

__all__ = ["ENVIRONMENT", "HYDRA", "require_trusted_names", "trusted_object"]

ENVIRONMENT = "DPEXP_TRUSTED_TARGETS"
_NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")


@final
@dataclass(frozen=True)
class _Trusted:
    """What may be named: everything below `prefix` that is defined below `home`.

    Attributes:
        prefix: How the name begins, or all of it.
        home: Where the thing must be defined: `torch.nn.modules.module.functools.partial` is below `torch.nn`
            by name only.
        kind: The class that it must derive from, by its full name; None for any class or function.
        public: Only what the package `prefix` itself names, and nothing of the modules below it.
    """

    prefix: str
    home: str
    kind: str | None = None
    public: bool = False

    def covers(self, target: str) -> bool:
        """Whether a name is below this one."""
        if self.public:
            return target.rpartition(".")[0] == self.prefix
        return target == self.prefix or target.startswith(f"{self.prefix}.")


_CLASS = "builtins.object"  # which functions do not derive from by their own __mro__
# The rooms whose classes the config groups make; their modules hold much else.
_ROOMS = (
    "accounting",
    "accounting.composition",
    "accounting.pld",
    "augmentation",
    "budgets",
    "data",
    "features",
    "lots",
    "models",
    "optimizers",
    "privacy",
    "report",
    "reproduction",
    "schedules",
    "tasks",
    "tracking",
    "ui",
)
_ALWAYS = (
    *(_Trusted(f"dpexp.{room}", "dpexp", _CLASS, public=True) for room in _ROOMS),
    _Trusted("torch.nn", "torch.nn", "torch.nn.modules.module.Module"),
    _Trusted("torch.optim", "torch.optim", "torch.optim.optimizer.Optimizer"),
    _Trusted("pytorch_lightning.Trainer", "pytorch_lightning", "pytorch_lightning.trainer.trainer.Trainer"),
)
HYDRA = (
    _Trusted("hydra._internal.core_plugins", "hydra._internal.core_plugins"),
    _Trusted("hydra_plugins", "hydra_plugins"),
    _Trusted("optuna.samplers", "optuna"),
    _Trusted("dpexp.plugins", "dpexp.plugins"),
)
"""What Hydra makes of its own group: launchers, sweepers and callbacks."""


def require_trusted_names(node: Any, path: str = "", allowed: Sequence[_Trusted] = _ALWAYS) -> None:
    """Refuses each `_target_` in nested mappings and lists whose name is not trusted; imports nothing.

    Raises:
        UserError: A name is not below a trusted package, or is computed by an interpolation.
    """
    if isinstance(node, Mapping):
        if "_target_" in node:
            _rules(f"{path}_target_", node["_target_"], allowed)
        for key, value in node.items():
            require_trusted_names(value, f"{path}{key}.", allowed)
    elif isinstance(node, Sequence) and not isinstance(node, str | bytes):
        for index, value in enumerate(node):
            require_trusted_names(value, f"{path}{index}.", allowed)
    elif isinstance(node, bytes | PurePath):
        expected = "text, a number, true, false or null: YAML tags make objects"
        raise _validate.refuse(path.rstrip("."), node, expected)


def trusted_object(key: str, target: Any, allowed: Sequence[_Trusted] = _ALWAYS) -> Any:
    """The class or function of that name.

    Args:
        key: Where the name is set, for errors.
        target: Its import path.
        allowed: What is trusted besides what the user adds in the environment.

    Raises:
        UserError: The name is not trusted, cannot be imported, or leads out of the package it begins with.
    """
    rules = _rules(key, target, allowed)
    try:
        found = pkgutil.resolve_name(target)
    except Exception as error:  # of the module itself, too
        raise _validate.refuse(key, target, "something that can be imported", str(error)) from error
    if not any(_is_at_home(found, rule) for rule in rules):
        raise _refusal(key, target)
    return found


def _rules(key: str, target: Any, allowed: Sequence[_Trusted]) -> list[_Trusted]:
    """Those that the name falls under; at least one."""
    internal = any(
        rule.prefix.startswith("hydra.") for rule in allowed
    )  # Hydra's own begin with an underscore
    if isinstance(target, str) and (internal or _NAME.fullmatch(target)):
        rules = [*allowed, *_added_by_the_user()]
        found = [rule for rule in rules if rule.covers(target)]
        if found:
            return found
    raise _refusal(key, target)


def _added_by_the_user() -> list[_Trusted]:
    names = (name.strip() for name in os.environ.get(ENVIRONMENT, "").split(","))
    return [_Trusted(name, name.partition(".")[0]) for name in names if name]


def _is_at_home(found: Any, rule: _Trusted) -> bool:
    home = getattr(found, "__module__", None)
    if not callable(found) or not isinstance(home, str):
        return False
    if home != rule.home and not home.startswith(f"{rule.home}."):
        return False
    if rule.kind is None:
        return True
    return rule.kind in {f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())}


def _refusal(key: str, target: Any) -> _validate.UserError:
    package = str(target).rpartition(".")[0] or str(target)
    return _validate.refuse(
        key,
        target,
        "a class of dpexp, torch.nn, torch.optim, or of a package that you trust, by its literal name",
        f"If you know that code: export {ENVIRONMENT}={package} (names separated by commas). A configuration "
        "cannot do it for you: see docs/security.md.",
    )
