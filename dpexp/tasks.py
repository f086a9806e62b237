"""The `task` config group: what `python -m dpexp` does with an experiment."""

from dataclasses import dataclass
from typing import final

from dpexp.experiment import Experiment

__all__ = ["Train"]


@final
@dataclass(frozen=True)
class Train:
    """Trains one run and shows it."""

    def run(self, experiment: Experiment) -> float | None:
        """Trains; returns the final accuracy, or None where the test split is private."""
        from dpexp.training import train  # imports torch and Lightning

        return train(experiment).accuracy
