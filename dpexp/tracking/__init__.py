"""MLflow: one run per job, metrics in batches, a status that is true."""

from dpexp.tracking.recording import Opener, Recording
from dpexp.tracking.run import Run, flatten
from dpexp.tracking.store import connect, shown_uri
from dpexp.tracking.tracking import MLflowTracking, last_steps, runs_like

__all__ = [
    "MLflowTracking",
    "Opener",
    "Recording",
    "Run",
    "connect",
    "flatten",
    "last_steps",
    "runs_like",
    "shown_uri",
]
