"""`Options`: root keys that say how a run is computed and shown. None of them moves its guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, final

from dpexp import _validate

__all__ = ["Options"]


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is computed and shown, apart from its plan.

    Attributes:
        ema: Decay in [0, 1) of an average of the weights, which is then what is evaluated; None for none.
    """

    ema: float | None = None

    def __post_init__(self) -> None:
        if self.ema is not None:
            hint = "It is the decay of the average of the weights, such as 0.99; null for none."
            _validate.number("ema", self.ema, at_least=0, below=1, hint=hint)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Those among the root keys of a configuration."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in config.items() if name in names})
