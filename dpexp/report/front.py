"""The Pareto front: what no other setting beats in both ε and accuracy."""

from collections.abc import Sequence

__all__ = ["front"]


def front(points: Sequence[tuple[float, float]]) -> frozenset[int]:
    """The indices of the (ε, accuracy) that no other point dominates.

    A point dominates another if its ε is no greater and its accuracy no less, and one of the two is better.
    """
    best: float | None = None
    found: set[int] = set()
    by_epsilon = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    last: tuple[float, float] | None = None
    for index in by_epsilon:
        if best is None or points[index][1] > best or points[index] == last:
            best, last = points[index][1], points[index]
            found.add(index)
    return frozenset(found)
