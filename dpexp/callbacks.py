"""Lightning callbacks: the trajectory of ε and accuracy into a recorder, and the progress bar."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from dpexp.accounting import Account, Quantity
from dpexp.ledger import Ledger
from dpexp.module import DPModule, Observation
from dpexp.plan import PrivacyPlan
from dpexp.sanitizer import Sanitizer

__all__ = [
    "TIMES",
    "LotProgress",
    "Recorder",
    "Trajectory",
    "clip_norm_metrics",
    "privacy_metrics",
    "spending_recorded",
]

_COMPANION_STRIDE = 10  # accountants beside the configured one are asked this much less often
_SLOW_POINTS = 100  # of the trajectory, by accountants that need tens of milliseconds for one


TIMES: Sequence[ProgressColumn] = (TimeRemainingColumn(elapsed_when_finished=True),)
"""What a progress bar says about time, which depends a little on how large the lots were."""


class Recorder(Protocol):
    """Takes metrics; `step` is the number of charged lots."""

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records several metrics at one step."""
        ...


class Trajectory(pl.Callback):
    """Records ε, δ, accuracy and timings along training.

    Args:
        recorder: Where metrics go.
        every: Record each `every`-th lot, and the last.
        validation: Prefix for metrics of the validation split: `val` or `nonprivate/val`.
    """

    def __init__(self, recorder: Recorder, *, every: int, validation: str) -> None:
        self._recorder, self._every, self._validation = recorder, every, validation
        self._recorded_privacy_at = -1
        self._validated_at = -1
        self._started = (0, time.perf_counter())

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Records what was spent before the first lot."""
        assert isinstance(pl_module, DPModule)
        self._started = (pl_module.ledger.lots, time.perf_counter())
        if pl_module.ledger.releases or pl_module.ledger.lots:
            self._record_privacy(pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Records the trajectory, every so many lots."""
        assert isinstance(pl_module, DPModule)
        lots, last = pl_module.ledger.lots, pl_module.ledger.steps == pl_module.plan.steps
        if lots % self._every and not last:
            return
        if lots - self._recorded_privacy_at >= _stride(pl_module.plan, self._every) or last:
            self._record_privacy(pl_module)
        assert pl_module.observation is not None
        self._recorder.record(lots, nonprivate_metrics(pl_module.observation))
        self._recorder.record(lots, clip_norm_metrics(pl_module.sanitizer))
        self._recorder.record(lots, {"time/step_s": self._seconds_per_step(lots)})

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Records accuracy and loss, with ε at the very same step so that they can be plotted together."""
        assert isinstance(pl_module, DPModule)
        lots, found = pl_module.ledger.lots, pl_module.evaluation
        self._started = (lots, time.perf_counter())  # steps are timed without evaluations
        if lots == self._validated_at:
            return
        assert found is not None
        metrics = {f"{self._validation}/accuracy": found.accuracy, f"{self._validation}/loss": found.loss}
        self._recorder.record(lots, metrics)
        self._record_privacy(pl_module)
        self._validated_at = lots

    def _record_privacy(self, module: DPModule) -> None:
        ledger = module.ledger
        if ledger.lots == self._recorded_privacy_at:
            return
        last = ledger.steps == module.plan.steps
        with_companions = last or ledger.lots % (self._every * _COMPANION_STRIDE) < self._every
        self._recorder.record(ledger.lots, privacy_metrics(ledger, with_companions=with_companions))
        self._recorded_privacy_at = ledger.lots

    def _seconds_per_step(self, lots: int) -> float:
        before, then = self._started
        self._started = (lots, time.perf_counter())
        return (self._started[1] - then) / max(lots - before, 1)


def _stride(plan: PrivacyPlan, every: int) -> int:
    if plan.guarantee is None or plan.guarantee.accountant.quick:
        return every
    return max(every, plan.steps // _SLOW_POINTS)


@contextlib.contextmanager
def spending_recorded(recorder: Recorder, ledger: Ledger) -> Iterator[None]:
    """Records what was spent also where the block is left by an exception."""
    try:
        yield
    except BaseException:
        recorder.record(ledger.lots, privacy_metrics(ledger, with_companions=True))
        raise


def privacy_metrics(ledger: Ledger, *, with_companions: bool) -> dict[str, float]:
    """The ε/δ of what has been charged so far; empty without privacy."""
    account = ledger.account
    if account is None:
        return {}
    metrics = {"privacy/epsilon": float(ledger.epsilon()), "privacy/delta": account.budget.delta}
    at_budget = account.delta_at_budget()
    if at_budget is not None:
        metrics["privacy/delta_at_budget"] = float(at_budget)
    for companion in ledger.companions if with_companions else []:
        metrics[_metric_of(companion)] = float(companion.epsilon())
    return metrics


def _metric_of(companion: Account) -> str:
    bound = companion.epsilon()
    if bound.quantity is Quantity.REALIZED_LOSS:
        return "privacy/realized_loss"  # no ε of a mechanism
    return f"privacy/epsilon_{bound.accountant}"


def clip_norm_metrics(sanitizer: Sanitizer) -> dict[str, float]:
    """The clip norms that adapt, after the last release: made from noisy counts, so covered by ε."""
    return {f"privacy/clip_norm_{group}": clip_norm for group, clip_norm in sanitizer.state.items()}


def nonprivate_metrics(observation: Observation) -> dict[str, float]:
    """Figures of one lot before the noise. The guarantee does not cover them."""
    norms, losses = observation.clipped.norms, observation.clipped.losses
    usable = norms.isfinite().all(dim=0)
    metrics = {
        "nonprivate/lot_size": float(len(losses)),
        "nonprivate/nonfinite_examples": float((~usable).sum()),
    }
    if not usable.any():
        return metrics
    bounds = torch.tensor([[group.clip_norm] for group in observation.step.groups], device=norms.device)
    return metrics | {
        "nonprivate/train_loss": float(losses[usable].mean()),
        "nonprivate/gradient_norm_median": float(norms[:, usable].norm(dim=0).median()),
        "nonprivate/clipped_fraction": float((norms[:, usable] > bounds).float().mean()),
    }


class LotProgress(pl.Callback):
    """A progress bar in lots, with ε so far and the latest accuracy.

    Args:
        console: Where it is drawn.
        validation_privacy: The accuracy of a split that is not `public` is not shown.
        columns: Further columns, beside bar and figures.
    """

    def __init__(
        self, console: Console, *, validation_privacy: str, columns: Sequence[ProgressColumn] = TIMES
    ) -> None:
        self._console, self._validation_privacy = console, validation_privacy
        self._columns = columns
        self._progress: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Opens the bar."""
        assert isinstance(pl_module, DPModule)
        self._progress = Progress(
            TextColumn("lots"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            *self._columns,
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task(
            "", total=pl_module.plan.steps, completed=pl_module.ledger.steps, figures=""
        )
        self._progress.start()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Advances the bar."""
        assert isinstance(pl_module, DPModule)
        steps = pl_module.ledger.steps
        if self._progress is not None and (steps % 20 == 0 or steps == pl_module.plan.steps):
            self._progress.update(self._task, completed=steps, figures=self._figures(pl_module))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Closes the bar."""
        self._close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: Any) -> None:
        """Closes the bar."""
        self._close()

    def _figures(self, module: DPModule) -> str:
        parts = []
        account = module.ledger.account
        if account is not None and account.accountant.quick:
            module.ledger.epsilon()
        if module.ledger.latest is not None:
            parts.append(f"ε ≤ {module.ledger.latest.in_print}")
        if module.evaluation is not None and self._validation_privacy == "public":
            found = module.evaluation
            at = (
                found.lots - module.ledger.forfeited_lots
            )  # as the bar counts: lots that are in the parameters
            parts.append(f"accuracy {found.accuracy:.2%} at {at}")
        return "  ".join(parts)

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
