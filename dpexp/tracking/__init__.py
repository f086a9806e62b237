"""MLflow: one run per job, metrics in batches, a status that is true."""

from dpexp.tracking.recording import Opener, Recording
from dpexp.tracking.run import Run, flatten
from dpexp.tracking.store import all_pages, connect, shown_uri
from dpexp.tracking.tracking import MLflowTracking, last_steps, runs_like
from dpexp.tracking.view import VIEW_NAME, VIEW_TAG, has_view, run_link, ui_address, view_link

__all__ = [
    "VIEW_NAME",
    "VIEW_TAG",
    "MLflowTracking",
    "Opener",
    "Recording",
    "Run",
    "all_pages",
    "connect",
    "flatten",
    "has_view",
    "last_steps",
    "run_link",
    "runs_like",
    "shown_uri",
    "ui_address",
    "view_link",
]
