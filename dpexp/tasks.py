"""The `task` config group: what `python -m dpexp` does with an experiment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, final

from rich.console import Console

from dpexp import _validate
from dpexp.accounting.figures import Curve, figure_2
from dpexp.budget_view import budget_lines, budget_tables
from dpexp.budgets import DatasetBudget
from dpexp.budgets.overview import budget_overview
from dpexp.console import calibration_table, figure_2_table, figures_table, plan_table
from dpexp.experiment import Experiment
from dpexp.plan import PrivacyPlan
from dpexp.planning import plan_as_json, plan_figures
from dpexp.plots import Line, save_png, terminal_plot
from dpexp.privacy import DPSGD

__all__ = ["Figure2", "Objectives", "Plan", "Send", "ShowBudget", "Task", "Train"]

_FORMATS = ("table", "json")
_OBJECTIVES = ("accuracy", "error", "epsilon")
Objectives = float | None | Sequence[float | None]


class Task(Protocol):
    """What a task is.

    Attributes:
        makes: The config groups that it makes torch objects of; the others' keys are not even looked at.
    """

    makes: tuple[str, ...]

    def run(self, experiment: Experiment) -> Objectives:
        """Does it; the result is what a sweeper optimizes."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class Train:
    """Trains one run and shows it.

    Attributes:
        objectives: What a sweeper is told of the run, in this order: `accuracy`, `error`, `epsilon`.
    """

    makes = ("model", "optimizer", "trainer")
    objectives: Sequence[str] = ("accuracy",)

    def __post_init__(self) -> None:
        if isinstance(self.objectives, str) or not self.objectives:
            raise _validate.refuse("task.objectives", self.objectives, "a list, such as [epsilon,error]")
        for objective in self.objectives:
            _validate.one_of("task.objectives", objective, _OBJECTIVES)

    def run(self, experiment: Experiment) -> Objectives:
        """Trains; an accuracy on a private split and an ε without privacy are None."""
        from dpexp.training import train  # imports torch and Lightning

        values = train(experiment).objectives
        found = [values[objective] for objective in self.objectives]
        return found[0] if len(found) == 1 else found


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Shows the privacy arithmetic of an experiment without touching data.

    Attributes:
        format: `table`, or `json` (stdout then carries only the JSON).
        calibrate: ε > 0 to solve one common σ for, at the plan's T and δ.
        plot: Also draws ε by epoch, in the terminal and as a PNG.
    """

    makes = ()
    format: str = "table"
    calibrate: Sequence[float] = field(default_factory=tuple)
    plot: bool = False

    def __post_init__(self) -> None:
        _validate.one_of("task.format", self.format, _FORMATS)
        if isinstance(self.calibrate, str) or not isinstance(self.calibrate, Sequence):
            raise _validate.refuse("task.calibrate", self.calibrate, "a list of ε, such as [0.5,1,2]")
        for target in self.calibrate:
            _validate.number("task.calibrate", target, above=0)

    def run(self, experiment: Experiment) -> None:
        """Prints the figures."""
        plan = experiment.plan()
        if plan.guarantee is None:
            raise _validate.refuse("privacy", "none", "DP-SGD: without privacy there is nothing to price")
        figures = plan_figures(plan)
        solved = {target: _solved(experiment, plan, target) for target in self.calibrate}
        if self.format == "json":
            content = {"experiment": experiment.name, **plan_as_json(plan), **figures.as_json()}
            print(json.dumps({**content, "calibrated": _plain_solutions(solved)}, indent=2))
            return
        console = Console()
        console.print(plan_table(experiment, plan, figures.at_end))
        console.print(figures_table(figures))
        if solved:
            console.print(calibration_table(solved))
        if self.plot:
            _plot(console, experiment, [_milestones_line(figures.milestones)])


@final
@dataclass(frozen=True, kw_only=True)
class Figure2:
    """Redraws Figure 2 of Abadi et al. (2016).

    Attributes:
        sampling_probability: q in (0, 1].
        noise_multiplier: σ > 0.
        delta: δ in (0, 1).
        epochs: E > 0, in lots of 1/q.
        format: `table`, or `json` (stdout then carries only the JSON).
    """

    makes = ()
    sampling_probability: float
    noise_multiplier: float
    delta: float
    epochs: Sequence[float]
    format: str = "table"

    def __post_init__(self) -> None:
        _validate.one_of("task.format", self.format, _FORMATS)

    def run(self, experiment: Experiment) -> None:
        """Prints and draws the curves; of `experiment` only the outputs folder is used."""
        curves = figure_2(
            q=self.sampling_probability, sigma=self.noise_multiplier, delta=self.delta, epochs=self.epochs
        )
        path = experiment.tracking.folder / "figures" / "figure2.png"
        title = f"q = {self.sampling_probability:g}, σ = {self.noise_multiplier:g}, δ = {self.delta:g}"
        lines = [Line(f"{curve.name} ({curve.kind})", self.epochs, _floats(curve)) for curve in curves]
        save_png(lines, path, title=title, x_label="epochs", y_label="ε", y_scale="log")
        if self.format == "json":
            values = {curve.name: {"kind": curve.kind, "epsilon": _floats(curve)} for curve in curves}
            print(json.dumps({"epochs": list(self.epochs), "curves": values, "png": str(path)}, indent=2))
            return
        console = Console()
        console.print(figure_2_table(self.epochs, curves, title))
        console.print(
            terminal_plot(lines, title=title, x_label="epochs", y_label="epsilon", y_scale="log"),
            markup=False,
        )
        console.print(str(path), soft_wrap=True)


@final
@dataclass(frozen=True, kw_only=True)
class ShowBudget:
    """Shows what was spent from a data set's budget, by which run, and what is left.

    Attributes:
        format: `table`, or `json` (stdout then carries only the JSON).
        plot: Also draws what was spent over the entries, in the terminal and as a PNG.
    """

    makes = ()
    format: str = "table"
    plot: bool = True

    def __post_init__(self) -> None:
        _validate.one_of("task.format", self.format, _FORMATS)

    def run(self, experiment: Experiment) -> None:
        """Prints the figures; changes nothing in the store.

        Raises:
            UserError: There is no such budget, or the store cannot be read.
        """
        budget = experiment.budget
        if not isinstance(budget, DatasetBudget):
            hint = "Only budget=dataset with data.budget_id=NAME is shared by runs."
            raise _validate.refuse("budget", "not shared", "budget=dataset with task=budget", hint)
        overview = budget_overview(budget, _planned(experiment))
        if self.format == "json":
            print(json.dumps(overview.as_json(), indent=2, ensure_ascii=False))
            return
        console = Console()
        for table in budget_tables(overview):
            console.print(table)
        if self.plot:
            path = experiment.tracking.folder / "budgets" / f"{overview.id}.png"
            lines, words = budget_lines(overview), {"x_label": "lots and releases charged"}
            title = f"Budget of {overview.id}"
            console.print(
                terminal_plot(lines, title=title, y_label=overview.measure_in_ascii, **words), markup=False
            )
            save_png(lines, path, title=title, y_label=overview.measure, **words)
            console.print(str(path), soft_wrap=True)


def _planned(experiment: Experiment) -> PrivacyPlan | _validate.UserError:
    try:
        return experiment.plan()
    except _validate.UserError as error:
        return error


@final
@dataclass(frozen=True, kw_only=True)
class Send:
    """Sends to the store what runs could not store while it was away."""

    makes = ()

    def run(self, experiment: Experiment) -> None:
        """Sends it, and says how it went; of `experiment` only the tracking is used.

        Raises:
            UserError: The store cannot be reached, or not all was taken.
        """
        complete, left = experiment.tracking.send()
        if left:
            raise _validate.UserError(
                f"task=send: {complete} runs were sent, {left} still wait in "
                f"{experiment.tracking.folder / 'spool'}.\nTry again when the store is back."
            )
        print(f"{complete} runs were waiting and are now in the store.")


def _floats(curve: Curve) -> list[float]:
    return [float(epsilon) for epsilon in curve.epsilons]


def _solved(experiment: Experiment, plan: PrivacyPlan, target: float) -> PrivacyPlan | _validate.UserError:
    try:
        if experiment.vary is not None:  # other keys may follow ε by rules of their own
            experiment = experiment.vary([f"privacy.epsilon={target}"])
        privacy = experiment.privacy
        assert isinstance(privacy, DPSGD)
        asked = replace(privacy, noise_multiplier=None, epsilon=target, steps=plan.steps, epochs=None)
        return replace(experiment, privacy=asked).plan()
    except _validate.UserError as error:
        return error


def _plain_solutions(solved: dict[float, PrivacyPlan | _validate.UserError]) -> list[dict[str, Any]]:
    return [{"epsilon": target, **_plain_solution(plan)} for target, plan in solved.items()]


def _plain_solution(plan: PrivacyPlan | _validate.UserError) -> dict[str, Any]:
    if isinstance(plan, _validate.UserError):
        return {"noise_multipliers": None, "reason": str(plan)}
    return {"noise_multipliers": {group.name: group.noise_multiplier for group in plan.step(0).groups}}


def _milestones_line(milestones: Sequence[Any]) -> Line:
    first = milestones[0].epsilon
    label = f"{first.accountant} ({first.kind})"
    return Line(label, [at.epochs for at in milestones], [float(at.epsilon) for at in milestones])


def _plot(console: Console, experiment: Experiment, lines: Sequence[Line]) -> None:
    title = f"Plan of {experiment.name}"
    path = experiment.tracking.folder / "plans" / f"{experiment.name}.png"
    console.print(terminal_plot(lines, title=title, x_label="epochs", y_label="epsilon"), markup=False)
    save_png(lines, path, title=title, x_label="epochs", y_label="ε")
    console.print(str(path), soft_wrap=True)
