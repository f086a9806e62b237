"""Lightning callbacks that keep the state of training, and draw torch's randomness by lot."""

import logging
import time
from collections.abc import Callable
from typing import Any, final

import pytorch_lightning as pl
import torch

from dpexp.checkpoint import Checkpoint, CheckpointError, CheckpointFolder
from dpexp.datamodule import Lot
from dpexp.ledger import Head, LedgerError
from dpexp.module import DPModule
from dpexp.stopping import in_one_piece
from dpexp.streams import Stream

__all__ = ["Checkpoints", "LotSeeds"]

_log = logging.getLogger(__name__)


@final
class Checkpoints(pl.Callback):
    """Writes checkpoints between lots: at the start, every so many seconds, at the end, and at a stop.

    Args:
        folder: Where they go.
        run_id: The run's.
        terms: Hash of all that must not change until it is resumed, in hexadecimal.
        every_seconds: Seconds between two, by the monotonic clock.
        noted: Is told the ledger's head after each.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        *,
        run_id: str,
        terms: str,
        every_seconds: float,
        noted: Callable[[Head], None],
    ) -> None:
        self._folder, self._run_id, self._terms = folder, run_id, terms
        self._every, self._noted = every_seconds, noted
        self._kept = -1  # steps in the newest checkpoint
        self._at = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keeps the initial state, so that a state that cannot be kept is found before the first lot."""
        assert isinstance(pl_module, DPModule)
        if pl_module.completed == 0:
            self._write(pl_module)
        else:
            self._kept = pl_module.completed  # what the run was resumed from

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Keeps the state, every so many seconds."""
        assert isinstance(pl_module, DPModule)
        if time.monotonic() - self._at >= self._every:
            self._write(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keeps the final state: evaluations may still be interrupted."""
        assert isinstance(pl_module, DPModule)
        self._write(pl_module)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: Any) -> None:
        """Keeps what a stopped run has come to, unless it was stopped inside a lot."""
        assert isinstance(pl_module, DPModule)
        if pl_module.completed != pl_module.ledger.steps:
            return
        try:
            self._write(pl_module)
        except (CheckpointError, LedgerError) as error:
            _log.error("%s", error)  # the exception that is on its way says why the run ends

    def _write(self, module: DPModule) -> None:
        if module.completed == self._kept:
            return
        ledger = module.ledger
        assert ledger.journal is not None
        with in_one_piece():
            checkpoint = Checkpoint(
                run_id=self._run_id,
                terms=self._terms,
                steps=module.completed,
                charged_lots=ledger.lots,
                head=str(ledger.journal.head),
                state=module.state(),
            )
            head = self._folder.write(checkpoint, ledger.journal)
            self._kept, self._at = module.completed, time.monotonic()
            self._noted(head)


@final
class LotSeeds(pl.Callback):
    """Keys torch's own randomness (dropout) by the lot, so that a resumed run repeats it.

    For runs under `privacy.deterministic` only.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Lot, batch_idx: int
    ) -> None:
        """Seeds torch for this lot."""
        torch.manual_seed(int(self._stream.generator(batch.index).integers(2**63)))
