"""The autograd graph below the losses: what is reached, how often, and in which order."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import final

from torch.autograd.graph import Node

from dpexp import _validate
from dpexp.gradients.layout import Source
from dpexp.gradients.recorder import Call, Unexpected

__all__ = ["Graph"]


@final
class Graph:
    """Every node that the losses depend on.

    Args:
        root: The losses' node.
    """

    def __init__(self, root: Node) -> None:
        self._edges = _edges_below([root], frozenset())
        self._order = _after_their_inputs(root)
        self._reached = {root, *self._edges}
        if any(node.name() == "CheckpointFunctionBackward" for node in self._order):
            raise _validate.UserError(
                "model: checkpoint(…, use_reentrant=True) hides what it computes, expected "
                "use_reentrant=False."
            )

    def reaches(self, node: Node) -> bool:
        """Whether the losses depend on it."""
        return node in self._reached

    def prove(self, calls: Iterable[Call], nodes: Mapping[Source, Node]) -> None:
        """Raises `Unexpected` unless every use of every source is within a recorded call.

        Otherwise a part of some gradient would be missing, silently.
        """
        recorded: Counter[Node] = Counter()
        for call in calls:
            starts = [edge.node for edge in call.edges if self.reaches(edge.node)]
            recorded += _edges_below(starts, call.inputs)
        for source, node in nodes.items():
            if self._edges[node] != recorded[node]:
                raise Unexpected(f"{source} is used outside every call that was seen")

    def lowest(self, targets: Set[Node]) -> set[Node]:
        """The targets that lead to no other target: where a backward pass may end."""
        leads: set[Node] = set()
        found = set()
        for node in self._order:
            below = any(child in targets or child in leads for child, _ in node.next_functions)
            if below:
                leads.add(node)
            elif node in targets:
                found.add(node)
        return found


def _edges_below(starts: Sequence[Node], stops: Set[Node]) -> Counter[Node]:
    """How many edges lead to each node below `starts`, without passing `stops`."""
    edges: Counter[Node] = Counter()
    stack, seen = list(starts), set(starts)
    while stack:
        for child, _ in stack.pop().next_functions:
            if child is None:
                continue
            edges[child] += 1
            if child not in seen and child not in stops:
                seen.add(child)
                stack.append(child)
    return edges


def _after_their_inputs(root: Node) -> list[Node]:
    """All nodes, each after those below it."""
    order: list[Node] = []
    seen, stack = {root}, [(root, iter(root.next_functions))]
    while stack:
        node, children = stack[-1]
        child = next((c for c, _ in children if c is not None and c not in seen), None)
        if child is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(child)
            stack.append((child, iter(child.next_functions)))
    return order
