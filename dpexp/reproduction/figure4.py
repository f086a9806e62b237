"""Figure 4 of Abadi et al. (2016): the accuracy that each (ε, δ) pays for on MNIST."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from rich.console import Console
from rich.table import Table

from dpexp import _validate
from dpexp.accounting import Budget, lots_within
from dpexp.experiment import Experiment
from dpexp.plan import PrivacyPlan
from dpexp.plots import Chart, Line, save_charts
from dpexp.price import price_of
from dpexp.reproduction.campaign import Campaign
from dpexp.reproduction.settings import Course, courses, settings_points
from dpexp.reproduction.tables import mean, save_csv, spread_in_words

__all__ = ["Figure4", "Reading", "lots_for"]

_HEADER = ("delta", "epsilon", "setting", "lots", "all_lots", "accuracy", "seeds", "accountant")


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one setting reaches at one (ε, δ).

    Attributes:
        lots: The most lots T whose ε at δ is within the pair, or all of the run's.
        all_lots: The run ended before the pair was spent; a longer one might do better.
        accuracies: One for each seed, at the last evaluation after at most T lots.
    """

    epsilon: float
    delta: float
    setting: str
    lots: int
    all_lots: bool
    accuracies: tuple[float, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Figure4:
    """Reads every (ε, δ) off the runs of Figure 3, trained where they are missing.

    A pair pays for T lots of a setting. Neither noise nor learning rate depend on the length of the run, so
    the first T lots of a longer run are distributed as a run planned for exactly T.

    Attributes:
        settings: Experiments; each pair is read off each of them.
        overrides: More overrides of every run, as in Figure 3.
        epsilons: ε > 0 of the pairs.
        deltas: δ in (0, 1) of the pairs; one curve each.
        seeds: Of initialisation; each is a run of its own.
        collect_only: Trains nothing, and shows what is in the store.
    """

    makes = ()
    settings: Sequence[str]
    overrides: Sequence[str]
    epsilons: Sequence[float]
    deltas: Sequence[float]
    seeds: Sequence[int] = (0,)
    collect_only: bool = False

    def __post_init__(self) -> None:
        for epsilon in self.epsilons:
            _validate.number("task.epsilons", epsilon, above=0)
        for delta in self.deltas:
            _validate.fraction("task.deltas", delta)

    def run(self, experiment: Experiment) -> None:
        """Trains what is missing, then prints, draws and saves."""
        console = Console()
        campaign = Campaign("figure3", experiment)
        points = settings_points(campaign, self.settings, self.overrides, self.seeds)
        if not self.collect_only:
            campaign.complete(points, console)
        found = courses(campaign.archive, campaign.collect(points))
        readings = [reading for pair in self._pairs for reading in _readings(found, *pair)]
        if not readings:
            raise _validate.refuse("runs of figure3 in the store", 0, "some", "Leave out task.collect_only.")
        console.print(_table(readings, self.settings))
        console.print(price_of(campaign.charged(points)).in_words("All settings"))
        path = campaign.folder / "figure4.csv"
        accountant = points[0].experiment.accountant.name
        rows = (_row(reading, accountant) for reading in readings)
        console.print(str(save_csv(path, _HEADER, rows)), soft_wrap=True)
        for image in save_charts([self._chart(readings)], path, columns=1):
            console.print(str(image), soft_wrap=True)

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return [(epsilon, delta) for delta in self.deltas for epsilon in self.epsilons]

    def _chart(self, readings: Sequence[Reading]) -> Chart:
        return Chart(
            lines=[line for delta in self.deltas if (line := _line(readings, delta)).x],
            title="best of the settings at each (ε, δ)",
            x_label="ε",
            y_label="accuracy (%)",
            x_scale="log",
        )


def lots_for(plan: PrivacyPlan, epsilon: float, delta: float) -> int:
    """How many of the plan's lots (ε, δ) pays for, with what is released before them; 0 for none."""
    if plan.guarantee is None:
        raise ValueError("Without privacy no (ε, δ) is enough.")
    asked = replace(plan.guarantee, budget=Budget(epsilon=epsilon, delta=delta))
    account = asked.charged_account(asked.accountant)
    if float(account.epsilon()) > epsilon:
        return 0
    return lots_within(account, plan.phases(plan.steps))


def _readings(found: Sequence[Course], epsilon: float, delta: float) -> Iterator[Reading]:
    for setting in dict.fromkeys(course.setting for course in found):
        same = [course for course in found if course.setting == setting]
        plan = same[0].outcome.point.plan
        lots = lots_for(plan, epsilon, delta)
        read = [accuracy for course in same if (accuracy := course.accuracy_within(lots)) is not None]
        if read:
            yield Reading(
                epsilon=epsilon,
                delta=delta,
                setting=setting,
                lots=lots,
                all_lots=lots == plan.steps,
                accuracies=tuple(read),
            )


def _line(readings: Sequence[Reading], delta: float) -> Line:
    best: dict[float, Reading] = {}
    for reading in readings:
        if reading.delta == delta:
            known = best.get(reading.epsilon, reading)
            best[reading.epsilon] = max(known, reading, key=lambda r: mean(r.accuracies))
    values = [[100 * accuracy for accuracy in reading.accuracies] for reading in best.values()]
    spread = [(min(value), max(value)) for value in values]
    return Line(f"δ = {delta:g}", list(best), list(map(mean, values)), spread=spread)


def _table(readings: Sequence[Reading], settings: Sequence[str]) -> Table:
    title = (
        "Figure 4 of Abadi et al. (2016): accuracy after as many lots as (ε, δ) pays for; * all of the run's"
    )
    table = Table(title=title, title_justify="left", min_width=60)
    for heading in ("δ", "ε", *settings):
        table.add_column(heading, justify="right")
    cells = {(r.delta, r.epsilon, r.setting): _cell(r) for r in readings}
    none = dict.fromkeys(settings, "too little")
    none |= {setting: "no run yet" for setting in settings if all(r.setting != setting for r in readings)}
    for delta, epsilon in dict.fromkeys((r.delta, r.epsilon) for r in readings):
        shown = [cells.get((delta, epsilon, setting), none[setting]) for setting in settings]
        table.add_row(f"{delta:g}", f"{epsilon:g}", *shown)
    return table


def _cell(reading: Reading) -> str:
    mark = "*" if reading.all_lots else ""
    return f"{spread_in_words(reading.accuracies)} {reading.lots:,}{mark}"


def _row(reading: Reading, accountant: str) -> Sequence[object]:
    accuracy = mean(reading.accuracies)
    seeds = len(reading.accuracies)
    pair = (reading.delta, reading.epsilon, reading.setting)
    return (*pair, reading.lots, reading.all_lots, accuracy, seeds, accountant)
