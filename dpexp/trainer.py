"""What Lightning's trainer is told, and what it may not be told."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.profilers import PassThroughProfiler

from dpexp import _validate
from dpexp.plan import PrivacyPlan

__all__ = ["autocast_of", "fit", "make_trainer", "refuse_reports", "test", "validate"]

_FROM_THE_PLAN = "the plan sets it: change privacy.steps, privacy.epochs or privacy.epsilon"
_MANUAL = "it would change the gradient between the sanitizer and the optimizer"
_ALLOWED = (
    "accelerator",
    "devices",
    "precision",
    "val_check_interval",
    "benchmark",
    "detect_anomaly",
    "deterministic",
    "inference_mode",
    "profiler",
)
_PRECISIONS = {"32-true": None, "32": None, "bf16-mixed": torch.bfloat16}
_REFUSED = {
    "max_steps": _FROM_THE_PLAN,
    "max_epochs": _FROM_THE_PLAN,
    "max_time": "the guarantee is that of the T lots fixed beforehand",
    "min_steps": _FROM_THE_PLAN,
    "min_epochs": _FROM_THE_PLAN,
    "gradient_clip_val": f"{_MANUAL}; set privacy.clip_norm",
    "gradient_clip_algorithm": f"{_MANUAL}; set privacy.clip_norm",
    "accumulate_grad_batches": "one Lightning batch is one lot; set physical_batch_size to save memory",
    "fast_dev_run": "it would train fewer lots than the plan charges; set privacy.steps",
    "check_val_every_n_epoch": "evaluations are counted in lots; set trainer.val_check_interval",
    "logger": "dpexp records to MLflow itself; see the tracking group",
    "enable_checkpointing": "a checkpoint must go with the ledger: dpexp writes its own (key checkpoint)",
    "strategy": "lots and noise are drawn by one process",
    "num_nodes": "lots and noise are drawn by one process",
}


def make_trainer(
    factory: Callable[..., pl.Trainer],
    *,
    plan: PrivacyPlan,
    callbacks: Sequence[pl.Callback],
    folder: Path,
    first: int = 0,
) -> pl.Trainer:
    """The trainer that takes exactly the plan's steps, from the `first` on.

    Raises:
        UserError: A key of the `trainer` group would make the run differ from its plan.
    """
    check_trainer_keys(getattr(factory, "keywords", {}))
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    try:
        trainer = _make(factory, plan.steps - first, callbacks, folder)
    except MisconfigurationException as error:
        keys = getattr(factory, "keywords", {})
        hint = (
            "" if keys.get("accelerator", "auto") in ("auto", "cpu") else " trainer=auto takes what there is."
        )
        raise _validate.UserError(f"trainer: {error}\nIts keys are {keys}.{hint}") from error
    if type(trainer.profiler) is PassThroughProfiler:  # type: ignore[attr-defined]
        trainer.profiler = _Unprofiled()  # type: ignore[attr-defined]
    return trainer


def _make(
    factory: Callable[..., pl.Trainer], steps: int, callbacks: Sequence[pl.Callback], folder: Path
) -> pl.Trainer:
    return factory(
        max_steps=steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
    )


@final
class _Unprofiled(PassThroughProfiler):
    """Lightning's default profiler enters a generator at each hook of each lot to do nothing in it."""

    _NOTHING = contextlib.nullcontext()

    def profile(self, action_name: str) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return self._NOTHING


def check_trainer_keys(keys: Mapping[str, Any]) -> None:
    """Refuses what would break the promise that one batch is one lot and T is the plan's."""
    for key, value in keys.items():
        if key not in _ALLOWED:
            reason = _REFUSED.get(key, "dpexp sets it, or it would change which lots and splits are used")
            expected = f"this key to be absent; there are {', '.join(_ALLOWED)}"
            raise _validate.refuse(f"trainer.{key}", value, expected, f"Reason: {reason}.")
    if str(keys.get("precision", "32-true")) not in _PRECISIONS:
        raise _validate.refuse("trainer.precision", keys["precision"], "32-true or bf16-mixed")
    if keys.get("devices", 1) not in (1, "1"):
        hint = "Lots and noise are drawn by one process."
        raise _validate.refuse("trainer.devices", keys["devices"], "1", hint)
    interval = keys.get("val_check_interval", 1)
    if not isinstance(interval, int) or interval < 1:
        raise _validate.refuse("trainer.val_check_interval", interval, "a whole number of lots >= 1")


def refuse_reports(factory: Callable[..., pl.Trainer]) -> None:
    """In strict mode: reports of Lightning's own that tell how long the lots took, or what was in them.

    Raises:
        UserError: One is asked for.
    """
    for key in ("profiler", "detect_anomaly"):
        value = getattr(factory, "keywords", {}).get(key)
        if value:
            raise _validate.refuse(f"trainer.{key}", value, "this key to be absent with strict=true")


def autocast_of(factory: Callable[..., pl.Trainer]) -> torch.dtype | None:
    """The lower precision that `trainer.precision` asks for; None for float32."""
    keys = getattr(factory, "keywords", {})
    check_trainer_keys(keys)
    return _PRECISIONS[str(keys.get("precision", "32-true"))]


def fit(trainer: pl.Trainer, module: pl.LightningModule, datamodule: pl.LightningDataModule) -> None:
    """Trains for the trainer's steps."""
    with _without_a_known_warning():
        trainer.fit(module, datamodule=datamodule)


def validate(trainer: pl.Trainer, module: pl.LightningModule, datamodule: pl.LightningDataModule) -> None:
    """Evaluates on the validation split."""
    with _without_a_known_warning():
        trainer.validate(module, datamodule=datamodule, verbose=False)


def test(trainer: pl.Trainer, module: pl.LightningModule, datamodule: pl.LightningDataModule) -> None:
    """Evaluates on the test split."""
    with _without_a_known_warning():
        trainer.test(module, datamodule=datamodule, verbose=False)


@contextlib.contextmanager
def _without_a_known_warning() -> Iterator[None]:
    """Hides the one deprecation warning of torch that Lightning 2.6 causes at every run."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\).*", FutureWarning)
        yield
