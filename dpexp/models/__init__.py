"""Plain `nn.Module`s."""

from dpexp.models.mlp import MLP

__all__ = ["MLP"]
