"""Multirun: the parent run above the jobs, opened by Hydra's callback and closed by `main`.

Hydra calls `on_multirun_end` only where no job failed, and turns an exception in a callback into a warning.
So the callback only opens the parent; all else is done where nothing can prevent it.
"""

import contextlib
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from dpexp import _validate
from dpexp.cli.composition import composed_experiment, current_hydra, flags_of
from dpexp.cli.errors import Refused
from dpexp.cli.keys import check_group
from dpexp.cli.listing import Listing
from dpexp.tracking.tags import COMMAND_TAG

if TYPE_CHECKING:
    from dpexp.budgets import DatasetBudget
    from dpexp.experiment import Experiment
    from dpexp.sweeps import Job, Parent, Summary

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
        listing = Listing.of(config, current_hydra()) if sweeper == _LISTED else None
        shared = None if listing else _budget_of_adaptive(config, sweeper)
        check_group(config, "tracking")
        parent = _open.stack.enter_context(
            opened(
                instantiate(config.tracking, _convert_="all"),
                config.hydra.runtime.choices.get("experiment") or "adhoc",
                asked=_asked(config, listing),
                tags=_command_tags(config),
                resume=config.resume,
            )
        )
    except Exception as error:  # Hydra would go on without a parent
        raise Refused from error
    _open.stack.enter_context(parent.ticket.given())
    if listing is not None:
        _open.stack.push(_closing_listed(parent, listing, config))
    else:
        assert shared is not None
        _open.stack.push(_closing_adaptive(parent, shared, config.hydra.sweeper.get("n_trials")))


def trains(config: DictConfig) -> bool:
    """Whether the task is to train, so that its jobs have runs and a price."""
    return bool(config.task._target_ == _TRAINING)


def job_of(experiment: "Experiment", objectives: Sequence[str]) -> "Job":
    """The job that Hydra runs now.

    Args:
        experiment: As its command line makes it.
        objectives: What the sweeper is told of it.

    Raises:
        UserError: It is told of no sweep, its run cannot go on, or it has nothing to tell the sweeper.
    """
    from dpexp.sweeps import Job, Ticket

    ticket = Ticket.found()
    number = int(HydraConfig.get().job.num)
    if ticket is None:
        raise _validate.UserError(
            f"Job {number} knows of no sweep to belong to: dpexp's own multirun did not start its process.\n"
            "Launcher processes must inherit the environment variable DPEXP_SWEEP."
        )
    _check_objectives(experiment, objectives)
    _calm_screen()
    job = Job.of(experiment, number, ticket)
    if job.done is not None:
        print(f"Job {number} is done already, as run {job.done.run_id}.")
    elif job.experiment.resume is not None:
        print(f"Job {number} goes on as run {job.experiment.resume}.")
    return job


def _closing_listed(parent: "Parent", listing: Listing, config: DictConfig) -> Callable[..., None]:
    from dpexp.sweeps import Summary, listed_charges, listed_price, runs_as_charged

    hydra = current_hydra()

    def summary() -> "Summary":
        _check_unchanged(listing, config, hydra)
        made = (composed_experiment(hydra, job, config.hydra.job.config_name) for job in listing.jobs)
        jobs = {n: job for n, job in enumerate(made) if job.config["task"]["_target_"] == _TRAINING}
        children = parent.children
        charged = listed_charges(children, jobs)
        price = listed_price(children, jobs, charged)
        return Summary(runs=runs_as_charged(children, charged), listed=len(jobs), price=price)

    return functools.partial(_close, parent, summary, "The same command with resume=last does what is left.")


def _check_unchanged(listing: Listing, config: DictConfig, hydra: Hydra) -> None:
    """Jobs compose their files when they start, which may be after the results of others were seen.

    Where all jobs come from the same files, the terms of the first tell of a change.
    """
    several = len(listing.configurations) > 1
    if several and Listing.of(config, hydra).configurations != listing.configurations:
        raise _validate.UserError(
            "A configuration file was changed while the sweep ran: it has no price until it is changed back."
        )


