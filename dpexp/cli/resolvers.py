"""Figures that a configuration computes from its other keys."""

import math
from typing import Any

from omegaconf import DictConfig, OmegaConf

__all__ = ["register"]


def register() -> None:
    """Makes `${scattering_dimensions:…}`, `${times_power:…}` and the like known."""
    OmegaConf.register_new_resolver("token_ids", _token_ids, replace=True)
    OmegaConf.register_new_resolver("scattering_dimensions", _scattering_dimensions, replace=True)
    OmegaConf.register_new_resolver("times_power", _times_power, replace=True)
    OmegaConf.register_new_resolver("pretrained_dimensions", _pretrained_dimensions, replace=True)


def _token_ids(data: DictConfig) -> Any:
    """How many token ids a data set declares; None where its inputs are values."""
    encoding = data.get("encoding") or {}
    declared = (data.get("tokens"), encoding.get("vocabulary"), encoding.get("buckets"))
    return next((found for found in declared if found is not None), None)


def _scattering_dimensions(shape: Any, scales: Any, angles: Any) -> int | None:
    from dpexp._validate import UserError
    from dpexp.features.images import scattering_dimensions  # here: --help needs no NumPy

    try:
        return scattering_dimensions(list(shape), scales, angles)
    except (TypeError, UserError):
        return None  # the features refuse what is wrong, by its name


def _pretrained_dimensions(shape: Any, channels: Any, crop: Any) -> int | None:
    from dpexp._validate import UserError
    from dpexp.features.pretrained import pretrained_dimensions

    try:
        return pretrained_dimensions(list(shape), list(channels), crop)
    except (TypeError, UserError):
        return None


def _times_power(factor: float, epsilon: Any, exponent: float) -> Any:
    """factor·ε^exponent, for rules in ε; the factor where there is no ε."""
    known = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool) and 0 < epsilon < math.inf
    return factor * epsilon**exponent if known else factor
