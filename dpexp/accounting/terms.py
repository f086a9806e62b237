"""Under which terms a run may spend: what keeps its ε where later choices follow earlier results."""

from dataclasses import dataclass
from typing import final

__all__ = ["FIXED_BEFOREHAND", "BudgetTerms"]


@final
@dataclass(frozen=True, kw_only=True)
class BudgetTerms:
    """What a plan's guarantee says of its budget; made by the `budget` config group.

    Attributes:
        name: `run`, `filter`, `odometer` or `dataset`.
        in_words: One line for the plan's table; empty where there is nothing to say.
        statement: A paragraph for the privacy statement; may be empty.
        longest: The T up to which a run may be prolonged after its results were seen, with the same ε; None
            where T must stay as planned.
    """

    name: str
    in_words: str = ""
    statement: str = ""
    longest: int | None = None

    @property
    def declares_filter(self) -> bool:
        """Whether the run's own lots that were not drawn may be returned, and its T be raised afterwards."""
        return self.longest is not None


FIXED_BEFOREHAND = BudgetTerms(name="run")
"""Plain composition: every release, and T, fixed before the first (Abadi et al., 2016, Theorem 2.1)."""
