"""`Experiment`: everything a task needs, as objects. No Hydra, and no torch until it trains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from dpexp import _validate
from dpexp.accounting import AnyAccountant
from dpexp.data import Dataset
from dpexp.features import Features
from dpexp.lots import PoissonSampling
from dpexp.options import Options
from dpexp.plan import PrivacyPlan
from dpexp.privacy import Privacy
from dpexp.schedules import AbstractSchedule
from dpexp.tracking import MLflowTracking

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch import nn, optim

__all__ = ["Experiment", "Result"]


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to.

    Attributes:
        accuracy: On the test split; None where that split is private.
        epsilon: The certified ε at δ; None without privacy.
        delta: δ; None without privacy.
        steps: Optimizer steps taken.
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
        vary: Makes the experiment that more overrides of the same command line would; None without one.
        tags: Tags of its MLflow run beside dpexp's own.
        options: How it is computed and shown; None for what the root keys of `config` say.
    """

    name: str
    data: Dataset
    features: Features
    privacy: Privacy
    sampling: PoissonSampling
    accountant: AnyAccountant
    model: "Callable[[], nn.Module]"
    optimizer: "Callable[[Iterable[nn.Parameter]], optim.Optimizer]"
    schedule: AbstractSchedule
    trainer: "Callable[..., pl.Trainer]"
    tracking: MLflowTracking
    seed: int = 0
    physical_batch_size: int | str | None = None
    config: Mapping[str, Any]
    vary: "Callable[[Sequence[str]], Experiment] | None" = None
    tags: Mapping[str, str] = field(default_factory=dict)
    options: Options | None = None

    def __post_init__(self) -> None:
        _validate.integer("seed", self.seed, at_least=0)
        if self.physical_batch_size not in (None, "auto"):
            hint = "Or auto, for as many as fit into memory_mb; null for the whole lot."
            size = _validate.integer("physical_batch_size", self.physical_batch_size, at_least=1, hint=hint)
            object.__setattr__(self, "physical_batch_size", size)
        if self.options is None:
            object.__setattr__(self, "options", Options.of(self.config))

    def plan(self) -> PrivacyPlan:
        """All the privacy arithmetic, from declared facts; no data is touched."""
        return self.privacy.plan(
            num_examples=self.data.num_examples,
            sampling=self.sampling,
            accountant=self.accountant,
            releases=self.features.releases,
        )

    def ignored(self) -> dict[str, Any]:
        """Keys that were set and have no effect, by their name in the configuration."""
        privacy = {f"privacy.{key}": value for key, value in self.privacy.ignored().items()}
        return privacy | {f"features.{key}": value for key, value in self.features.ignored().items()}
