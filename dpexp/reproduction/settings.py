"""The three settings of Figure 3 (large, medium and small noise), and what their runs recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from dpexp.reproduction.archive import Archive
from dpexp.reproduction.campaign import Campaign, Outcome, Point

__all__ = ["Course", "courses", "settings_points"]

FIGURE = "figure3"


@final
@dataclass(frozen=True, kw_only=True)
class Course:
    """One finished run along its lots.

    Attributes:
        outcome: The run.
        accuracy: Validation accuracy by lots taken; the validation split is public.
        delta: δ at the budget's ε, by lots taken.
    """

    outcome: Outcome
    accuracy: Mapping[int, float]
    delta: Mapping[int, float]

    @property
    def setting(self) -> str:
        """Name of the experiment."""
        return self.outcome.point.panel

    def accuracy_within(self, lots: int) -> float | None:
        """The last accuracy after at most so many lots; None before the first evaluation."""
        before = [value for steps, value in self.accuracy.items() if 0 < steps <= lots]
        return before[-1] if before else None


def settings_points(
    campaign: Campaign, settings: Sequence[str], overrides: Sequence[str], seeds: Sequence[int]
) -> list[Point]:
    """One run for each setting and seed."""
    return [
        campaign.point(setting, 0, [f"+experiment={setting}", *overrides], seed)
        for seed in seeds
        for setting in settings
    ]


def courses(archive: Archive, outcomes: Sequence[Outcome]) -> list[Course]:
    """Reads the trajectories from the store."""
    return [
        Course(
            outcome=outcome,
            accuracy=archive.history(outcome.run, "val/accuracy"),
            delta=archive.history(outcome.run, "privacy/delta_at_budget"),
        )
        for outcome in outcomes
    ]
