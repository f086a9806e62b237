"""What a run says on the screen: the plan before, the result and the guarantee after."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from dpexp.accounting import Gaussian, PrivacyBound, Release
from dpexp.accounting.budget import total
from dpexp.experiment import Result
from dpexp.plan import Group, Guarantee, PrivacyPlan

__all__ = ["plan_table", "show_result", "shown_up"]


def plan_table(name: str, plan: PrivacyPlan, ignored: Mapping[str, Any]) -> Table:
    """The plan as a short table: σ, C, L, q, T and ε at the end under each accountant."""
    table = Table(title=f"Plan of {name}", show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    for key, value in _training_rows(plan):
        table.add_row(key, value)
    for key, value in _guarantee_rows(plan):
        table.add_row(key, value)
    if ignored:
        table.add_row("ignored keys", ", ".join(f"{key}={value}" for key, value in ignored.items()))
    return table


def show_result(console: Console, result: Result) -> None:
    """Prints the result of a run, the guarantee, and how to look at it."""
    accuracy = "not shown: the test split is private" if result.accuracy is None else f"{result.accuracy:.2%}"
    lines = [f"[bold]test accuracy[/] {accuracy} after {result.steps:,} lots"]
    if result.epsilon is not None:
        lines.append(f"[bold]privacy[/] ε = {shown_up(result.epsilon)} at δ = {result.delta:g}")
    console.print(
        Panel("\n".join([*lines, "", result.statement.strip()]), title="Result", title_align="left")
    )
    # Outside the panel and unwrapped, so that both can be copied.
    console.print(f"mlflow ui --backend-store-uri {result.tracking_uri} --workers 1", soft_wrap=True)
    path = (
        f"experiments/{result.experiment_id}/runs/{result.run_id}/model-metrics?workflowType=machine_learning"
    )
    console.print(f"http://127.0.0.1:5000/#/{path}", soft_wrap=True)


def shown_up(value: float, digits: int = 4) -> str:
    """A privacy figure with `digits` decimals, rounded up: never shown smaller than it is."""
    return f"{math.ceil(float(value) * 10**digits) / 10**digits:.{digits}f}"


def _training_rows(plan: PrivacyPlan) -> list[tuple[str, str]]:
    rows = []
    if plan.guarantee is not None:
        for group in plan.groups:
            rows.append((f"group {group.name}", _group_in_words(group)))
    for lot in plan.lots:
        q = plan.step(0).lots[plan.lots.index(lot)].sampling_probability
        words = f"L = {lot.size.in_words}, q = L/N = {q:.6g}, N = {plan.num_examples:,}"
        rows.append((f"{lot.name} lot", f"{words}, {plan.sampling.name} sampling"))
    rows.append(("steps", _steps_in_words(plan)))
    return rows


def _group_in_words(group: Group) -> str:
    words = f"C = {group.clip_norm.in_words}, σ = {group.noise_multiplier.in_words}"
    return f"{words}, on {', '.join(group.patterns)}"


def _steps_in_words(plan: PrivacyPlan) -> str:
    words = f"T = {plan.steps:,} lots ({plan.steps / plan.lots_per_epoch:.4g} epochs)"
    if plan.guarantee is None or plan.guarantee.budget.epsilon is None:
        return words
    if plan.steps_asked == plan.steps:
        return f"{words}, as configured; the budget holds to the end"
    asked = "" if plan.steps_asked is None else f" of {plan.steps_asked:,} configured"
    return f"{words}{asked}: all that ε = {plan.guarantee.budget.epsilon:g} pays for"


def _guarantee_rows(plan: PrivacyPlan) -> list[tuple[str, str]]:
    guarantee = plan.guarantee
    if guarantee is None:
        return [("privacy", "none: nothing is claimed about the training data")]
    rows = [("one-time release", _release_in_words(release)) for release in guarantee.releases]
    for accountant in (guarantee.accountant, *guarantee.companions):
        account = guarantee.charged_account(accountant)
        share = float(account.epsilon())
        bound = total(account, list(plan.phases(plan.steps)))
        label = "ε at the end" if accountant is guarantee.accountant else "beside it"
        rows.append((label, _bound_in_words(bound, share, guarantee)))
    rows.append(("protected", f"one row of the training data, under {guarantee.relation.in_words}"))
    return rows


def _release_in_words(release: Release) -> str:
    event = release.event
    noise = f"σ = {event.noise_multiplier:g}" if isinstance(event, Gaussian) else str(event)
    return f"{release.name}, {noise}, from all training rows"


def _bound_in_words(bound: PrivacyBound, share: float, guarantee: Guarantee) -> str:
    words = f"{shown_up(bound)} at δ = {guarantee.budget.delta:g} by {bound.accountant} ({bound.kind})"
    if guarantee.releases:
        words += f"; {shown_up(share)} of it before the first lot"
    if bound.saturated:
        words += "; best order is the last of its grid: accountant=rdp is tighter"
    return words
