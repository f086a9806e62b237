"""Several runs, and what they came to: a list, a table, a plot, and what all of them cost together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final, overload

from rich.console import Console

from dpexp import _validate
from dpexp.console import shown_up
from dpexp.experiment import Experiment, Result
from dpexp.notebook.trade_off import Point, trade_off
from dpexp.price import Charged, Price, price_of
from dpexp.tracking import flatten
from dpexp.training import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Results", "run_all"]

_SILENT = Console(quiet=True, force_jupyter=False, force_terminal=False)
_LISTED_APART = (
    "not all were listed before the first was trained, and ε of runs that were chosen by earlier results do "
    "not simply add up (budget=DatasetBudget(…) holds all runs on some data to one ε)"
)
_OF_RUNS = ("accuracy", "epsilon", "delta", "steps", "deterministic", "run_id", "statement")


@final
@dataclass(frozen=True)
class Results(Sequence[Result]):
    """What several experiments came to, in their order.

    Attributes:
        experiments: As they were run.
        results: One for each.
        price: What publishing all of them costs, if they are on the same rows.
    """

    experiments: tuple[Experiment, ...]
    results: tuple[Result, ...]
    price: Price

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, index: int | slice) -> Result | tuple[Result, ...]:
        """One result, or some of them."""
        return self.results[index]

    def __add__(self, other: "Results") -> "Results":
        """These runs, and others, which may have been chosen by looking at these: no price is known."""
        price = Price(runs=len(self) + len(other), bounds=(), why=_LISTED_APART)
        return Results((*self.experiments, *other.experiments), (*self.results, *other.results), price)

    def table(self) -> "DataFrame":
        """A row for each run: name, seed, the keys that differ between them, accuracy, ε, δ and others.

        ε is rounded up to six decimals, which is what pandas shows: it would round to the nearest.
        """
        from pandas import DataFrame

        configs = [flatten(experiment.config) for experiment in self.experiments]
        varied = _varied(configs)
        rows = [
            {"name": experiment.name, "seed": experiment.seed}
            | {key: config.get(key) for key in varied}
            | {name: getattr(result, name) for name in _OF_RUNS}
            | {"epsilon": None if result.epsilon is None else float(shown_up(result.epsilon, 6))}
            for experiment, config, result in zip(self.experiments, configs, self.results, strict=True)
        ]
        return DataFrame(rows)

    def plot(self) -> "Figure":
        """Accuracy against ε: a mark for each mean over seeds, a line for what was trained without privacy.

        Raises:
            UserError: No run has an accuracy that may be shown, as their test splits are private.
        """
        pairs = zip(self.experiments, self.results, strict=True)
        points = [_point(experiment, result) for experiment, result in pairs if result.accuracy is not None]
        if not points:
            expected = "at least one run whose test split is declared public"
            raise _validate.refuse("results.plot: runs with an accuracy", 0, expected)
        return trade_off(points)

    def __str__(self) -> str:
        return f"{len(self)} runs. {self.in_words}"

    @property
    def in_words(self) -> str:
        """What publishing all of them costs."""
        return self.price.in_words("All runs")

    def _repr_html_(self) -> str:
        """In a notebook: the table, and the price of all runs."""
        table = self.table().drop(columns=["statement"])
        return f"{table.to_html(index=False)}<p>{self.in_words}</p>"


def run_all(experiments: Iterable[Experiment], console: Console | None = None) -> Results:
    """Trains experiments one after another.

    All are listed and planned before the first is trained, so that plain composition bounds their price.

    Args:
        experiments: At least one.
        console: Where each shows its plan, its progress and its result; left out, each has one line.

    Raises:
        UserError: One of them is impossible; none has been trained.
    """
    listed = tuple(experiments)
    if not listed:
        raise _validate.refuse("experiments", [], "at least one experiment")
    price = price_of([Charged.whole(experiment.plan()) for experiment in listed])
    results: list[Result] = []
    for experiment in listed:
        try:
            results.append(train(experiment, console or _SILENT))
        except BaseException as error:
            done = ", ".join(result.run_id for result in results) or "none"
            error.add_note(f"Run {len(results) + 1} of {len(listed)} failed. Complete before it: {done}.")
            raise
        if console is None:
            Console().print(f"run {len(results)} of {len(listed)}: {_in_a_line(experiment, results[-1])}")
    return Results(listed, tuple(results), price)


def _in_a_line(experiment: Experiment, result: Result) -> str:
    accuracy = "no public test split" if result.accuracy is None else f"test accuracy {result.accuracy:.2%}"
    if result.epsilon is None or result.delta is None:
        return f"{experiment.name}, seed {experiment.seed}: {accuracy}, no privacy"
    claim = f"ε ≤ {shown_up(result.epsilon)} at δ = {result.delta:g}"
    words = f"{experiment.name}, seed {experiment.seed}: {accuracy}, {claim}"
    return f"{words} (arithmetic, no guarantee)" if result.deterministic else words


def _varied(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Keys whose values differ, in the order of the configuration; the seed has a column of its own.

    A run without privacy does not differ in clip norm, noise and the like: it has none.
    """
    keys = dict.fromkeys(key for config in configs for key in config)
    private = [config for config in configs if config.get("privacy._target_") == "dpexp.privacy.DPSGD"]
    return [key for key in keys if key != "seed" and _differs(key, private if _of_noise(key) else configs)]


def _of_noise(key: str) -> bool:
    return key.startswith("privacy.") and key != "privacy._target_"


def _differs(key: str, configs: Sequence[dict[str, Any]]) -> bool:
    return len({repr(config.get(key)) for config in configs}) > 1


def _point(experiment: Experiment, result: Result) -> Point:
    assert result.accuracy is not None
    config = {key: value for key, value in flatten(experiment.config).items() if key != "seed"}
    return Point(
        group=_group(experiment, result),
        setting=repr(sorted(config.items())),
        epsilon=result.epsilon,
        accuracy=result.accuracy,
    )


def _group(experiment: Experiment, result: Result) -> str:
    """What must be equal for two ε to be compared."""
    guarantee = experiment.plan().guarantee
    if guarantee is None:
        return f"{_on_rows(experiment)}, without privacy"
    words = (
        f"{_on_rows(experiment)}, δ = {result.delta:g}, {guarantee.relation.in_words}, "
        f"{experiment.sampling.name} sampling, {experiment.accountant.name}"
    )
    return f"{words}: arithmetic, no guarantee" if result.deterministic else words


def _on_rows(experiment: Experiment) -> str:
    """Accuracies on other rows are no trade-off with these."""
    data = experiment.data
    name = experiment.name if experiment.name == data.name else f"{experiment.name} on {data.name}"
    return f"{name}, N = {data.num_examples:,}"
