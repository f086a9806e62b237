"""What the runs of a sweep cost together, as its parent has it on record."""

from dataclasses import dataclass
from typing import Self, final

from dpexp.report.store import Store
from dpexp.report.stored import StoredRun
from dpexp.report.words import delta_in_words, epsilon_in_words

__all__ = ["Price"]


@final
@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of one sweep, in words.

    Attributes:
        name: The parent's name.
        run_id: The parent.
        status: What became of the sweep.
        known: There is an ε for it.
        open: The figures may be of an earlier end: it was resumed or killed, and may have charged more since.
        figures: What was priced and its ε; how many jobs there were.
        words: The price as the sweep stated it; None where that is not on record.
    """

    name: str
    run_id: str
    status: str
    known: bool
    open: bool
    figures: tuple[tuple[str, str], ...]
    words: str | None

    @classmethod
    def of(cls, store: Store, parent: StoredRun) -> Self:
        """Reads it."""
        return cls(
            name=parent.name,
            run_id=parent.run_id,
            status=parent.status,
            known=parent.epsilon_in("sweep/epsilon_best") is not None,
            open=parent.status not in ("FINISHED", "FAILED"),
            figures=tuple(_figures(parent)),
            words=store.text(parent, "sweep_price.txt"),
        )


def _figures(parent: StoredRun) -> list[tuple[str, str]]:
    delta = delta_in_words(parent.metrics.get("sweep/delta"))
    every, best = parent.epsilon_in("sweep/epsilon_all"), parent.epsilon_in("sweep/epsilon_best")
    found = []
    if every is not None and not parent.is_selection:
        found.append(("publishing all runs", f"ε ≤ {epsilon_in_words(every)} at δ = {delta}"))
    if best is not None:
        what = "the one result, by the whole procedure" if parent.is_selection else "publishing only the best"
        found.append((what, f"ε ≤ {epsilon_in_words(best)} at δ = {delta}"))
    counts = {"jobs": "jobs", "finished": "finished", "failed": "failed or stopped"}
    if not parent.is_selection:
        numbers = {words: parent.metrics.get(f"sweep/{name}") for name, words in counts.items()}
        listed = ", ".join(f"{number:g} {words}" for words, number in numbers.items() if number is not None)
        found += [("jobs", listed)] if listed else []
    return found
