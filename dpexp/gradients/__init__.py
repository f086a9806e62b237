"""Per-example gradients, clipped and summed, for any PyTorch model and any training loop."""

from dpexp.gradients.check import Checked, check_model
from dpexp.gradients.clipped import ClipGroup, ClippedSum, Loss
from dpexp.gradients.compiled import Compiled
from dpexp.gradients.engine import clipped_sum, grouped_clipped_sum
from dpexp.gradients.explanation import explain

__all__ = [
    "Checked",
    "ClipGroup",
    "ClippedSum",
    "Compiled",
    "Loss",
    "check_model",
    "clipped_sum",
    "explain",
    "grouped_clipped_sum",
]
