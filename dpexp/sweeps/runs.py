"""The runs of a sweep one by one: what each cost alone, as a table on the screen and in a file."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from rich.table import Table

from dpexp.console import shown_up
from dpexp.price import Charged
from dpexp.sweeps.children import Child
from dpexp.tracking.tags import COMMAND_TAG, OVERRIDES_TAG

__all__ = ["RunOfSweep", "as_csv", "as_table", "runs_as_charged", "runs_as_recorded"]

_HEADER = ("job", "run_id", "status", "epsilon", "delta", "accuracy", "command")


@final
@dataclass(frozen=True, kw_only=True)
class RunOfSweep:
    """One run.

    Attributes:
        child: Its record in the store.
        epsilon: What it costs alone, certified; None where it is without privacy, or released nothing.
        delta: δ of the same.
    """

    child: Child
    epsilon: float | None
    delta: float | None

    @property
    def accuracy(self) -> float | None:
        """On a test split declared public; None for others, and before the end."""
        return self.child.metrics.get("final/accuracy")

    @property
    def overrides(self) -> Sequence[str]:
        """Its command line; empty where it was too long to be kept."""
        found: list[str] = json.loads(self.child.tags.get(OVERRIDES_TAG, "[]"))
        return found


def runs_as_charged(children: Sequence[Child], charged: Mapping[str, Charged]) -> list[RunOfSweep]:
    """The runs with what they are charged: whole, also where they did not come to their end."""
    found = []
    for child in children:
        bound = charged[child.run_id].alone if child.run_id in charged else None
        epsilon, delta = (None, None) if bound is None else (float(bound), bound.delta)
        found.append(RunOfSweep(child=child, epsilon=epsilon, delta=delta))
    return _in_order(found)


def runs_as_recorded(children: Sequence[Child]) -> list[RunOfSweep]:
    """The runs with the ε that they recorded of themselves."""
    found = []
    for child in children:
        epsilon = child.metrics.get("final/epsilon", child.metrics.get("privacy/epsilon"))
        delta = None if epsilon is None else child.metrics.get("privacy/delta")
        found.append(RunOfSweep(child=child, epsilon=epsilon, delta=delta))
    return _in_order(found)


def as_csv(runs: Sequence[RunOfSweep]) -> str:
    """All runs, ε in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for run in runs:
        child = run.child
        figures = (run.epsilon, run.delta, run.accuracy)
        command = child.tags.get(COMMAND_TAG, "")
        writer.writerow(
            [child.job, child.run_id, child.status, *("" if f is None else repr(f) for f in figures), command]
        )
    return text.getvalue()


def as_table(runs: Sequence[RunOfSweep]) -> Table:
    """All runs by what they vary."""
    table = Table(title="Each run alone", title_justify="left", min_width=60)
    for heading in ("job", "varied", "status", "ε ≤", "test accuracy"):
        table.add_column(heading, justify="left" if heading in ("varied", "status") else "right")
    common = set.intersection(*(set(run.overrides) for run in runs)) if runs else set()
    for run in runs:
        varied = " ".join(override for override in run.overrides if override not in common)
        epsilon = "none" if run.epsilon is None else shown_up(run.epsilon)
        accuracy = "" if run.accuracy is None else f"{run.accuracy:.2%}"
        table.add_row(str(run.child.job), _plain(varied), run.child.status, epsilon, accuracy)
    return table


def _plain(text: str) -> str:
    """Brackets of lists are no markup."""
    return text.replace("[", r"\[")


def _in_order(runs: Sequence[RunOfSweep]) -> list[RunOfSweep]:
    return sorted(runs, key=lambda run: run.child.job)
