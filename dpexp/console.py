"""What a run says on the screen: the plan before, the result and the guarantee after."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from dpexp._validate import UserError
from dpexp.accounting import Gaussian, Kind, PrivacyBound, Release, delta_warning
from dpexp.accounting.figures import Curve
from dpexp.data import Dataset
from dpexp.experiment import Experiment, Result
from dpexp.plan import Group, Guarantee, PrivacyPlan
from dpexp.planning import PlanFigures
from dpexp.tracking import run_link, shown_uri, view_link

__all__ = [
    "calibration_table",
    "figure_2_table",
    "figures_table",
    "plan_table",
    "show_job_result",
    "show_links",
    "show_result",
    "shown",
    "shown_accuracy",
    "shown_up",
]


def plan_table(
    experiment: Experiment,
    plan: PrivacyPlan,
    at_end: Sequence[PrivacyBound],
    more: Sequence[tuple[str, str]] = (),
) -> Table:
    """The plan as a short table: σ, C, L, q, T and ε at the end under each accountant; then `more` rows."""
    table = Table(title=f"Plan of {experiment.name}", show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    rows = [*_training_rows(plan), *_guarantee_rows(plan, at_end), *_data_rows(experiment), *more]
    for key, value in rows:
        table.add_row(key, value)
    return table


def figures_table(figures: PlanFigures) -> Table:
    """ε under every accountant, by part and along training; each with its kind."""
    table = Table(title="ε", title_justify="left", min_width=60)
    for heading in ("what", "ε", "kind", "accountant"):
        table.add_column(heading)
    for bound in figures.at_end:
        table.add_row("at the end", shown(bound), str(bound.kind), bound.accountant)
    for refusal in figures.refusals:
        table.add_row("at the end", "no bound", "", f"{refusal.accountant}: {refusal.reason}")
    table.add_section()
    for share in figures.shares:
        table.add_row(f"{share.name} alone", *_bound_cells(share.epsilon))
    table.add_section()
    for at in figures.milestones:
        table.add_row(f"after {at.lots:,} lots ({at.epochs:.4g} epochs)", *_bound_cells(at.epsilon))
    return table


def calibration_table(solved: Mapping[float, PrivacyPlan | UserError]) -> Table:
    """The σ that each ε needs, at the plan's T and δ, or why no σ is enough."""
    table = Table(title="σ for a target ε", title_justify="left", min_width=60)
    table.add_column("ε")
    table.add_column("σ of each group, rounded up")
    for target, plan in solved.items():
        table.add_row(f"{target:g}", str(plan) if isinstance(plan, UserError) else _sigmas(plan))
    return table


def _sigmas(plan: PrivacyPlan) -> str:
    return ", ".join(f"{group.name} {shown_up(group.noise_multiplier)}" for group in plan.step(0).groups)


def figure_2_table(epochs: Sequence[float], curves: Sequence[Curve], title: str) -> Table:
    """The numbers of Figure 2."""
    title = f"Figure 2 of Abadi et al. (2016), ε at {title}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("epochs", justify="right")
    for curve in curves:
        table.add_column("\n".join([*curve.name.split("_"), curve.kind]), justify="right")
    for index, epoch in enumerate(epochs):
        table.add_row(f"{epoch:g}", *(shown(curve.epsilons[index]) for curve in curves))
    return table


def shown(bound: PrivacyBound) -> str:
    """A figure with four decimals: a certified one rounded up, any other to the nearest."""
    if math.isinf(bound):
        return "∞"
    return shown_up(bound) if bound.kind is Kind.CERTIFIED else f"{float(bound):.4f}"


def _bound_cells(bound: PrivacyBound) -> tuple[str, str, str]:
    return shown(bound), str(bound.kind), bound.accountant


def shown_accuracy(accuracy: float | None) -> str:
    """In per cent, or why it is not shown."""
    return "not shown (data.test_split: the test split is private)" if accuracy is None else f"{accuracy:.2%}"


