"""Hydra's callback of a multirun."""

from typing import Any, final

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dpexp.cli.sweep import open_sweep

__all__ = ["SweepParent"]


@final
class SweepParent(Callback):
    """Opens the MLflow run above the jobs, and tells them of it."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Opens it; `main` closes it."""
        open_sweep(config)
