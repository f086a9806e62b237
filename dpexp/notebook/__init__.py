"""Experiments from Python, without Hydra: what a notebook needs, by one import."""

from dpexp.experiment import Experiment, Result
from dpexp.notebook.results import Results, run_all
from dpexp.training import train

__all__ = ["Experiment", "Result", "Results", "run_all", "train"]
