"""Standard normal noise, in float64, as a function of (secret key, position). See docs/theory/noise.md."""

from dpexp.noise.ahead import NoiseAhead
from dpexp.noise.gaussian import GaussianNoise
from dpexp.noise.noise import Noise, NoNoise
from dpexp.noise.secure import LATTICE, SecureGaussianNoise, to_lattice

__all__ = [
    "LATTICE",
    "GaussianNoise",
    "NoNoise",
    "Noise",
    "NoiseAhead",
    "SecureGaussianNoise",
    "to_lattice",
]
