"""`Options`: root keys that say how a run is computed and shown. None of them moves its guarantee."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, final

from dpexp import _validate
from dpexp.trust import trusted_object

__all__ = ["Checkpointing", "Options"]


@final
@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """The root key `checkpoint`.

    Attributes:
        every_seconds: Seconds >= 0 between checkpoints, by the monotonic clock; 0 for one after every lot.
        keep: How many of the newest stay, >= 0; 0 writes none.
    """

    every_seconds: float = 30.0
    keep: int = 2

    def __post_init__(self) -> None:
        _validate.number("checkpoint.every_seconds", self.every_seconds, at_least=0)
        keep = _validate.integer("checkpoint.keep", self.keep, at_least=0, hint="0 writes none.")
        object.__setattr__(self, "keep", keep)

    @classmethod
    def of(cls, keys: Any) -> Self:
        """From the value of the root key.

        Raises:
            UserError: There is another key. `monitor`, `mode` and the like choose by results on private
                data, which would have to be charged.
        """
        if not isinstance(keys, Mapping):
            raise _validate.refuse("checkpoint", keys, "{every_seconds: …, keep: …}")
        names = [field.name for field in fields(cls)]
        for key in keys:
            if key not in names:
                hint = (
                    "The newest checkpoints are kept. Choosing one by a metric is a choice made on results: "
                    "on private data it would have to be charged."
                )
                expected = f"one of {', '.join(names)}"
                raise _validate.refuse(f"checkpoint.{key}", keys[key], expected, hint)
        return cls(**keys)


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is computed and shown, apart from its plan.

    Attributes:
        ema: Decay in [0, 1) of an average of the weights, which is then what is evaluated; None for none.
        memory_mb: MiB > 0 for the tensors of a microbatch, where `physical_batch_size` is `auto`.
        views: `count`, and `transform` with a `_target_`: augmented views of each example; None for none.
        compile: Backend of `torch.compile` for the gradients, such as `inductor`; None for book-keeping.
        checkpoint: How often the state of training is kept, and how many of the newest.
    """

    ema: float | None = None
    memory_mb: float = 1024
    views: Mapping[str, Any] | None = None
    compile: str | None = None
    checkpoint: Checkpointing = Checkpointing()

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
        found = {name: value for name, value in config.items() if name in names}
        if "checkpoint" in found:
            found["checkpoint"] = Checkpointing.of(found["checkpoint"])
        return cls(**found)


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
