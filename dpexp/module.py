"""`DPModule`: Algorithm 1 as a Lightning module with manual optimization. Orchestration only."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpexp import _validate
from dpexp.averaging import WeightAverage
from dpexp.datamodule import Lot
from dpexp.forward import LotPass
from dpexp.gradients import Checked, ClippedSum
from dpexp.ledger import Ledger
from dpexp.noise import Noise
from dpexp.plan import PrivacyPlan, StepPlan
from dpexp.sanitizer import Sanitizer
from dpexp.schedules import AbstractSchedule
from dpexp.stopping import in_one_piece

__all__ = ["DPModule", "Evaluation", "Observation", "classification_loss"]

OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Observation:
    """What the last lot looked like *before* the noise: never private, never released as such."""

    clipped: ClippedSum
    step: StepPlan


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and mean loss on a whole split, after so many lots."""

    accuracy: float
    loss: float
    lots: int


def classification_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each example, shape (B,)."""
    return cross_entropy(outputs, targets, reduction="none")


class DPModule(pl.LightningModule):
    """Trains a model by a plan.

    Args:
        model: Any `nn.Module` that treats the examples of a batch independently.
        plan: What each step does.
        ledger: Charged inside every step.
        noise: Where the sanitizer's noise comes from.
        optimizer: Makes the optimizer from the plan's groups of parameters.
        learning_rate: η over the lots.
        physical_batch_size: How many examples at once; None for the whole lot.
        ema: Decay of an average of the weights, which is then what is evaluated; None for none.
        autocast: Lower precision of the forward and backward pass, as of `LotPass`.
        views: K where a lot's inputs are (n, K, …), as of `LotPass`.
        compiler: Of the gradients, as of `LotPass`.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        plan: PrivacyPlan,
        ledger: Ledger,
        noise: Noise,
        optimizer: OptimizerFactory,
        learning_rate: AbstractSchedule,
        physical_batch_size: int | None,
        ema: float | None = None,
        autocast: torch.dtype | None = None,
        views: int | None = None,
        compiler: str | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.plan, self.ledger = model, plan, ledger
        self._groups = plan.assign(trainable_names(model))
        self.sanitizer = Sanitizer(self._groups, noise)
        self._pass = LotPass(model, classification_loss, autocast=autocast, views=views, compiler=compiler)
        self.average = None if ema is None else WeightAverage(model, decay=ema)
        self.observation: Observation | None = None
        self.evaluation: Evaluation | None = None
        self._trained: dict[str, nn.Parameter] = {}  # those that the optimizer has
        self._optimizer_factory = optimizer
        self._learning_rate = learning_rate
        self.physical_batch_size = physical_batch_size
        self._correct, self._loss, self._count = 0, 0.0, 0
        self.completed = ledger.steps  # optimizer steps in the parameters; between lots, the ledger's
        self._optimizer_state: Mapping[str, Any] | None = None

    @in_one_piece()
    def training_step(self, lot: Lot, batch_idx: int) -> None:
        """One lot of Algorithm 1 (Abadi et al., 2016, arXiv 1607.00133v2)."""
        step = self.plan.step(lot.index)
        # Charge the lot's privacy cost, before anything of it is released.
        self.ledger.reserve(step)
        # Compute the per-example gradients, clip each to C, and sum.
        clipped = self._pass.clipped_sum(
            lot.inputs, lot.targets, self.sanitizer.clips(step, lot.members), self.physical_batch_size
        )
        # Add noise of std σC to the sum, and divide by the expected lot size L.
        in_force = self.sanitizer.in_force(step)  # before the release moves an adaptive C
        within = self.sanitizer.within(clipped.norms, step, lot.members)
        gradients = self.sanitizer.release(clipped.sums, step, within)
        # Descend: θ ← θ - η g̃.
        self._descend(gradients, in_force)
        self.completed = step.index + 1
        self.observation = Observation(clipped, in_force)

    def state(self) -> dict[str, Any]:
        """What training goes on from, between two lots: tensors and plain values. No random state."""
        optimizer = self.optimizers()
        assert isinstance(optimizer, pl.core.optimizer.LightningOptimizer)
        return {
            "model": self.model.state_dict(),
            "optimizer": optimizer.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "clip_norms": dict(self.sanitizer.state),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another module of the same plan; call it before training starts."""
        self.model.load_state_dict(state["model"])
        self._optimizer_state = state["optimizer"]
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.sanitizer.restore(state["clip_norms"])

    def check(self, inputs: Tensor, targets: Tensor) -> Checked:
        """The behavioural check on random rows."""
        return self._pass.check(inputs, targets, self.sanitizer.clips(self.plan.step(0), {}))

    def rehearse(self, inputs: Tensor, targets: Tensor) -> None:
        """What a step does with one microbatch of random rows, without a result."""
        self._pass.clipped_sum(inputs, targets, self.sanitizer.clips(self.plan.step(0), {}), None)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer, with one group of parameters for each of the plan's, in their order.

        Raises:
            UserError: The optimizer refuses its arguments.
        """
        names = [name for group in self._groups.values() for name in group]
        self._trained = {name: self.model.get_parameter(name) for name in names}
        groups = [{"params": [self._trained[name] for name in group]} for group in self._groups.values()]
        try:
            optimizer = self._optimizer_factory(groups)
        except (TypeError, ValueError) as error:
            raise _validate.UserError(f"optimizer: {error}. See the keys of the optimizer group.") from error
        if self._optimizer_state is not None:
            optimizer.load_state_dict(dict(self._optimizer_state))
        return optimizer

    @property
    def released(self) -> nn.Module:
        """The model that is evaluated: of the last released parameters, or of their average."""
        return self.model if self.average is None else self.average

    def forward(self, inputs: Tensor) -> Tensor:
        """The released model's outputs."""
        outputs: Tensor = self.released(inputs)
        return outputs

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Adds one batch to the evaluation."""
        inputs, targets = batch
        outputs = self(inputs)
        self._correct += int((outputs.argmax(dim=1) == targets).sum())
        self._loss += float(classification_loss(outputs, targets).sum())
        self._count += len(targets)

    def on_validation_epoch_start(self) -> None:
        """Opens the evaluation of a split; the figures of another split are gone."""
        self.evaluation = None
        self._correct, self._loss, self._count = 0, 0.0, 0

    def on_validation_epoch_end(self) -> None:
        """Closes the evaluation of a split."""
        self.evaluation = Evaluation(self._correct / self._count, self._loss / self._count, self.ledger.lots)

    test_step = validation_step
    on_test_epoch_start = on_validation_epoch_start
    on_test_epoch_end = on_validation_epoch_end

    def _descend(self, gradients: Mapping[str, Tensor], step: StepPlan) -> None:
        for name, gradient in gradients.items():
            parameter = self._trained[name]
            parameter.grad = gradient.to(parameter.dtype)
        optimizer = self.optimizers()
        assert isinstance(optimizer, pl.core.optimizer.LightningOptimizer)
        learning_rate = self._learning_rate.at(step.index, self.plan.lots_per_epoch)
        for parameters in optimizer.param_groups:
            parameters["lr"] = learning_rate
        if "noise_variance" in optimizer.defaults:
            for parameters, group in zip(optimizer.param_groups, step.groups, strict=True):
                parameters["noise_variance"] = (group.noise_std / group.divisor) ** 2
        optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)


def trainable_names(model: nn.Module) -> list[str]:
    """Names of the parameters that train, in the model's order."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]
