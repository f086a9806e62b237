"""`Experiment`: everything a task needs, as objects. No Hydra, and no torch until it trains."""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, final

from dpexp import _validate
from dpexp.accounting import AnyAccountant, PrivacyBound, RenyiAccountant
from dpexp.budgets import FIXED, BudgetRule
from dpexp.configuration import as_config
from dpexp.data import Dataset
from dpexp.defaults import (
    check_factory,
    default_model,
    default_optimizer,
    default_trainer,
    own_learning_rate,
)
from dpexp.features import Features, NoFeatures, TakesPublic
from dpexp.lots import PoissonSampling, Sampling
from dpexp.options import Options
from dpexp.plan import PrivacyPlan
from dpexp.privacy import DPSGD, Privacy
from dpexp.schedules import AbstractSchedule
from dpexp.tracking import MLflowTracking, Opener

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch import nn, optim

__all__ = ["Experiment", "Result", "Whole"]

_FILLED_IN: Any = None  # the default of what an experiment works out from its other parts
_GROUPS = (
    "data",
    "features",
    "model",
    "privacy",
    "sampling",
    "accountant",
    "budget",
    "optimizer",
    "schedule",
)


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to.

    Attributes:
        accuracy: On the test split; None where that split is private.
        epsilon: The certified ε at δ; None without privacy.
        delta: δ; None without privacy.
        steps: Optimizer steps taken.
        forfeited_lots: Lots charged on top of them: lost in crashes, or left of a block at a stop.
        run_id: The MLflow run.
        experiment_id: Its MLflow experiment.
        tracking_uri: The store that holds it, without password.
        deterministic: Lots and noise were keyed by the seed, so that nothing is guaranteed.
        statement: The guarantee in words.
    """

    accuracy: float | None
    epsilon: float | None
    delta: float | None
    steps: int
    run_id: str
    experiment_id: str
    tracking_uri: str = field(repr=False)
    deterministic: bool
    statement: str = field(repr=False)
    forfeited_lots: int = 0

    def _repr_html_(self) -> str:
        """In a notebook: the figures, and the guarantee in words."""
        figures = [f"{field.name} = {getattr(self, field.name)}" for field in fields(self) if field.repr]
        return f"<p>{html.escape(', '.join(figures))}</p><pre>{html.escape(self.statement)}</pre>"

    @property
    def objectives(self) -> dict[str, float | None]:
        """What a sweeper may be told: accuracy, error and ε."""
        error = None if self.accuracy is None else 1 - self.accuracy
        return {"accuracy": self.accuracy, "error": error, "epsilon": self.epsilon}


@final
@dataclass(frozen=True, kw_only=True)
class Whole:
    """What a run is a part of, where the guarantee of the whole is claimed and not the run's own.

    Attributes:
        epsilon: Of the whole; certified.
        statement: Its guarantee in words.
    """

    epsilon: PrivacyBound
    statement: str


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: what is trained, on what, how privately, and where it is recorded.

    What is left out is what `conf/config.yaml` chooses. `dataclasses.replace` makes variants: parts that were
    filled in are filled in anew, from the new parts.

    Attributes:
        name: Name of the experiment, as in MLflow.
        data: The data set.
        features: Fixed features; left out, the rows as they are.
        privacy: DP-SGD, or none.
        sampling: How lots are drawn.
        accountant: The configured accountant.
        model: Makes the model, a new one at each call; called under `seed`. Left out, a hidden layer of 1000
            units.
        optimizer: Makes the optimizer from the parameters.
        schedule: Learning rate over the lots; left out, the optimizer's own at all of them.
        trainer: Makes the Lightning trainer from what training adds to it.
        tracking: Where runs are recorded.
        seed: Governs initialisation only.
        physical_batch_size: Examples at once in memory; None for the whole lot, `auto` for as many as fit.
        config: The configuration as plain values, for the record; left out, that of the parts.
        strict: Only what the guarantee covers is recorded or shown, and noise is secure, whatever
            `privacy.noise` says.
        resume: `last`, or the id of an MLflow run that goes on; None starts a new run.
        vary: Makes the experiment that more overrides of the same command line would; None without one.
        tags: Tags of its MLflow run beside dpexp's own.
        options: How it is computed and shown; None for what the root keys of `config` say.
        budget: What its spending is held to.
        recording: Opens what it is recorded to; None for an MLflow run of `tracking`.
        whole: What it is a part of; None where its record claims its own guarantee.
        filled_in: What was worked out from other parts, by name. Not to be set.
    """

    name: str
    data: Dataset
    features: Features = _FILLED_IN
    privacy: Privacy
    sampling: Sampling = field(default_factory=PoissonSampling)
    accountant: AnyAccountant = field(default_factory=RenyiAccountant)
    model: "Callable[[], nn.Module]" = _FILLED_IN
    optimizer: "Callable[[Iterable[nn.Parameter]], optim.Optimizer]" = field(
        default_factory=default_optimizer
    )
    schedule: AbstractSchedule = _FILLED_IN
    trainer: "Callable[..., pl.Trainer]" = field(default_factory=default_trainer)
    tracking: MLflowTracking = field(default_factory=MLflowTracking)
    seed: int = 0
    physical_batch_size: int | str | None = None
    strict: bool = False
    config: Mapping[str, Any] = _FILLED_IN
    resume: str | None = None
    vary: "Callable[[Sequence[str]], Experiment] | None" = None
    tags: Mapping[str, str] = field(default_factory=dict)
    options: Options | None = None
    budget: BudgetRule = FIXED
    recording: Opener | None = None
    whole: Whole | None = None
    filled_in: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.model is not None:
            check_factory("model", self.model, "lambda: MLP(64, [32], 10)")
        check_factory("optimizer", self.optimizer, "functools.partial(torch.optim.SGD, lr=0.1)")
        _validate.integer("seed", self.seed, at_least=0)
        if self.resume is not None and not (isinstance(self.resume, str) and self.resume):
            raise _validate.refuse("resume", self.resume, "last, the id of an MLflow run, or null")
        if self.physical_batch_size not in (None, "auto"):
            hint = "Or auto, for as many as fit into memory_mb; null for the whole lot."
            size = _validate.integer("physical_batch_size", self.physical_batch_size, at_least=1, hint=hint)
            object.__setattr__(self, "physical_batch_size", size)
        if not isinstance(self.strict, bool):
            raise _validate.refuse("strict", self.strict, "true or false")
        if self.strict:
            object.__setattr__(self, "privacy", _strictly(self.privacy))
        self._fill_in()
        if self.strict and "config" not in self.filled_in:
            settings = {**self.config.get("privacy", {}), "noise": "secure"}
            object.__setattr__(self, "config", {**self.config, "privacy": settings})

    def _fill_in(self) -> None:
        """Works out what was left out; a part that another experiment had worked out counts as left out."""
        width = self.data.dimensions
        before, filled = self.filled_in, dict[str, Any]()
        given = {} if self.config is None or self.config is before.get("config") else self.config
        makers: dict[str, Callable[[], Any]] = {
            "features": lambda: NoFeatures(inputs=width, dimensions=width),
            "model": lambda: default_model(self.features.dimensions, self.data.num_classes),
            "schedule": lambda: own_learning_rate(self.optimizer),
            "options": lambda: Options.of(given),
            "config": self._of_the_parts,
        }
        for name, make in makers.items():
            found = getattr(self, name)
            if found is None or found is before.get(name):
                filled[name] = make()
                object.__setattr__(self, name, filled[name])
        object.__setattr__(self, "filled_in", filled)

    def _of_the_parts(self) -> dict[str, Any]:
        """The configuration that would make the same experiment."""
        groups = {name: as_config(getattr(self, name)) for name in (*_GROUPS, "trainer", "tracking")}
        for name in ("model", "budget"):
            groups[name].pop("_partial_", None)  # it is called without more arguments
        assert self.options is not None
        options = {field.name: as_config(getattr(self.options, field.name)) for field in fields(self.options)}
        options["checkpoint"].pop("_target_")
        root = {name: getattr(self, name) for name in ("seed", "strict", "resume", "physical_batch_size")}
        return groups | root | options

    def plan(self) -> PrivacyPlan:
        """All the privacy arithmetic, from declared facts; no data is touched.

        Raises:
            UserError: It is impossible, or the data set has a budget that this run would not be charged to.
        """
        if self.data.budget_id is not None and not self.budget.shared:
            hint = (
                "Declared with a budget, the data are spent from it and nothing else: task=budget shows it."
            )
            raise _validate.refuse(
                "data.budget_id", self.data.budget_id, "budget=dataset, or null here", hint
            )
        return self.privacy.plan(
            num_examples=self.data.num_examples,
            sampling=self.sampling,
            accountant=self.accountant,
            releases=self.features.releases,
            budget=self.budget,
        )

    @property
    def declared_public(self) -> tuple[str, ...]:
        """What its features were made from that is declared public, in words."""
        return self.features.declared_public if isinstance(self.features, TakesPublic) else ()

    def evaluates(self, split: str) -> bool:
        """Whether `validation` or `test` rows are looked at: in strict mode, only those declared public.

        A figure of private rows would be made to be dropped, and whatever is chosen by it would depend on
        them.
        """
        privacy = {"validation": self.data.validation_privacy, "test": self.data.test_privacy}[split]
        return not self.strict or privacy == "public"

    def ignored(self) -> dict[str, Any]:
        """Keys that were set and have no effect, by their name in the configuration."""
        privacy = {f"privacy.{key}": value for key, value in self.privacy.ignored().items()}
        return privacy | {f"features.{key}": value for key, value in self.features.ignored().items()}


def _strictly(privacy: Privacy) -> Privacy:
    """The same with secure noise; refuses what guarantees nothing."""
    if not isinstance(privacy, DPSGD):
        expected = "false where privacy=none"
        raise _validate.refuse(
            "strict", True, expected, "Without privacy there is no guarantee to be strict about."
        )
    if privacy.deterministic:
        expected = "false where privacy.deterministic=true"
        hint = "Lots and noise keyed by the seed guarantee nothing: anyone can draw them again."
        raise _validate.refuse("strict", True, expected, hint)
    return replace(privacy, noise="secure")
