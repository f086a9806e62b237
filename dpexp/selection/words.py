"""A selection in words: the table beforehand, the guarantee, and the result."""

from rich.panel import Panel
from rich.table import Table

from dpexp.accounting import Kind, delta_warning
from dpexp.console import shown_accuracy, shown_up
from dpexp.selection.candidate import Candidate
from dpexp.selection.law import quantile
from dpexp.selection.selection import Selection

__all__ = ["NOTHING", "selection_table", "statement", "words_of_result"]

NOTHING = "Nothing is released: there was no trial that came to a score."
_NOT_COVERED = (
    "several rows of the same person (the privacy unit is one row)",
    "how long the selection took, from which the number of trials could be guessed, and the private store",
    "a trial that fails by private rows otherwise than through what it releases, as when memory runs out",
    "what is declared public: the configuration, the search space, the number of rows, public data",
    "the finite precision of floating point",
)


def selection_table(selection: Selection) -> Table:
    """What is declared, and what it costs, before anything is drawn."""
    title = f"Private selection of {selection.name}"
    table = Table(title=title, show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    for row in [*_space_rows(selection), *_cost_rows(selection)]:
        table.add_row(*row)
    return table


def _space_rows(selection: Selection) -> list[tuple[str, str]]:
    law, rows = selection.law, [(key, ", ".join(values)) for key, values in selection.space.choices.items()]
    median, most = quantile(law, 0.5), quantile(law, 0.99)
    data = selection.experiment.data
    return [
        *rows,
        ("points", f"{len(selection.candidates):,}; each trial is on a random one"),
        (
            "trials",
            f"K is secret: {law.in_words}; at most {median:,} in half of all cases, at most {most:,} in 99 %",
        ),
        ("score", f"{selection.score.metric}, of rows of {data.name} declared public"),
    ]


def _cost_rows(selection: Selection) -> list[tuple[str, str]]:
    cost, delta = selection.cost, selection.delta
    mean = f"{int(selection.law.mean_trials):,}"
    rows = [
        ("one trial", f"ε ≤ {shown_up(cost.trial)} at δ = {delta:g}, whichever the point"),
        (
            "the selection",
            f"ε ≤ {shown_up(cost.whole)} at δ = {delta:g} by {cost.whole.accountant} (certified)",
        ),
        ("beside it", f"ε ≤ {shown_up(cost.all_of_mean)} for publishing everything of {mean} such trials"),
        ("protected", f"one row of the training data, under {selection.relation.in_words}"),
    ]
    warning = delta_warning(delta, selection.experiment.data.num_examples)
    return [*rows, ("warning", warning)] if warning else rows


def statement(selection: Selection, winner: Candidate | None) -> str:
    """The guarantee of the whole, whatever is released of it."""
    paragraphs = (
        _figure(selection),
        _meaning(selection),
        _procedure(selection),
        _included(selection, winner),
        _assumed(selection),
        *_optimism(selection, winner),
        f"Not covered: {'; '.join(_NOT_COVERED)}.",
    )
    return "\n\n".join(paragraphs)


def _figure(selection: Selection) -> str:
    whole = selection.cost.whole
    assert whole.kind is Kind.CERTIFIED
    warning = delta_warning(selection.delta, selection.experiment.data.num_examples)
    return (
        f"ε = {whole.in_print} at δ = {selection.delta!r}, for {selection.relation.in_words}: a proven "
        f"upper bound ({whole.kind}, accountant {whole.accountant}) for the whole selection, whatever its "
        f"trials came to.{f' {warning}' if warning else ''}"
    )


def _meaning(selection: Selection) -> str:
    return (
        "Protected is one row of the data, against anyone who sees everything released, knows every other "
        f"row and has unlimited computing power: {selection.relation.in_words} changes the probability of "
        "any outcome by a factor of at most e^ε, plus δ."
    )


def _procedure(selection: Selection) -> str:
    cost, law = selection.cost, selection.law
    return (
        f"The number of trials was drawn once, before the first, from a secret source ({law.in_words}), and "
        "is not told. Each trial was on a point drawn uniformly from the "
        f"{len(selection.candidates):,} declared ones, with randomness of its own; one that failed counts as "
        f"the worst and was not repeated. Only the best by {selection.score.metric}, a figure of rows "
        "declared public, is released. One trial alone costs at most"
        f" ε = {cost.trial.in_print} at the same δ, whichever its point; the price of the "
        f"selection is that of Papernot and Steinke (2022), arXiv 2110.03620, {law.theorem}."
    )


def _included(selection: Selection, winner: Candidate | None) -> str:
    if winner is None:
        return f"{NOTHING} That, too, is an outcome that the figure covers."
    point = ", ".join(winner.overrides)
    return (
        f"Included: the model, the point that it was trained on ({point}), its {winner.plan.steps:,} lots, "
        "and its figures on splits declared public."
    )


def _assumed(selection: Selection) -> str:
    """Of all points: what the price assumes must hold in every trial, not in the best alone."""
    samplings = [candidate.plan.sampling for candidate in selection.candidates]
    ways = "; or, by the point, ".join(dict.fromkeys(sampling.in_words for sampling in samplings))
    secret = (
        ", nobody but the curator knows which rows were in which lot,"
        if any(sampling.if_known is not None for sampling in samplings)
        else ""
    )
    return (
        f"Assumed: {ways}{secret} and nobody but the curator sees the private store, the number "
        "of trials or what the others came to. Whoever does must add up all trials."
    )


def _optimism(selection: Selection, winner: Candidate | None) -> list[str]:
    """What is no matter of privacy, and easily taken for a result."""
    data, score = selection.experiment.data, selection.score
    if winner is None or not (score.metric.startswith("test/") or not data.validation):
        return []
    return [
        "Its test accuracy is optimistic: the trials were compared by rows of the same split. For one that "
        "is not, hold rows out for validation (data.validation) and declare them public."
    ]


def words_of_result(
    selection: Selection, winner: Candidate | None, accuracy: float | None, run: str
) -> Panel:
    """The result, the guarantee, and where it is recorded."""
    lines = [f"[bold]{NOTHING}[/]"]
    if winner is not None:
        found = f"[bold]test accuracy[/] {shown_accuracy(accuracy)}"
        lines = [f"[bold]best point[/] {' '.join(winner.overrides)}", found]
    privacy = f"ε ≤ {shown_up(selection.cost.whole)} at δ = {selection.delta:g} (certified)"
    lines += [f"[bold]privacy[/] {privacy}, of the whole selection", f"[bold]MLflow run[/] {run}"]
    return Panel("\n".join([*lines, "", statement(selection, winner)]), title="Result", title_align="left")
