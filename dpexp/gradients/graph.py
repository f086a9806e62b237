"""The autograd graph below the losses: what is reached, how often, and in which order."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import final

from torch import Tensor
from torch.autograd.graph import Node

from dpexp import _validate
from dpexp.gradients.layout import Source, Unexpected
from dpexp.gradients.recorder import Call

__all__ = ["Graph"]


@final
class Graph:
    """Every node that the losses depend on.

    Args:
        root: The losses' node.
    """

    def __init__(self, root: Node) -> None:
        self._order: list[Node] = []
        self._edges: dict[Node, int] = {root: 0}
        self._walk(root)
        ends = [node for node in self._order if not node.next_functions]
        self._leaves = {id(node.variable): node for node in ends if hasattr(node, "variable")}
        if any(node.name() == "CheckpointFunctionBackward" for node in self._order):
            raise _validate.UserError(
                "model: checkpoint(…, use_reentrant=True) hides what it computes, expected "
                "use_reentrant=False."
            )

    def _walk(self, root: Node) -> None:
        """Counts the edges to each node, and lists each node after those below it."""
        edges, stack = self._edges, [(root, iter(root.next_functions))]
        while stack:
            node, children = stack[-1]
            for child, _ in children:
                if child is None:
                    continue
                if child not in edges:
                    edges[child] = 1
                    stack.append((child, iter(child.next_functions)))
                    break
                edges[child] += 1
            else:
                self._order.append(node)
                stack.pop()

    def reaches(self, node: Node) -> bool:
        """Whether the losses depend on it."""
        return node in self._edges

    def leaf(self, parameter: Tensor) -> Node | None:
        """The node at which the gradient of a parameter would be added up; None if it is not reached."""
        return self._leaves.get(id(parameter))

    def prove(self, calls: Iterable[Call], nodes: Mapping[Source, Node | None]) -> None:
        """Raises `Unexpected` unless every use of every source is inside a recorded call that nothing enters.

        Otherwise a part of some gradient would be missing, silently.
        """
        recorded: Counter[Node] = Counter()
        ends = {node for node in nodes.values() if node is not None}
        for call in calls:
            starts = [edge.node for edge in call.edges if self.reaches(edge.node)]
            found = _edges_below(starts, call.inputs)
            recorded.update(found)
            borders = ends.union(call.inputs, starts)
            if any(self._edges[node] != edges for node, edges in found.items() if node not in borders):
                raise Unexpected(f"the inside of {call.operation.function.__name__} is used from outside")
        for source, node in nodes.items():
            if node is not None and self._edges.get(node, 0) != recorded[node]:
                raise Unexpected(f"{source} is used outside every call that was seen")

    def lowest(self, targets: Set[Node]) -> set[Node]:
        """The targets that lead to no other target: where a backward pass may end."""
        leads: set[Node] = set()
        found = set()
        for node in self._order:
            if any(child in leads for child, _ in node.next_functions):
                leads.add(node)
            elif node in targets:
                found.add(node)
                leads.add(node)
        return found


def _edges_below(starts: Sequence[Node], stops: Set[Node]) -> Counter[Node]:
    """How many edges lead to each node below `starts`, without passing `stops`."""
    edges: Counter[Node] = Counter()
    seen = set(starts)
    stack = list(seen)
    while stack:
        for child, _ in stack.pop().next_functions:
            if child is None:
                continue
            edges[child] += 1
            if child not in seen and child not in stops:
                seen.add(child)
                stack.append(child)
    return edges
