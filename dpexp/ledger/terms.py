"""What must not change between the start of a run and its resumption, as text that can be compared."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self, final

from dpexp.plan import PrivacyPlan

__all__ = ["Terms"]

_GROUPS = (
    "data",
    "features",
    "model",
    "privacy",
    "sampling",
    "accountant",
    "optimizer",
    "schedule",
    "budget",
    "seed",
    "strict",
    "ema",
    "views",
)
# What a run that declared a filter may change: T, and what is said of it.
_OF_T = (
    "privacy.steps",
    "privacy.epochs",
    "budget.order",
    "plan.steps",
    "plan.steps_asked",
    "plan.guarantee.terms",
)
_SAID = (
    "plan.guarantee.terms.in_words",
    "plan.guarantee.terms.statement",
)  # of a shared budget, by its store
_MOVABLE = ("data.root", "data.mirrors", "data.npm_package")  # where the same files lie


@final
@dataclass(frozen=True)
class Terms:
    """All that prices a run, and all that makes its model, by dotted keys.

    Keys of the configuration come as they are written; `plan.…` is the plan they came to, exactly.
    """

    values: Mapping[str, Any]

    @classmethod
    def of(cls, plan: PrivacyPlan, config: Mapping[str, Any]) -> Self:
        """The terms of a plan that was made from a configuration."""
        chosen = dict(_flat({group: config[group] for group in _GROUPS if group in config}))
        filtered = plan.guarantee is not None and plan.guarantee.terms.declares_filter
        dropped = (*_MOVABLE, *_SAID, *(_OF_T if filtered else ()))
        values = chosen | dict(_flat({"plan": _plain(plan)}))
        return cls.read(json.dumps({key: value for key, value in values.items() if not _below(key, dropped)}))

    @classmethod
    def read(cls, text: str) -> Self:
        """The terms that `text` wrote.

        Raises:
            ValueError: They are no terms.
        """
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("Terms are a JSON object.")
        return cls(values)

    @property
    def text(self) -> str:
        """One line for each key, sorted: equal terms are equal texts."""
        return json.dumps(self.values, indent=0, sort_keys=True, ensure_ascii=True) + "\n"

    @property
    def hash(self) -> bytes:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).digest()

    def difference(self, now: "Terms") -> list[str]:
        """A line `key: before → now` for each key in which `now` differs."""
        keys = sorted({*self.values, *now.values})
        pairs = ((key, self.values.get(key, _ABSENT), now.values.get(key, _ABSENT)) for key in keys)
        return [f"{key}: {before} → {after}" for key, before, after in pairs if before != after]


_ABSENT = "(absent)"


def _below(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, Sequence) and not isinstance(node, str) and node:
        for index, value in enumerate(node):
            yield from _flat(value, f"{path}.{index}")
    else:
        yield path, node


def _plain(value: Any) -> Any:
    """Any part of a plan as plain values, floats in full."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, Enum) else value
    if isinstance(value, float):
        return repr(value)  # JSON has no ∞
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [_plain(part) for part in value]
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return {"is": type(value).__qualname__} | {f.name: _plain(getattr(value, f.name)) for f in fields}