def show_result(console: Console, result: Result) -> None:
    """Prints the result of a run, the guarantee, and how to look at it."""
    lines = [*_result_in_words(result), "", result.statement.strip()]
    console.print(Panel("\n".join(lines), title="Result", title_align="left"))
    links = [
        run_link(result.tracking_uri, result.experiment_id, result.run_id),
        view_link(result.tracking_uri, result.experiment_id),
    ]
    show_links(console, result.tracking_uri, links)


def show_job_result(console: Console, result: Result) -> None:
    """The same for one job of a sweep, whose last lines say what all of it costs: without the statement."""
    lines = [*_result_in_words(result), f"Its privacy statement is an artifact of run {result.run_id}."]
    console.print(Panel("\n".join(lines), title="Result", title_align="left"))


def _result_in_words(result: Result) -> list[str]:
    lines = [f"[bold]test accuracy[/] {shown_accuracy(result.accuracy)} after {result.steps:,} lots"]
    if result.forfeited_lots:
        lines.append(f"[bold]interrupted[/] {result.forfeited_lots:,} more lots were lost, and are charged")
    if result.epsilon is not None:
        kind = "keyed by the seed: no guarantee" if result.deterministic else "certified"
        lines.append(f"[bold]privacy[/] ε ≤ {shown_up(result.epsilon)} at δ = {result.delta:g} ({kind})")
    return lines


def show_links(console: Console, uri: str, links: Sequence[str]) -> None:
    """Prints links into the MLflow UI, after the command that starts it where none serves the store.

    Args:
        console: Where they are printed: unwrapped, so that they can be copied.
        uri: The store, without password.
        links: Addresses, as by `dpexp.tracking.view_link`.
    """
    commands = [] if uri.startswith("http") else [_ui_command(uri)]
    for line in [*commands, *links]:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _ui_command(uri: str) -> str:
    """The shortest command that opens this store from the folder that the run was started in."""
    usual = f"sqlite:///{Path('outputs').absolute() / 'mlflow.db'}"
    if uri == shown_uri(os.environ.get("MLFLOW_TRACKING_URI") or usual):
        return "python -m dpexp task=ui"
    escaped = uri.replace("'", r"\'")
    override = f"tracking.uri='{escaped}'"  # quoted for Hydra, and then for the shell
    return f"python -m dpexp task=ui {shlex.quote(override)}"


def shown_up(value: float, digits: int = 4) -> str:
    """A privacy figure with `digits` decimals, rounded up: never shown smaller than it is."""
    return f"{math.ceil(float(value) * 10**digits) / 10**digits:.{digits}f}"


def shown_down(sigma: float, digits: int = 3) -> str:
    """A noise multiplier with `digits` decimals, rounded down: never more noise than there is."""
    return f"{math.floor(float(sigma) * 10**digits) / 10**digits:.{digits}f}"


def _training_rows(plan: PrivacyPlan) -> list[tuple[str, str]]:
    rows = []
    if plan.guarantee is not None:
        for group in plan.groups:
            rows.append((f"group {group.name}", _group_in_words(group)))
        gaussian = getattr(plan.step(0).event, "gaussian", None)
        if len(plan.groups) > 1 and gaussian is not None:
            last = getattr(plan.step(plan.steps - 1).event, "gaussian", gaussian)
            when = "" if last == gaussian else " at the first lot"
            sigma = shown_down(gaussian.noise_multiplier)
            rows.append(("jointly", f"one release of σ = {sigma}{when}, which the accountant charges"))
    for lot in plan.lots:
        q = plan.step(0).lots[plan.lots.index(lot)].sampling_probability
        words = f"L = {lot.size.in_words}, q = L/N = {q:.6g}, N = {plan.num_examples:,}"
        rows.append((f"{lot.name} lot", f"{words}, {plan.sampling.name} sampling"))
    rows.append(("steps", _steps_in_words(plan)))
    if plan.noise == "secure":
        rows.append(("noise", _SECURE))
    return rows


