"""Figures that a configuration computes from its other keys."""

from typing import Any

from omegaconf import OmegaConf

__all__ = ["register"]


def register() -> None:
    """Makes `${scattering_dimensions:shape,scales,angles}` known to every configuration."""
    OmegaConf.register_new_resolver("scattering_dimensions", _scattering_dimensions, replace=True)


def _scattering_dimensions(shape: Any, scales: Any, angles: Any) -> int | None:
    from dpexp._validate import UserError
    from dpexp.features.images import scattering_dimensions  # here: --help needs no NumPy

    try:
        return scattering_dimensions(list(shape), scales, angles)
    except (TypeError, UserError):
        return None  # the features refuse what is wrong, by its name
