"""What is tried on random rows of the declared shape before private ones are touched."""

import copy
import math

import torch
from rich.console import Console
from torch import Tensor

from dpexp import _validate
from dpexp.augmentation import Views
from dpexp.experiment import Experiment
from dpexp.features import NoFeatures
from dpexp.gradients import Checked
from dpexp.inference import random_rows
from dpexp.memory import largest_batch
from dpexp.module import DPModule
from dpexp.options import Options

__all__ = ["check_module", "fit_into_memory", "options_of", "views_of"]

_CHECKED_ROWS = 5  # random rows of the behavioural check


def options_of(experiment: Experiment) -> Options:
    """How it is computed and shown."""
    assert experiment.options is not None
    return experiment.options


def views_of(experiment: Experiment) -> Views | None:
    """Its augmented views, if it has any."""
    options = options_of(experiment)
    if options.views is None:
        return None
    return Views(count=options.views["count"], transform=options.transform())


def check_module(module: DPModule, experiment: Experiment) -> Checked:
    """The optimizer can be made; and the behavioural check, on random rows of the declared shape."""
    module.configure_optimizers()
    inputs, targets = _random_rows(experiment, _CHECKED_ROWS)
    _check_outputs(
        module, inputs if views_of(experiment) is None else inputs[:, 0], experiment.data.num_classes
    )
    checked = module.check(inputs, targets)
    if options_of(experiment).compile is not None:
        module.rehearse(inputs, targets)  # the model itself, random layers and precision included
    return checked


def _check_outputs(module: DPModule, inputs: Tensor, num_classes: int) -> None:
    trial = copy.deepcopy(module.model).eval()
    with torch.no_grad():
        shape = tuple(trial(inputs).shape)
    if len(shape) != 2 or shape[0] != len(inputs) or shape[1] != num_classes:
        expected = (
            f"({len(inputs)}, {num_classes}): one row of data.num_classes = {num_classes} logits an example"
        )
        raise _validate.refuse("model: shape of its outputs", shape, expected)


def fit_into_memory(console: Console, module: DPModule, experiment: Experiment) -> None:
    """Replaces `physical_batch_size: auto` by what fits, found on random rows."""
    if experiment.physical_batch_size != "auto":
        return
    largest = max(lot.size for lot in module.plan.step(0).lots)
    module.physical_batch_size = largest_batch(
        lambda rows: module.rehearse(*_random_rows(experiment, rows)),
        memory_mb=options_of(experiment).memory_mb,
        at_most=math.ceil(2 * largest),
    )
    console.print(f"physical_batch_size: {module.physical_batch_size} examples fit into memory_mb")


def _random_rows(experiment: Experiment, rows: int) -> tuple[Tensor, Tensor]:
    """Random examples of the declared shape and type: never private ones."""
    views = options_of(experiment).views
    count = (rows,) if views is None else (rows, views["count"])
    return _random_inputs(experiment, count), torch.randint(experiment.data.num_classes, (rows,))


def _random_inputs(experiment: Experiment, count: tuple[int, ...]) -> Tensor:
    if isinstance(experiment.features, NoFeatures):
        return random_rows(count, experiment.data.input_shape, experiment.data.vocabulary)
    return random_rows(count, (experiment.features.dimensions,), None)
