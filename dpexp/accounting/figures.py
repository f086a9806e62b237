"""The numbers of Figure 2 of Abadi et al. (2016): ε by epoch, moments accountant and strong composition.

    >>> [curve.name for curve in figure_2(q=0.01, sigma=4, delta=1e-5, epochs=[100])]
    ['moments', 'paper_strong_composition', 'strong_composition', 'rdp', 'pld', 'exact']

At q = 0.01, σ = 4, δ = 1e-5 and 100 epochs the paper prints 1.26 and 9.34. No plot here:
`python -m dpexp.accounting.figures` prints the curves as CSV.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpexp import _validate
from dpexp.accounting.api import epsilon
from dpexp.accounting.bounds import PrivacyBound
from dpexp.accounting.composition import paper_strong_composition

__all__ = ["Curve", "curves_in_csv", "figure_2"]


@dataclass(frozen=True)
class Curve:
    """One line of the figure.

    Attributes:
        name: The accountant.
        epsilons: ε at every epoch, all of one kind.
    """

    name: str
    epsilons: tuple[PrivacyBound, ...]

    @property
    def kind(self) -> str:
        """What kind of figures these are; part of the line's label."""
        return str(self.epsilons[0].kind)


def figure_2(*, q: float, sigma: float, delta: float, epochs: Sequence[float]) -> tuple[Curve, ...]:
    """ε(E) of Poisson lots under every accountant of the figure.

    Args:
        q: Sampling probability in (0, 1]; an epoch is 1/q lots.
        sigma: Noise multiplier > 0.
        delta: δ in (0, 1).
        epochs: E > 0, at least one; E/q is rounded to whole lots.

    Returns:
        The paper's accountant, the strong composition it drew (heuristic), the strong composition that is
        proven, and beyond the paper rdp, pld (certified) and exact (estimate).
    """
    q = _validate.number("sampling_probability", q, above=0, at_most=1)
    sigma = _validate.number("noise_multiplier", sigma, above=0)
    delta = _validate.fraction("delta", delta)
    if len(epochs) == 0:
        raise _validate.refuse("epochs", epochs, "at least one number > 0")
    lots = [max(1, round(_validate.number("epochs", epoch, above=0) / q)) for epoch in epochs]
    run: dict[str, Any] = {"sampling_probability": q, "noise_multiplier": sigma, "delta": delta}
    lines: dict[str, Callable[[int], PrivacyBound]] = {
        "moments": lambda steps: epsilon(steps=steps, accountant="moments", **run),
        "paper_strong_composition": lambda steps: paper_strong_composition(steps=steps, **run),
        "strong_composition": lambda steps: epsilon(steps=steps, accountant="strong_composition", **run),
        "rdp": lambda steps: epsilon(steps=steps, accountant="rdp", **run),
        "pld": lambda steps: epsilon(steps=steps, accountant="pld", **run),
        "exact": lambda steps: epsilon(steps=steps, accountant="exact", **run),
    }
    return tuple(Curve(name, tuple(at(count) for count in lots)) for name, at in lines.items())


def curves_in_csv(epochs: Sequence[float], curves: Sequence[Curve]) -> Iterator[str]:
    """The lines of a CSV file: epoch, then a column per curve, its kind in the heading."""
    yield ",".join(["epochs", *(f"{curve.name} ({curve.kind})" for curve in curves)])
    for index, epoch in enumerate(epochs):
        values = (curve.epsilons[index].rounded_up(10) for curve in curves)
        yield ",".join([f"{epoch:g}", *values])


def _main() -> None:
    epochs = [1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 350, 400]
    curves = figure_2(q=0.01, sigma=4.0, delta=1e-5, epochs=epochs)
    sys.stdout.writelines(line + "\n" for line in curves_in_csv(epochs, curves))


if __name__ == "__main__":
    _main()
