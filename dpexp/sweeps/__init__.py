"""Many runs under one MLflow parent: opened, resumed, priced and closed. No Hydra."""

from dpexp.sweeps.children import Child
from dpexp.sweeps.job import Job
from dpexp.sweeps.parent import Parent, opened
from dpexp.sweeps.summary import Summary, adaptive_price, listed_price, summary_of
from dpexp.sweeps.ticket import Ticket

__all__ = [
    "Child",
    "Job",
    "Parent",
    "Summary",
    "Ticket",
    "adaptive_price",
    "listed_price",
    "opened",
    "summary_of",
]
