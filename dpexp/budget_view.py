"""The budget of a data set on the screen: what was spent, by which run, and what is left."""

import math
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dpexp.budgets.overview import BudgetOverview, Left
from dpexp.console import shown_up
from dpexp.plots import Line

__all__ = ["budget_lines", "budget_tables"]


def budget_tables(overview: BudgetOverview) -> Iterator[Table]:
    """The budget, and its runs."""
    table = Table(title=f"Budget of {overview.id}", show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    for key, value in _rows(overview):
        table.add_row(key, value)
    yield table
    title = f"Runs; alone: {overview.measure}, had it been the only one"
    runs = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("started", "run", "charged", "returned", "alone", "MLflow run"):
        runs.add_column(heading, no_wrap=heading in ("started", "alone"))
    for run in overview.runs:
        counts = f"{run.releases:,}", f"{run.returned:,}"
        name = "none" if run.mlflow_run is None else run.mlflow_run[:8]
        runs.add_row(run.started[:16].replace("T", " "), run.label, *counts, shown_up(run.alone), name)
    yield runs


def budget_lines(overview: BudgetOverview) -> list[Line]:
    """What was spent over the releases charged, and the total."""
    charged = [releases for releases, _ in overview.trajectory]
    lines = [Line(overview.measure, charged, [value for _, value in overview.trajectory])]
    if overview.totals.epsilon is None:
        return lines
    return [*lines, Line("total (certified)", [0, max(charged)], [overview.totals.epsilon] * 2)]


def _rows(overview: BudgetOverview) -> Iterator[tuple[str, str]]:
    totals = overview.totals
    limit = "no limit, an odometer" if totals.epsilon is None else f"ε = {totals.epsilon:g}, a filter"
    yield "together", f"{limit}, at δ = {totals.delta:g}, for {totals.relation.in_words}"
    yield "orders", ", ".join(map(str, totals.orders))
    yield "opened", overview.opened[:16].replace("T", " ")
    if overview.fraction is None:
        yield "spent", f"{shown_up(overview.spent)} {overview.measure}"
    else:
        percent = math.ceil(overview.fraction * 1000) / 10
        words = f"a filter of ε = {shown_up(overview.spent)} would have held it"
        yield "spent", f"{percent:.1f} % of the filter; {words}"
    if overview.left is not None:
        yield "left", _left_in_words(overview.left)


def _left_in_words(left: Left) -> str:
    if math.isinf(left.noise_multiplier):
        return "nothing"
    one = f"σ ≥ {shown_up(left.noise_multiplier)} (ε ≤ {left.epsilon:.4f} alone)"
    words = f"one Gaussian release on all rows with {one}"
    if left.lots is None or left.plan_lots is None:
        return f"{words}. Lots of a plan: none is configured ({left.why_no_plan})"
    return f"{words}; or {left.lots:,} of the {left.plan_lots:,} lots and releases of the configured plan"
