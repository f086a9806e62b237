"""The record of what a run has released: charged, and durable, before it is released."""

from dpexp.ledger.charged import charged_phases, ledger_of
from dpexp.ledger.entry import Entry, EntryKind, Head
from dpexp.ledger.journal import Journal, LedgerError
from dpexp.ledger.ledger import Ledger
from dpexp.ledger.shared import BudgetSpentError, SharedBudget
from dpexp.ledger.spending import declares_filter
from dpexp.ledger.terms import Terms

__all__ = [
    "BudgetSpentError",
    "Entry",
    "EntryKind",
    "Head",
    "Journal",
    "Ledger",
    "LedgerError",
    "SharedBudget",
    "Terms",
    "charged_phases",
    "declares_filter",
    "ledger_of",
]
