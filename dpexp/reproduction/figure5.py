"""Figure 5 of Abadi et al. (2016): accuracy when one parameter moves and the others stay."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import final

from rich.console import Console
from rich.table import Table

from dpexp import _validate
from dpexp.console import shown_up
from dpexp.experiment import Experiment
from dpexp.plots import Chart, Line, save_charts
from dpexp.price import price_of
from dpexp.reproduction.campaign import Campaign, Outcome, Point
from dpexp.reproduction.sweep import Sweep
from dpexp.reproduction.tables import mean, save_csv, spread_in_words

__all__ = ["Figure5"]

_HEADER = (
    "panel",
    "value",
    "seed",
    "accuracy",
    "epsilon",
    "delta",
    "accountant",
    "lots",
    "seconds",
    "run_id",
)


@final
@dataclass(frozen=True, kw_only=True)
class Figure5:
    """Trains one run per value of each panel (and seed), and shows accuracy by value.

    Attributes:
        experiment: The experiment that all points start from.
        overrides: What, with it, makes the reference setting.
        sweeps: The panels.
        panels: Which of them; empty for all.
        seeds: Of initialisation; each is a run of its own at every point.
        collect_only: Trains nothing, and shows what is in the store.
        columns: Panels beside each other in the plot.
    """

    makes = ()
    experiment: str
    overrides: Sequence[str]
    sweeps: Mapping[str, Sweep]
    panels: Sequence[str] = field(default_factory=tuple)
    seeds: Sequence[int] = (0,)
    collect_only: bool = False
    columns: int = 3

    def __post_init__(self) -> None:
        for panel in self.panels:
            _validate.one_of("task.panels", panel, self.sweeps)
        for seed in self.seeds:
            _validate.integer("task.seeds", seed, at_least=0)

    def run(self, experiment: Experiment) -> None:
        """Trains what is missing, then prints, draws and saves."""
        console = Console()
        campaign = Campaign("figure5", experiment)
        points = self._points(campaign)
        if not self.collect_only:
            campaign.complete(points, console)
        outcomes = campaign.collect(points)
        if not outcomes:
            raise _validate.refuse("runs of figure5 in the store", 0, "some", "Leave out task.collect_only.")
        console.print(_table(outcomes))
        for panel in self._chosen:
            of_panel = [point for point in points if point.panel == panel]
            if charged := campaign.charged(of_panel):
                console.print(price_of(charged).in_words(self.sweeps[panel].label))
        console.print(price_of(campaign.charged(points)).in_words("Whole figure"))
        path = campaign.folder / "figure5.csv"
        console.print(str(save_csv(path, _HEADER, map(_row, outcomes))), soft_wrap=True)
        for image in save_charts(self._charts(outcomes), path, columns=self.columns):
            console.print(str(image), soft_wrap=True)

    @property
    def _chosen(self) -> Sequence[str]:
        return self.panels or list(self.sweeps)

    def _points(self, campaign: Campaign) -> list[Point]:
        reference = [f"+experiment={self.experiment}", *self.overrides]
        return [
            campaign.point(panel, value, [*reference, *self.sweeps[panel].at(value)], seed)
            for seed in self.seeds
            for panel in self._chosen
            for value in self.sweeps[panel].values
        ]

    def _charts(self, outcomes: Sequence[Outcome]) -> Iterator[Chart]:
        for panel, values in _by_panel(outcomes).items():
            sweep, x = self.sweeps[panel], sorted(values)
            line = Line(
                "accuracy",
                x,
                [100 * mean(values[value]) for value in x],
                spread=[(100 * min(values[value]), 100 * max(values[value])) for value in x],
            )
            yield Chart(
                lines=[line],
                title="",
                x_label=sweep.label,
                y_label="test accuracy (%)",
                reference=sweep.reference,
            )


def _by_panel(outcomes: Sequence[Outcome]) -> dict[str, dict[float, list[float]]]:
    found: dict[str, dict[float, list[float]]] = {}
    for outcome in outcomes:
        values = found.setdefault(outcome.point.panel, {})
        values.setdefault(outcome.point.value, []).append(outcome.accuracy)
    return found


def _row(outcome: Outcome) -> Sequence[object]:
    point, metrics = outcome.point, outcome.run.metrics
    guarantee = point.plan.guarantee
    accountant = "" if guarantee is None else guarantee.accountant.name
    return (
        point.panel,
        point.value,
        point.experiment.seed,
        outcome.accuracy,
        metrics.get("final/epsilon", ""),
        metrics.get("final/delta", ""),
        accountant,
        int(metrics["final/steps"]),
        round(outcome.run.seconds),
        outcome.run.run_id,
    )


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Figure 5 of Abadi et al. (2016)", title_justify="left", min_width=60)
    for heading in ("panel", "value", "lots", "ε of each run", "test accuracy"):
        table.add_column(heading, justify="left" if heading == "panel" else "right")
    ordered = sorted(outcomes, key=lambda outcome: (outcome.point.panel, outcome.point.value))
    for panel, of_panel in groupby(ordered, key=lambda outcome: outcome.point.panel):
        for value, group in groupby(of_panel, key=lambda outcome: outcome.point.value):
            table.add_row(panel, f"{value:g}", *_cells(list(group)))
        table.add_section()
    return table


def _cells(same: Sequence[Outcome]) -> tuple[str, str, str]:
    metrics = same[0].run.metrics
    epsilon = shown_up(metrics["final/epsilon"]) if "final/epsilon" in metrics else "none"
    return f"{int(metrics['final/steps']):,}", epsilon, spread_in_words([o.accuracy for o in same])
