"""What the entries of a ledger add up to."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

from dpexp.accounting import Phase, Release
from dpexp.ledger.entry import NO_HASH, Entry, EntryKind
from dpexp.plan import PrivacyPlan

__all__ = ["Spending", "declares_filter", "digest_of", "phases_besides", "spending_of", "torn_fields"]


def declares_filter(plan: PrivacyPlan) -> bool:
    """Whether the plan declared, before the first lot, a filter that composes fully adaptively.

    Only then may lots that were provably not drawn be returned, and T be raised afterwards: both are
    choices made after seeing results.
    """
    return plan.guarantee is not None and plan.guarantee.terms.declares_filter


@final
@dataclass(frozen=True)
class Spending:
    """Everything that was ever reserved.

    Attributes:
        releases: How often each one-time release was, by its name.
        ranges: (first step, step after the last, +1 or -1 where it was returned), in order.
        resumed_at: The step of each resumption so far.
    """

    releases: Counter[str]
    ranges: tuple[tuple[int, int, int], ...]
    resumed_at: tuple[int, ...] = ()

    @property
    def lots(self) -> int:
        """Lots reserved, each as often as it was."""
        return sum((last - first) * times for first, last, times in self.ranges)

    def besides(self, steps: int) -> Iterator[tuple[int, int, int]]:
        """(first, after last, times) of the lots reserved besides one of each of the first `steps`.

        Raises:
            ValueError: One of the first `steps` was never reserved.
        """
        changes: Counter[int] = Counter({0: -1})
        changes[steps] += 1
        for first, last, times in self.ranges:
            changes[first] += times
            changes[last] -= times
        times = 0
        # Blocks that join are one stretch: an epoch that reaches over both is paid for once.
        for first, last in pairwise(sorted(step for step, change in changes.items() if change)):
            times += changes[first]
            if times < 0:
                raise ValueError(f"Steps {first} to {last - 1} were taken and never reserved.")
            if times:
                yield first, last, times


def spending_of(entries: Sequence[Entry], plan: PrivacyPlan) -> Spending:
    """Adds up the entries of one run.

    Raises:
        ValueError: A release is none of the plan's.
    """
    releases: Counter[str] = Counter()
    ranges = []
    names = {digest_of(release.name): release.name for release in _releases(plan)}
    for entry in entries:
        if entry.kind in (EntryKind.RELEASE, EntryKind.TORN) and entry.digest != NO_HASH:
            if entry.digest not in names:
                raise ValueError(f"The release {entry.text} is none of the plan's.")
            releases[names[entry.digest]] += 1
        if entry.kind in (EntryKind.BLOCK, EntryKind.TORN):
            ranges.append((entry.first, entry.first + entry.count, 1))
        if entry.kind is EntryKind.RETURNED:
            ranges.append((entry.first, entry.first + entry.count, -1))
    resumed_at = (entry.first for entry in entries if entry.kind is EntryKind.RESUMED)
    return Spending(releases, tuple(ranges), tuple(resumed_at))


def torn_fields(entries: Sequence[Entry], plan: PrivacyPlan) -> dict[str, Any]:
    """The entry that replaces a torn one: it charges the most that the torn one may have reserved.

    That is a full block of lots; and the next one-time release, where there was one to come.
    """
    step, to_come = 0, 0
    for entry in entries:
        if entry.kind in (EntryKind.OPENED, EntryKind.RESUMED):
            step, to_come = entry.first, entry.count
        elif entry.kind is EntryKind.RELEASE or (entry.kind is EntryKind.TORN and entry.digest != NO_HASH):
            to_come -= 1
        elif entry.kind is EntryKind.BLOCK:
            step = entry.first + entry.count
    count = entries[-1].most_next
    if not declares_filter(plan):  # under a filter T may have been longer then
        count = min(count, max(plan.steps - step, 0))
    release = _releases(plan)[-to_come] if to_come > 0 else None
    return {
        "first": step,
        "count": count,
        "most_next": entries[-1].most_next,
        "text": "" if release is None else release.name,
        "digest": NO_HASH if release is None else digest_of(release.name),
    }


def digest_of(name: str) -> bytes:
    """What an entry calls a release by, however long its name."""
    return hashlib.sha256(name.encode()).digest()


def phases_besides(spending: Spending, plan: PrivacyPlan, *, steps: int, fitted: bool) -> list[Phase]:
    """What was charged and is in no model: lots besides the first `steps`, and releases made again.

    Where lots are drawn by the epoch, each resumption inside one draws another order of all its rows: that
    epoch is paid for once more, whether or not its earlier lots are in the model.

    Args:
        spending: Everything reserved.
        plan: The run's.
        steps: Optimizer steps in the parameters that the run goes on from.
        fitted: Whether the one-time releases are at hand; if not, they are to be made, and charged, anew.

    Raises:
        ValueError: One of the first `steps` was never reserved.
    """
    ranges = list(spending.besides(steps))
    if plan.guarantee is None:
        return []
    lost = [
        Phase(release.event, spending.releases[release.name] - fitted) for release in plan.guarantee.releases
    ]
    for first, last, times in ranges:
        lost += list(plan.phases(last, first=first)) * times
    every = plan.lots_per_charge
    begun = (step for step in (*spending.resumed_at, steps) if step % every and step < plan.steps)
    lost += [_epoch_of(step, plan) for step in begun]
    return [phase for phase in lost if phase.lots > 0]


def _epoch_of(step: int, plan: PrivacyPlan) -> Phase:
    event = plan.step(step - step % plan.lots_per_charge).event
    assert event is not None
    return Phase(event, 1)


def _releases(plan: PrivacyPlan) -> tuple[Release, ...]:
    return () if plan.guarantee is None else plan.guarantee.releases
