"""What an experiment is made of where nothing else is said: what `conf/config.yaml` chooses, as objects."""

import functools
from typing import Any

from dpexp import _validate
from dpexp.configuration import Named
from dpexp.schedules import AbstractSchedule, Constant

__all__ = ["check_factory", "default_model", "default_optimizer", "default_trainer", "own_learning_rate"]

Factory = functools.partial[Any]


def default_model(dimensions: int, num_classes: int) -> Factory:
    """`model=mlp`."""
    return functools.partial(
        Named("dpexp.models.MLP"), in_features=dimensions, hidden_units=[1000], out_features=num_classes
    )


def default_optimizer() -> Factory:
    """`optimizer=sgd`."""
    return functools.partial(Named("torch.optim.SGD"), lr=0.1, momentum=0.0, weight_decay=0.0)


def default_trainer() -> Factory:
    """`trainer=auto`."""
    return functools.partial(
        Named("pytorch_lightning.Trainer"),
        accelerator="auto",
        devices=1,
        precision="32-true",
        val_check_interval=100,
    )


def own_learning_rate(optimizer: Any) -> AbstractSchedule:
    """`schedule=constant`: the learning rate that an optimizer was given.

    Raises:
        UserError: It was given none that can be read.
    """
    rate = getattr(optimizer, "keywords", {}).get("lr")
    if rate is None:
        expected = "a schedule, such as Constant(0.1), or an optimizer made by functools.partial with lr=…"
        raise _validate.refuse("schedule", None, expected)
    return Constant(_validate.number("optimizer.lr", rate))


def check_factory(key: str, found: Any, example: str) -> None:
    """Refuses a finished model or optimizer, and what cannot be called.

    Raises:
        UserError: It is one.
    """
    if not callable(found) or (hasattr(found, "state_dict") and not isinstance(found, type)):
        raise _validate.UserError(
            f"{key} is a {type(found).__qualname__}: expected a function that makes one, such as {example}.\n"
            "Every run makes its own, under its seed: none goes on from the weights of another."
        )
