"""Reports over the runs in a store: trade-off figures that compare only what can be compared."""

from dpexp.report.report import Report
from dpexp.report.writing import Written, write_report

__all__ = ["Report", "Written", "write_report"]
