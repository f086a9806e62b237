"""`PrivateSelectionSweeper`: composes every point of the space, and leaves the rest to `dpexp.selection`."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:  # Hydra imports this file at every start: nothing of dpexp until it is used
    from dpexp.experiment import Experiment
    from dpexp.selection import Law, Selection

__all__ = ["PrivateSelectionSweeper"]

_TRAIN, _PLAN = "dpexp.tasks.Train", "dpexp.tasks.Plan"
_DISTRIBUTIONS = ("negative_binomial", "poisson", "cheapest")


@final
class PrivateSelectionSweeper(Sweeper):
    """The best of a secret number of trials on random points of a finite space.

    Args:
        params: For each key a list of values, or text as on the command line (`0.1,0.5`). Lists given on the
            command line itself are added, or replace those of the same key.
        distribution: Of the number of trials: `negative_binomial`, `poisson`, or `cheapest` for whichever of
            the logarithmic and the Poisson law costs less.
        mean_trials: Its mean, >= 1.
        shape: η > -1 of the negative binomial; 0 is the logarithmic law.
        score: `val/accuracy`, `val/loss`, `test/accuracy` or `test/loss`, of rows declared public.
    """

    def __init__(
        self,
        params: DictConfig | None,
        distribution: str,
        mean_trials: float,
        shape: float,
        score: str,
    ) -> None:
        self._params: dict[str, Any] = OmegaConf.to_container(params) if params else {}  # type: ignore[assignment]
        self._distribution, self._mean_trials, self._shape = distribution, mean_trials, shape
        self._score = score

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Takes what Hydra hands over. No launcher is made: trials are no jobs."""
        self._config = config

    def sweep(self, arguments: list[str]) -> None:
        """Selects; with task=plan only says what that would cost."""
        from rich.console import Console

        from dpexp._validate import refuse
        from dpexp.selection import select, selection_table

        task = self._config.task.get("_target_")
        if task not in (_TRAIN, _PLAN):
            raise refuse(
                "task", task, "train or plan", "A private selection trains, or says what it would cost."
            )
        selection = self._selection(arguments)
        if task == _PLAN:
            Console().print(selection_table(selection))
        else:
            select(selection, resume=self._config.resume)

    def _selection(self, arguments: Sequence[str]) -> "Selection":
        from dpexp.selection import Score, Selection, Space

        laws, score = self._laws(), Score(self._score)
        parsed = [override for override in _parsed(arguments) if override.key_or_group != "resume"]
        fixed = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
        given = {_key(override) for override in parsed}  # in place of the file's
        listed = [_override(key, values) for key, values in self._params.items()]
        listed = [override for override in listed if _key(override) not in given]
        listed += [override for override in parsed if override.is_sweep_override()]
        last = {_key(override): override for override in listed}  # of several lists of one key
        space = Space({override.get_key_element(): _values(override) for override in last.values()})
        return Selection.of(
            space,
            [self._experiment([*fixed, *point]) for point in space.points],
            laws=laws,
            score=score,
            command=self._command(arguments),
        )

    def _command(self, arguments: Sequence[str]) -> str:
        of_hydra = [text for text in self._config.hydra.overrides.hydra if not text.startswith("hydra.mode=")]
        given = [str(override.input_line) for override in _parsed(arguments) if _key(override) != "resume"]
        return f"python -m dpexp -m {shlex.join([*of_hydra, *given])}"

    def _experiment(self, overrides: list[str]) -> "Experiment":
        from dpexp.cli.composition import composed_experiment, current_hydra

        return composed_experiment(current_hydra(), overrides, self._config.hydra.job.config_name)

    def _laws(self) -> "list[Law]":
        from dpexp._validate import one_of
        from dpexp.selection import NegativeBinomial, Poisson

        one_of("hydra.sweeper.distribution", self._distribution, _DISTRIBUTIONS)
        poisson = Poisson(mean_trials=self._mean_trials)
        if self._distribution == "poisson":
            return [poisson]
        shape = 0.0 if self._distribution == "cheapest" else self._shape
        binomial = NegativeBinomial(mean_trials=self._mean_trials, shape=shape)
        return [binomial, poisson] if self._distribution == "cheapest" else [binomial]


def _parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(overrides))


def _key(override: Override) -> str:
    """However it is set: `++optimizer.lr=0.1` is of the same key as `optimizer.lr=0.1`."""
    return str(override.get_key_element()).lstrip("+~")


def _override(key: str, values: Any) -> Override:
    """`params` as if it stood on the command line."""
    listed = isinstance(values, list)
    text = f"choice({','.join(_text(value) for value in values)})" if listed else _text(values)
    return _parsed([f"{key}={text}"])[0]


def _values(override: Override) -> list[str]:
    from dpexp._validate import refuse

    key = override.get_key_element()
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if not override.is_discrete_sweep():
        hint = "Points are drawn uniformly from a finite space, whose dearest point sets the price."
        raise refuse(f"hydra.sweeper.params.{key}", override.input_line, "a list, such as 0.1,0.5", hint)
    return list(override.sweep_string_iterator())


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_text(part)}' for key, part in value.items())}}}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
