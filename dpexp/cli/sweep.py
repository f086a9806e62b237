"""Multirun: the parent run above the jobs, opened by Hydra's callback and closed by `main`.

Hydra calls `on_multirun_end` only where no job failed, and turns an exception in a callback into a warning.
So the callback only opens the parent; all else is done where nothing can prevent it.
"""

import contextlib
import functools
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from dpexp import _validate
from dpexp.cli.composition import composed_experiment, current_hydra
from dpexp.cli.errors import Refused
from dpexp.cli.keys import check_group
from dpexp.tracking.tags import COMMAND_TAG

if TYPE_CHECKING:
    from dpexp.budgets import DatasetBudget
    from dpexp.experiment import Experiment
    from dpexp.price import Price
    from dpexp.sweeps import Child, Job, Parent

__all__ = ["JobFailed", "job_of", "open_sweep", "sweeps_closed", "trains"]

_LISTED = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_OWN = "hydra_plugins.private_selection."  # keeps its runs to itself
_TRAINING = "dpexp.tasks.Train"


class JobFailed(Exception):
    """A job ended with an error, which it has already told."""


@final
class _Open:
    """The sweep of this process, if there is one."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()


_open = _Open()


@contextlib.contextmanager
def sweeps_closed() -> Iterator[None]:
    """Within the block a sweep may be opened; at its end it is priced and closed, whatever happened."""
    with contextlib.ExitStack() as stack:
        _open.stack = stack
        yield


def open_sweep(config: DictConfig) -> None:
    """Opens the parent of the jobs that are about to start.

    Args:
        config: Hydra's, of the multirun.

    Raises:
        Refused: It cannot be.
    """
    from dpexp.sweeps import opened

    sweeper = config.hydra.sweeper._target_
    if not trains(config) or sweeper.startswith(_OWN):
        return
    try:
        shared = None if sweeper == _LISTED else _budget_of_adaptive(config, sweeper)
        check_group(config, "tracking")
        parent = _open.stack.enter_context(
            opened(
                instantiate(config.tracking, _convert_="all"),
                config.hydra.runtime.choices.get("experiment") or "adhoc",
                asked=_asked(config),
                tags={COMMAND_TAG: shlex.join(["python", "-m", "dpexp", "-m", *_without_resume(config)])},
                resume=config.resume,
            )
        )
    except (_validate.UserError, HydraException) as error:
        raise Refused from error
    _open.stack.enter_context(parent.ticket.given())
    closing = (
        _closing_listed(parent, current_hydra()) if shared is None else _closing_adaptive(parent, shared)
    )
    _open.stack.push(closing)


def trains(config: DictConfig) -> bool:
    """Whether the task is to train, so that its jobs have runs and a price."""
    return bool(config.task._target_ == _TRAINING)


def job_of(experiment: "Experiment") -> "Job":
    """The job that Hydra runs now.

    Raises:
        UserError: It is told of no sweep, or its run cannot go on.
    """
    from dpexp.sweeps import Job, Ticket

    ticket = Ticket.found()
    number = int(HydraConfig.get().job.num)
    if ticket is None:
        raise _validate.UserError(
            f"Job {number} knows of no sweep to belong to: dpexp's own multirun did not start its process.\n"
            "Launcher processes must inherit the environment variable DPEXP_SWEEP."
        )
    _calm_screen()
    job = Job.of(experiment, number, ticket)
    if job.done is not None:
        print(f"Job {number} is done already, as run {job.done.run_id}.")
    elif job.experiment.resume is not None:
        print(f"Job {number} goes on as run {job.experiment.resume}.")
    return job


def _closing_listed(parent: "Parent", hydra: Hydra) -> Callable[..., None]:
    from dpexp.sweeps import listed_price

    price = functools.partial(listed_price, make=functools.partial(composed_experiment, hydra))
    return functools.partial(_close, parent, price, "The same command with resume=last does what is left.")


def _closing_adaptive(parent: "Parent", shared: "DatasetBudget") -> Callable[..., None]:
    from dpexp.sweeps import adaptive_price

    return functools.partial(_close, parent, functools.partial(adaptive_price, budget=shared), "")


def _close(
    parent: "Parent",
    price: "Callable[[Sequence[Child]], Price]",
    after_an_error: str,
    _: Any,
    error: BaseException | None,
    *__: Any,
) -> None:
    """Prices the sweep, prints and stores what it came to; `ExitStack` calls it with the error, if any."""
    from dpexp.sweeps import summary_of

    parent.close_children()
    children = parent.children
    if not children:
        return
    summary = summary_of(children, price(children))
    parent.record(summary)
    print(f"\nSweep {parent.run.run_id}: {summary.in_words}")
    if error is not None and after_an_error:
        print(after_an_error)


def _budget_of_adaptive(config: DictConfig, sweeper: str) -> "DatasetBudget":
    from dpexp.budgets import DatasetBudget

    if config.resume is not None:
        hint = "Its later points depend on earlier results, and it keeps no record of them. Start a new one."
        raise _validate.refuse("resume", config.resume, f"null with the sweeper {sweeper}", hint)
    check_group(config, "budget")
    budget = instantiate(config.budget, _convert_="all")
    if not isinstance(budget, DatasetBudget):
        hint = (
            "This sweeper chooses later points by earlier results. Only a filter declared beforehand prices "
            "that: budget=dataset data.budget_id=NAME budget.epsilon=E holds all runs together to E."
        )
        raise _validate.refuse("budget", "not shared", f"budget=dataset with the sweeper {sweeper}", hint)
    return budget


def _asked(config: DictConfig) -> list[str]:
    """All that says which jobs there are."""
    sweeper = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    return [*_without_resume(config), json.dumps(sweeper, sort_keys=True)]


def _without_resume(config: DictConfig) -> list[str]:
    return [o for o in config.hydra.overrides.task if not o.lstrip("+").startswith("resume=")]


def _calm_screen() -> None:
    """Jobs beside each other cannot each draw a progress bar in one terminal."""
    if HydraConfig.get().launcher._target_ != "hydra._internal.core_plugins.basic_launcher.BasicLauncher":
        os.environ["TERM"] = "dumb"
