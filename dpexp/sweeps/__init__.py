"""Many runs under one MLflow parent: opened, resumed, priced and closed. No Hydra."""

from dpexp.sweeps.children import Child
from dpexp.sweeps.job import Job
from dpexp.sweeps.parent import Parent, opened
from dpexp.sweeps.runs import as_table, runs_as_charged, runs_as_recorded
from dpexp.sweeps.summary import Summary, adaptive_price, listed_charges, listed_price
from dpexp.sweeps.ticket import Ticket

__all__ = [
    "Child",
    "Job",
    "Parent",
    "Summary",
    "Ticket",
    "adaptive_price",
    "as_table",
    "listed_charges",
    "listed_price",
    "opened",
    "runs_as_charged",
    "runs_as_recorded",
]
