"""`Experiment`: everything a task needs, as objects. No Hydra, and no torch until it trains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from dpexp import _validate
from dpexp.accounting import AnyAccountant, PrivacyBound
from dpexp.budgets import FIXED, BudgetRule
from dpexp.data import Dataset
from dpexp.features import Features
from dpexp.lots import Sampling
from dpexp.options import Options
from dpexp.plan import PrivacyPlan
from dpexp.privacy import DPSGD, Privacy
from dpexp.schedules import AbstractSchedule
from dpexp.tracking import MLflowTracking, Opener

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch import nn, optim

__all__ = ["Claim", "Experiment", "Result"]


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
    tracking_uri: str
    deterministic: bool
    statement: str
    forfeited_lots: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is claimed in place of a run's own guarantee, where it is part of something larger.

    Attributes:
        epsilon: Of the whole; certified.
        statement: The guarantee of the whole, in words.
    """

    epsilon: PrivacyBound
    statement: str


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: what is trained, on what, how privately, and where it is recorded.

    Attributes:
        name: Name of the experiment, as in MLflow.
        data: The data set.
        features: Fixed features.
        privacy: DP-SGD, or none.
        sampling: How lots are drawn.
        accountant: The configured accountant.
        model: Makes the model; called under `seed`.
        optimizer: Makes the optimizer from the parameters.
        schedule: Learning rate over the lots.
        trainer: Makes the Lightning trainer from what training adds to it.
        tracking: Where runs are recorded.
        seed: Governs initialisation only.
        physical_batch_size: Examples at once in memory; None for the whole lot, `auto` for as many as fit.
        config: The configuration as plain values, for the record.
        strict: Only what the guarantee covers is recorded or shown, and noise is secure, whatever
            `privacy.noise` says.
        resume: `last`, or the id of an MLflow run that goes on; None starts a new run.
        vary: Makes the experiment that more overrides of the same command line would; None without one.
        tags: Tags of its MLflow run beside dpexp's own.
        options: How it is computed and shown; None for what the root keys of `config` say.
        budget: What its spending is held to.
        recording: Opens what it is recorded to; None for an MLflow run of `tracking`.
        claim: What its record claims; None for its own guarantee.
    """

    name: str
    data: Dataset
    features: Features
    privacy: Privacy
    sampling: Sampling
    accountant: AnyAccountant
    model: "Callable[[], nn.Module]"
    optimizer: "Callable[[Iterable[nn.Parameter]], optim.Optimizer]"
    schedule: AbstractSchedule
    trainer: "Callable[..., pl.Trainer]"
    tracking: MLflowTracking
    seed: int = 0
    physical_batch_size: int | str | None = None
    strict: bool = False
    config: Mapping[str, Any]
    resume: str | None = None
    vary: "Callable[[Sequence[str]], Experiment] | None" = None
    tags: Mapping[str, str] = field(default_factory=dict)
    options: Options | None = None
    budget: BudgetRule = FIXED
    recording: Opener | None = None
    claim: Claim | None = None

    def __post_init__(self) -> None:
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
            settings = {**self.config.get("privacy", {}), "noise": "secure"}
            object.__setattr__(self, "config", {**self.config, "privacy": settings})
        if self.options is None:
            object.__setattr__(self, "options", Options.of(self.config))

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
