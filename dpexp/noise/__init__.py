"""Standard normal noise, in float64, as a function of (secret key, position). See docs/theory/noise.md."""

from dpexp.noise.gaussian import GaussianNoise
from dpexp.noise.lattice import LATTICE, noised, to_lattice
from dpexp.noise.noise import Noise, NoNoise
from dpexp.noise.secure import SecureGaussianNoise

__all__ = [
    "LATTICE",
    "GaussianNoise",
    "NoNoise",
    "Noise",
    "SecureGaussianNoise",
    "noised",
    "to_lattice",
]
