"""Figure 3 of Abadi et al. (2016): accuracy and δ by epoch on MNIST, at large, medium and small noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table

from dpexp import _validate
from dpexp.experiment import Experiment
from dpexp.plan import PrivacyPlan
from dpexp.plots import Chart, Line, save_charts
from dpexp.price import price_of
from dpexp.reproduction.campaign import Campaign, Point
from dpexp.reproduction.settings import Course, courses, settings_points
from dpexp.reproduction.tables import mean, save_csv, spread_in_words

__all__ = ["Figure3"]

_HEADER = ("setting", "seed", "lots", "epochs", "accuracy", "delta", "epsilon", "accountant", "run_id")
_SHOWN = (0.1, 0.25, 0.5, 1.0)  # of the lots, in the table


@final
@dataclass(frozen=True, kw_only=True)
class Figure3:
    """Trains each setting (and seed) to the end of its budget, and shows accuracy and δ on the way.

    The paper's training accuracy is left out: it is computed from private rows, and no run pays for it.

    Attributes:
        settings: Experiments.
        paper: The accuracy in [0, 1] that the paper reports, by setting.
        overrides: More overrides of every run.
        seeds: Of initialisation; each is a run of its own.
        collect_only: Trains nothing, and shows what is in the store.
    """

    makes = ()
    settings: Sequence[str]
    paper: Mapping[str, float]
    overrides: Sequence[str]
    seeds: Sequence[int] = (0,)
    collect_only: bool = False

    def __post_init__(self) -> None:
        for name, accuracy in self.paper.items():
            _validate.number(f"task.paper.{name}", accuracy, at_least=0, at_most=1)
        for seed in self.seeds:
            _validate.integer("task.seeds", seed, at_least=0)

    def run(self, experiment: Experiment) -> None:
        """Trains what is missing, then prints, draws and saves."""
        console = Console()
        campaign = Campaign("figure3", experiment)
        points = settings_points(campaign, self.settings, self.overrides, self.seeds)
        if not self.collect_only:
            campaign.complete(points, console)
        found = courses(campaign.archive, campaign.collect(points))
        if not found:
            raise _validate.refuse("runs of figure3 in the store", 0, "some", "Leave out task.collect_only.")
        console.print(self._table(found))
        console.print(price_of(campaign.charged(points)).in_words("Whole figure"))
        path = campaign.folder / "figure3.csv"
        rows = (row for course in found for row in _rows(course))
        console.print(str(save_csv(path, _HEADER, rows)), soft_wrap=True)
        for image in save_charts(self._charts(found), path, columns=3):
            console.print(str(image), soft_wrap=True)

    def _table(self, found: Sequence[Course]) -> Table:
        table = Table(title="Figure 3 of Abadi et al. (2016)", title_justify="left", min_width=60)
        for heading in ("setting", "lots (epochs)", "ε", "δ", "test accuracy", "paper"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
        for setting, same in _by_setting(found).items():
            plan = same[0].outcome.point.plan
            for share in _SHOWN:
                table.add_row(setting, *_cells(same, plan, round(share * plan.steps)), "")
            accuracies = [course.outcome.accuracy for course in same]
            table.add_row(setting, "at the end", "", "", spread_in_words(accuracies), self._paper(setting))
            table.add_section()
        return table

    def _paper(self, setting: str) -> str:
        return f"{self.paper[setting]:.0%}" if setting in self.paper else ""

    def _charts(self, found: Sequence[Course]) -> Iterator[Chart]:
        for setting, same in _by_setting(found).items():
            point = same[0].outcome.point
            epochs = [lots / point.plan.lots_per_epoch for lots in same[0].accuracy]
            values = [[100 * course.accuracy[lots] for course in same] for lots in same[0].accuracy]
            accuracy = Line(
                "test accuracy", epochs, list(map(mean, values)), spread=[(min(v), max(v)) for v in values]
            )
            delta = same[0].delta
            spent = Line("δ", [lots / point.plan.lots_per_epoch for lots in delta], list(delta.values()))
            guarantee = point.plan.guarantee
            epsilon = None if guarantee is None else guarantee.budget.epsilon
            yield Chart(
                lines=[accuracy],
                right=[spent] if delta else [],
                right_label="" if epsilon is None else f"δ at ε = {epsilon:g}",
                title=setting,
                x_label="epochs",
                y_label="accuracy (%)",
            )


def _by_setting(found: Sequence[Course]) -> dict[str, list[Course]]:
    settings: dict[str, list[Course]] = {}
    for course in found:
        settings.setdefault(course.setting, []).append(course)
    return settings


def _cells(same: Sequence[Course], plan: PrivacyPlan, lots: int) -> tuple[str, str, str, str]:
    accuracies = [accuracy for course in same if (accuracy := course.accuracy_within(lots)) is not None]
    delta = [value for steps, value in same[0].delta.items() if steps <= lots]
    epsilon = "none" if plan.guarantee is None else f"{plan.guarantee.budget.epsilon:g}"
    return (
        f"{lots:,} ({lots / plan.lots_per_epoch:.1f})",
        epsilon,
        f"{delta[-1]:.1e}" if delta else "none",
        spread_in_words(accuracies) if accuracies else "",
    )


def _rows(course: Course) -> Iterator[Sequence[object]]:
    point: Point = course.outcome.point
    guarantee = point.plan.guarantee
    for lots, accuracy in course.accuracy.items():
        yield (
            course.setting,
            point.experiment.seed,
            lots,
            lots / point.plan.lots_per_epoch,
            accuracy,
            course.delta.get(lots, ""),
            "" if guarantee is None else guarantee.budget.epsilon,
            "" if guarantee is None else guarantee.accountant.name,
            course.outcome.run.run_id,
        )
