"""Figures as files and words: CSV, means with their spread."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["mean", "save_csv", "spread_in_words"]


def save_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Writes a table, whole or not at all; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.csv")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    partial.replace(path)
    return path


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def spread_in_words(accuracies: Sequence[float]) -> str:
    """Mean of accuracies in percent, and least and greatest where there are several."""
    words = f"{mean(accuracies):.2%}"
    return words if len(accuracies) == 1 else f"{words} ({min(accuracies):.2%}–{max(accuracies):.2%})"
