"""`python -m dpexp`: Hydra composes a configuration, and its objects run a task."""

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dpexp._validate import UserError, refuse
from dpexp.cli.composition import conf_dir, experiment_of
from dpexp.cli.errors import Refused, explain
from dpexp.cli.guard import install
from dpexp.cli.keys import check_group
from dpexp.cli.resolvers import register
from dpexp.cli.sweep import JobFailed, job_of, sweeps_closed, trains
from dpexp.stopping import Stopped, answer_signals

if TYPE_CHECKING:
    from dpexp.tasks import Objectives, Task

__all__ = ["main"]

_SELECTION = "hydra_plugins.private_selection."

register()
install()  # on import, so that it holds in the processes that launchers start


def main() -> NoReturn:
    """Runs `python -m dpexp`, and turns a user's mistakes into one message."""
    traceback_wanted = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra re-raises instead of printing and exiting
    answer_signals()
    try:
        with sweeps_closed():
            _application()
    except Stopped as stopped:
        print(
            f"\n{stopped} A run that had begun is closed as KILLED, and resume=last goes on with it.",
            file=sys.stderr,
        )
        sys.exit(128 + stopped.signal_number)
    except JobFailed:
        print("dpexp: jobs failed, as said above.", file=sys.stderr)
        sys.exit(1)
    except (Refused, UserError, HydraException, OmegaConfBaseException) as error:
        if traceback_wanted:
            raise
        mistake = error.__cause__ if isinstance(error, Refused) and error.__cause__ else error
        print(explain(mistake, conf_dir()), file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _application(config: DictConfig) -> "Objectives":
    if HydraConfig.get().mode is RunMode.MULTIRUN:
        return _run_job(config)
    try:
        return _run(config)
    except (UserError, HydraException) as error:
        raise Refused from error


def _run_job(config: DictConfig) -> "Objectives":
    """Tells at once why a job failed; the others go on."""
    try:
        return _run(config)
    except Exception as error:  # noqa: BLE001  # whatever a model raises; it is told, and the exit code says so
        number = HydraConfig.get().job.num
        known = isinstance(error, UserError | HydraException)
        words = explain(error, conf_dir()) if known else traceback.format_exc()
        print(f"Job {number} failed.\n{words}", file=sys.stderr)
        raise JobFailed(f"job {number}: {type(error).__name__}") from None


def _run(config: DictConfig) -> "Objectives":
    chosen = HydraConfig.get()
    _refuse_one_trial(chosen)
    experiment = experiment_of(config, chosen, chosen.overrides.task)
    task: Task = instantiate(config.task, _convert_="all")
    if task.makes:
        experiment.plan()  # impossible privacy arithmetic is refused before torch is even imported
    for group in task.makes:
        check_group(config, group)
    if chosen.mode is RunMode.RUN or not trains(config):
        return task.run(experiment)
    job = job_of(experiment, config.task.objectives)
    return task.run(job.experiment) if job.done is None else None  # only a fixed list goes on, for any value


def _refuse_one_trial(chosen: Any) -> None:
    """A sweeper that Hydra would not ask must not be taken for granted."""
    if chosen.mode is RunMode.RUN and str(chosen.sweeper.get("_target_", "")).startswith(_SELECTION):
        hint = "Without it this would be one run, shown like any other."
        raise refuse("hydra/sweeper", "private_selection", "-m before it, or +sweep=private_selection", hint)
