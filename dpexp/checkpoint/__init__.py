"""What a run goes on from: written whole, read without running code, and known to the ledger."""

from dpexp.checkpoint.folder import CheckpointFolder
from dpexp.checkpoint.snapshot import Checkpoint, CheckpointError

__all__ = ["Checkpoint", "CheckpointError", "CheckpointFolder"]
