"""What a reader must know before comparing the runs of a report."""

from collections import Counter
from collections.abc import Iterator

from dpexp.accounting import delta_warning
from dpexp.report.comparison import Comparison, Series
from dpexp.report.subject import Subject
from dpexp.report.terms import NAMES

__all__ = ["notices"]


def notices(subject: Subject, comparison: Comparison) -> list[str]:
    """Sentences, the gravest first; empty where there is nothing to warn of."""
    return [
        *_of_randomness(comparison),
        *_of_differences(comparison),
        *_of_kinds(comparison),
        *_of_splits(comparison),
        *_of_selection(subject),
        *_of_price(subject, comparison),
        *_of_delta(comparison),
        *_of_undrawn(comparison),
        *_of_baselines(comparison),
        *_of_foreign(subject),
    ]


def _of_randomness(comparison: Comparison) -> Iterator[str]:
    keyed = [series for series in comparison.series if series.terms.randomness != "secret"]
    if keyed:
        yield (
            f"Arithmetic, not a guarantee: in {_listed(keyed)} lots and noise were keyed by the seed "
            "(privacy.deterministic=true). Whoever knows it can subtract the noise."
        )


def _of_differences(comparison: Comparison) -> Iterator[str]:
    if comparison.differences:
        names = ", ".join(NAMES[name] for name in comparison.differences)
        yield (
            f"Not all of these runs are comparable: they differ in {names}. Each group of equal terms is a "
            "series of its own, with its own marks and front; an ε of one series says nothing about another."
        )


def _of_kinds(comparison: Comparison) -> Iterator[str]:
    other = [series for series in comparison.series if series.terms.kind != "certified"]
    if other:
        yield f"No proven bound: the ε of {_listed(other)} is not certified."


def _of_splits(comparison: Comparison) -> Iterator[str]:
    private = [series for series in comparison.series if series.terms.test_split != "public"]
    plain = any(not baseline.covered for baseline in comparison.baselines)
    if private or plain:
        words = [f"the accuracy of {_listed(private)}"] if private else []
        words += ["the accuracy of runs without privacy"] if plain else []
        yield (
            f"Not covered by ε: {' and '.join(words)} is of a test split that is declared private. "
            "Publishing it, or this page, reveals something of those rows that no ε accounts for."
        )


def _of_selection(subject: Subject) -> Iterator[str]:
    if any(run.is_selection for run in subject.runs):
        yield (
            "The result of a private selection carries one ε for the whole procedure. How many trials there "
            "were, and what the others came to, is secret, and in no store. If they were compared by rows of "
            "the test split, as its statement then says, its test accuracy is optimistic."
        )


def _of_price(subject: Subject, comparison: Comparison) -> Iterator[str]:
    spending = [run for run in comparison.runs if run.is_private or run.is_selection]
    if len(spending) > 1:
        price = (
            "what a sweep cost as a whole is on the page under “The price of all of it”."
            if subject.sweeps
            else "only the runs of a sweep are priced together, and these are of none."
        )
        yield (
            "Each ε is that of one run, or one selection, alone. All runs on the same rows spend together, "
            f"also those that failed, and reading the best off a front looks at all: {price}"
        )


def _of_delta(comparison: Comparison) -> Iterator[str]:
    for series in comparison.series:
        first = series.points[0].runs[0]
        try:
            warning = delta_warning(first.delta or 0.0, int(first.params.get("data.num_examples", "0")))
        except ValueError:
            continue  # N is not recorded as a number
        if warning:
            yield f"Series {series.letter}: {warning}"


def _of_undrawn(comparison: Comparison) -> Iterator[str]:
    if comparison.undrawn:
        counts = Counter(undrawn.reason for undrawn in comparison.undrawn)
        words = "; ".join(f"{count} × {reason}" for reason, count in counts.items())
        yield f"Listed below, in no figure: {words}."


def _of_baselines(comparison: Comparison) -> Iterator[str]:
    if comparison.baselines:
        yield "Runs without privacy have no ε: they are drawn as horizontal lines."


def _of_foreign(subject: Subject) -> Iterator[str]:
    if subject.foreign:
        yield f"Left out: {subject.foreign} runs of this MLflow experiment that dpexp did not make."


def _listed(series: list[Series]) -> str:
    return f"series {', '.join(each.letter for each in series)}"
