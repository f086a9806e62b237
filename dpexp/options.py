"""`Options`: root keys that say how a run is computed and shown. None of them moves its guarantee."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, final

from dpexp import _validate
from dpexp.trust import trusted_object

__all__ = ["Options"]


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is computed and shown, apart from its plan.

    Attributes:
        ema: Decay in [0, 1) of an average of the weights, which is then what is evaluated; None for none.
        memory_mb: MiB > 0 for the tensors of a microbatch, where `physical_batch_size` is `auto`.
        views: `count`, and `transform` with a `_target_`: augmented views of each example; None for none.
    """

    ema: float | None = None
    memory_mb: float = 1024
    views: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.ema is not None:
            hint = "It is the decay of the average of the weights, such as 0.99; null for none."
            _validate.number("ema", self.ema, at_least=0, below=1, hint=hint)
        _validate.number("memory_mb", self.memory_mb, above=0)
        if self.views is not None:
            _check_views(self.views)

    def transform(self) -> Callable[..., Any]:
        """What makes the views of an example.

        Raises:
            UserError: It cannot be imported, or does not take its keys.
        """
        assert self.views is not None
        keys = dict(self.views["transform"])
        target = keys.pop("_target_")
        make = trusted_object("views.transform._target_", target)
        try:
            made: Callable[..., Any] = make(**keys)
        except TypeError as error:
            raise _validate.UserError(f"views.transform: {error}, expected the keys of {target}.") from error
        return made

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Those among the root keys of a configuration."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in config.items() if name in names})


def _check_views(views: Any) -> None:
    expected = "{count: K, transform: {_target_: …}} or null"
    if not isinstance(views, Mapping) or set(views) != {"count", "transform"}:
        raise _validate.refuse("views", views, expected)
    _validate.integer("views.count", views["count"], at_least=1)
    transform = views["transform"]
    if not isinstance(transform, Mapping) or not isinstance(transform.get("_target_"), str):
        raise _validate.refuse(
            "views.transform",
            transform,
            "a mapping with _target_, such as {_target_: "
            "dpexp.augmentation.Shifts, shape: [28, 28], pixels: 2}",
        )
