"""The `budget` config group: plain composition, filter, odometer, or one budget for all runs on data."""

from dpexp.budgets.dataset import DatasetBudget
from dpexp.budgets.filter import FilterBudget
from dpexp.budgets.odometer import OdometerBudget
from dpexp.budgets.rule import BudgetRule
from dpexp.budgets.run import FIXED, RunBudget
from dpexp.budgets.share import Share
from dpexp.budgets.store import BudgetRefusedError

__all__ = [
    "FIXED",
    "BudgetRefusedError",
    "BudgetRule",
    "DatasetBudget",
    "FilterBudget",
    "OdometerBudget",
    "RunBudget",
    "Share",
]
