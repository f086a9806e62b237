"""What a run was charged, read from its ledger by others."""

from pathlib import Path

from dpexp.accounting import Phase
from dpexp.ledger.entry import EntryKind
from dpexp.ledger.journal import entries_of
from dpexp.ledger.spending import phases_besides, spending_of
from dpexp.plan import PrivacyPlan

__all__ = ["charged_phases", "ledger_of"]


def ledger_of(outputs: Path, run_id: str) -> Path:
    """Where the ledger of a run lies, below the outputs folder."""
    return outputs / "ledgers" / f"{run_id}.ledger"


def charged_phases(path: Path, *, run_id: str, terms: bytes, plan: PrivacyPlan) -> list[Phase]:
    """All that a run has been charged, or will have been when it has come to its end.

    A run that did not come to its end keeps the ε of its whole plan, since its T was fixed beforehand; where
    it was resumed, all that was reserved before is charged on top.

    Args:
        path: Its ledger; not written to.
        run_id: The run.
        terms: Hash of the terms of `plan`.
        plan: The plan that it started with.

    Raises:
        LedgerError: The ledger is missing, corrupt, or of another run or plan.
    """
    entries = entries_of(path, run_id=run_id, terms=terms)
    kinds = {entry.kind for entry in entries}
    charged = phases_besides(spending_of(entries, plan), plan, steps=0, fitted=False)
    if EntryKind.FINISHED in kinds:
        return charged
    assert plan.guarantee is not None
    whole = [*plan.guarantee.phases_before, *plan.phases(plan.steps)]
    return [*charged, *whole] if EntryKind.RESUMED in kinds else whole