_SECURE = (
    "secure: ChaCha20 bits, summed draws on a lattice (Holohan and Braghin 2021, section 5.1; Haney et al. "
    "2022); about 40 ns a value instead of 8"
)


def _group_in_words(group: Group) -> str:
    words = f"C = {group.clip_norm.in_words}, σ = {group.noise_multiplier.in_words}"
    return f"{words}, on {', '.join(group.patterns)}; {group.clipping.in_words}"


def _steps_in_words(plan: PrivacyPlan) -> str:
    words = (
        f"T = {plan.steps:,} lots ({plan.steps / plan.lots_per_epoch:.4g} epochs{_charged_in_words(plan)})"
    )
    if plan.guarantee is None or plan.guarantee.budget.epsilon is None:
        return words
    if plan.steps_asked == plan.steps:
        return f"{words}, as configured; the budget holds to the end"
    asked = "" if plan.steps_asked is None else f" of {plan.steps_asked:,} configured"
    return f"{words}{asked}: all that ε = {plan.guarantee.budget.epsilon:g} pays for"


def _charged_in_words(plan: PrivacyPlan) -> str:
    every = plan.lots_per_charge
    if plan.guarantee is None or every == 1:
        return ""
    return f", charged as {-(-plan.steps // every):,} whole ones of {every:,} lots"


def _guarantee_rows(plan: PrivacyPlan, at_end: Sequence[PrivacyBound]) -> list[tuple[str, str]]:
    guarantee = plan.guarantee
    if guarantee is None:
        return [("privacy", "none: nothing is claimed about the training data")]
    rows = [("one-time release", _release_in_words(release)) for release in guarantee.releases]
    first, *others = at_end
    rows.append(("ε at the end", _bound_in_words(first, guarantee)))
    if others:
        rows.append(("beside it", ", ".join(f"{shown(b)} {b.accountant} ({b.kind})" for b in others)))
    if guarantee.terms.in_words:
        rows.append(("budget", guarantee.terms.in_words))
    rows.append(("protected", f"one row of the training data, under {guarantee.relation.in_words}"))
    if plan.deterministic:
        rows.append(("warning", "lots and noise are keyed by the seed: arithmetic, not a guarantee"))
    warning = delta_warning(guarantee.budget.delta, plan.num_examples)
    return [*rows, ("warning", warning)] if warning else rows


def _data_rows(experiment: Experiment) -> list[tuple[str, str]]:
    data = experiment.data
    validation = f"val/* is {_validation_in_words(data)}, declared {data.validation_privacy}"
    rows = [("data", f"{data.name}; {validation}")]
    rows += [("features", f"{words}, declared public") for words in experiment.declared_public]
    if experiment.strict:
        rows.append(("strict", "only what ε covers is recorded or shown; noise is secure, whatever was set"))
    ignored = ", ".join(f"{key}={value}" for key, value in experiment.ignored().items())
    return [*rows, ("ignored keys", ignored)] if ignored else rows


def _validation_in_words(data: Dataset) -> str:
    if getattr(data, "held_out", None) is not None:
        return "data.held_out"
    if isinstance(data.validation, int):
        return f"the last {data.validation:,} training rows" if data.validation else "the test split"
    [(rule, value)] = data.validation.items()
    return f"the training rows of {rule}: {value}"


def _release_in_words(release: Release) -> str:
    event = release.event
    noise = f"σ = {event.noise_multiplier:g}" if isinstance(event, Gaussian) else str(event)
    return f"{release.name}, {noise}, from all training rows"


def _bound_in_words(bound: PrivacyBound, guarantee: Guarantee) -> str:
    words = f"{shown(bound)} at δ = {guarantee.budget.delta:g} by {bound.accountant} ({bound.kind})"
    if guarantee.releases and not guarantee.terms.declares_filter:
        share = guarantee.charged_account(guarantee.accountant).epsilon()
        words += f"; {shown(share)} of it before the first lot"
    if bound.saturated:
        words += f"; its best order is its last: accountant={bound.tighter} may be tighter"
    return words