def _closing_adaptive(parent: "Parent", shared: "DatasetBudget", trials: int | None) -> Callable[..., None]:
    from dpexp.sweeps import Summary, adaptive_price, runs_as_recorded

    def summary() -> "Summary":
        children = parent.children
        price = adaptive_price(children, shared, parent.tracking.folder)
        return Summary(runs=runs_as_recorded(children), listed=trials, price=price)

    return functools.partial(_close, parent, summary, "")


def _close(
    parent: "Parent",
    summary: "Callable[[], Summary]",
    after_an_error: str,
    _: Any,
    error: BaseException | None,
    *__: Any,
) -> None:
    """Prices the sweep, prints and stores what it came to; `ExitStack` calls it with the error, if any."""
    try:
        parent.close_children()
        if error is not None and not parent.children:
            return  # nothing began, and nothing is left of it
        found = summary()
        parent.record(found)
    except Exception as failure:
        if error is None:
            raise
        print(f"Sweep {parent.run.run_id} has no price yet. {failure}", file=sys.stderr)
    else:
        _show(parent, found)
        if error is None and not found.complete:
            raise JobFailed("A launcher or sweeper passed over it.")
    if error is not None and after_an_error:
        print(after_an_error)


def _show(parent: "Parent", summary: "Summary") -> None:
    """Each run, the price of all, and where to look at them."""
    from rich.console import Console

    from dpexp.console import show_links
    from dpexp.sweeps import as_table
    from dpexp.tracking import shown_uri, view_link

    console = Console()
    console.print(as_table(summary.runs))
    print(f"Sweep {parent.run.run_id}: {summary.in_words}")
    uri = shown_uri(parent.tracking.resolved_uri)
    show_links(console, uri, [view_link(uri, parent.run.experiment_id)])
    print(f"python -m dpexp task=report task.sweep={parent.run.run_id}")


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
    on_record, _ = budget.on_record()
    if on_record is None and isinstance(budget.epsilon, str):
        hint = "It is fixed for good, and the price of the whole search."
        expected = f"a number, since {budget.budget_id!r} has no budget yet"
        raise _validate.refuse("budget.epsilon", budget.epsilon, expected, hint)
    return budget


def _asked(config: DictConfig, listing: Listing | None) -> list[str]:
    """All that says which jobs there are, and what they are."""
    sweeper = OmegaConf.to_container(config.hydra.sweeper, resolve=True, enum_to_str=True)
    configurations = [] if listing is None else listing.configurations
    return [*_without_resume(config), json.dumps(sweeper, sort_keys=True), *configurations]


def _command_tags(config: DictConfig) -> dict[str, str]:
    of_hydra = [text for text in config.hydra.overrides.hydra if not text.startswith("hydra.mode=")]
    words = ["python", "-m", "dpexp", *flags_of(config.hydra), "-m", *of_hydra, *_without_resume(config)]
    return {COMMAND_TAG: shlex.join(words)}


def _without_resume(config: DictConfig) -> list[str]:
    return [o for o in config.hydra.overrides.task if not o.lstrip("+").startswith("resume=")]


def _check_objectives(experiment: "Experiment", objectives: Sequence[str]) -> None:
    """A search whose jobs have no value would end after the first one, which was then paid for in vain."""
    unknown = {"accuracy", "error"} & set(objectives)
    if unknown and experiment.data.test_privacy != "public" and HydraConfig.get().sweeper._target_ != _LISTED:
        hint = "A sweeper that learns from results may see public figures only: the test split is private."
        raise _validate.refuse(
            "task.objectives", list(objectives), "[epsilon], or data.test_split=public", hint
        )


def _calm_screen() -> None:
    """Jobs beside each other cannot each draw a progress bar in one terminal."""
    if HydraConfig.get().launcher._target_ != "hydra._internal.core_plugins.basic_launcher.BasicLauncher":
        os.environ["TERM"] = "dumb"
