"""What Hydra makes by name: a callback that opens the parent of a sweep."""

from dpexp.plugins.sweep_parent import SweepParent

__all__ = ["SweepParent"]
