"""Declarative experiments in differentially private deep learning (Abadi et al., 2016)."""

__version__ = "0.1.0"
