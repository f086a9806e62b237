"""What is charged after an interruption: everything ever reserved."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from dpexp.accounting import RenyiAccountant, Repeated, as_accountant
from dpexp.ledger import BudgetSpentError, EntryKind, Ledger, LedgerError
from dpexp.ledger.pace import MOST_LOTS, Pace
from dpexp.ledger.spending import Spending
from dpexp.lots import BallsAndBinsSampling, PartitionSampling
from dpexp.schedules import Step
from tests.ledger.files import create, plan, reopen, resumed, spend
from tests.plans import PCA, settings


def epsilon_of(a_plan, lots, releases=0):
    guarantee = a_plan.guarantee
    cost = guarantee.accountant.price(Repeated(a_plan.step(0).event, lots), guarantee.relation)
    for _ in range(releases):
        cost = cost + guarantee.accountant.price(PCA.event, guarantee.relation)
    return float(guarantee.accountant.epsilon(cost, guarantee.budget.delta, guarantee.relation))


def test_lots_are_durable_before_they_are_charged_and_in_ever_larger_blocks(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan(steps=40)
    ledger = Ledger(a_plan)
    with create(path, a_plan) as journal:
        ledger.keep(journal)
        for t in range(40):
            ledger.reserve(a_plan.step(t))
            on_disk = sum(e.count for e in _read(path) if e.kind is EntryKind.BLOCK)
            assert ledger.steps == t + 1 <= on_disk
    blocks = [e for e in journal.entries if e.kind is EntryKind.BLOCK]
    assert sum(block.count for block in blocks) == 40  # never beyond T
    for block, following in zip(journal.entries, journal.entries[1:], strict=False):
        assert following.count <= block.most_next
    assert len(blocks) < 40


def _read(path):
    from dpexp.ledger.journal import _entries_of

    return _entries_of(path)[0]


def test_after_a_crash_the_whole_block_is_charged_and_lots_are_drawn_again(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan(steps=40, releases=(PCA,))
    spend(path, a_plan, 4)  # of blocks 1, 2, 4
    ledger = resumed(path, a_plan, steps=3)
    assert (ledger.steps, ledger.forfeited_lots, ledger.lots) == (3, 4, 7)
    assert float(ledger.epsilon()) == pytest.approx(epsilon_of(a_plan, 7, 1), rel=1e-12)
    with pytest.raises(ValueError, match="next lot is 3"):
        ledger.reserve(a_plan.step(4))


def test_a_release_whose_result_was_lost_is_charged_again(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan(releases=(PCA,))
    spend(path, a_plan, 0)
    with reopen(path, a_plan) as journal:
        ledger = Ledger.resumed(a_plan, journal, steps=0, fitted=False)
        ledger.charge(PCA)
    assert float(ledger.epsilon()) == pytest.approx(epsilon_of(a_plan, 0, 2), rel=1e-12)
    kept = resumed(path, a_plan, fitted=True)  # both, and none to come
    assert float(kept.epsilon()) == pytest.approx(epsilon_of(a_plan, 0, 2), rel=1e-12)


def test_a_checkpoint_that_is_copied_and_resumed_twice_is_charged_twice(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan()
    spend(path, a_plan, 7)
    for _ in range(2):
        with reopen(path, a_plan) as journal:
            ledger = Ledger.resumed(a_plan, journal, steps=3, fitted=True)
            for t in range(3, 6):
                ledger.reserve(a_plan.step(t))
    assert [e.first for e in _read(path) if e.kind is EntryKind.RESUMED] == [3, 3]
    ledger = resumed(path, a_plan, steps=3)
    assert ledger.lots == 7 + 3 + 3
    assert float(ledger.epsilon()) == pytest.approx(epsilon_of(a_plan, 13), rel=1e-12)


def test_a_checkpoint_ahead_of_its_ledger_is_refused(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan()
    spend(path, a_plan, 3)
    with pytest.raises(LedgerError, match="were taken and never reserved"):
        resumed(path, a_plan, steps=9)


@pytest.mark.parametrize("lost", [1, 15, 31])
def test_where_the_noise_was_solved_for_t_lots_a_crash_shortens_training(tmp_path, lost):
    path = tmp_path / "run.ledger"
    a_plan = plan(noise_multiplier=None, epsilon=1, steps=200, accountant=RenyiAccountant())
    spend(path, a_plan, lost)
    with reopen(path, a_plan) as journal:
        ledger = Ledger.resumed(a_plan, journal, steps=0, fitted=True)
        assert ledger.plan.steps == 200 - lost
        for t in range(ledger.plan.steps):
            ledger.reserve(ledger.plan.step(t))
        assert float(ledger.epsilon()) <= 1
        with pytest.raises(BudgetSpentError):
            ledger.reserve(a_plan.step(ledger.steps))


def test_nothing_left_to_train_with_is_refused(tmp_path):
    path = tmp_path / "run.ledger"
    a_plan = plan(noise_multiplier=None, epsilon=1, steps=31, accountant=RenyiAccountant())
    spend(path, a_plan, 31)
    with pytest.raises(BudgetSpentError, match="lot 1 is not paid for"):
        resumed(path, a_plan, steps=0)
    assert resumed(path, a_plan, steps=30).plan.steps == 30  # what was trained is kept


def test_lots_that_differ_are_lost_at_their_own_price(tmp_path):
    path, a_plan = tmp_path / "run.ledger", plan(noise_multiplier=Step(start=8, factor=0.5, every=3))
    spend(path, a_plan, 7)
    with reopen(path, a_plan) as journal:
        ledger = Ledger.resumed(a_plan, journal, steps=2, fitted=True)
    assert [phase.lots for phase in ledger.lost] == [1, 3, 1]
    assert [phase.event for phase in ledger.lost] == [a_plan.step(t).event for t in (2, 3, 6)]


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=8)


@given(ranges, st.integers(0, 30))
def test_what_is_lost_is_all_reserved_but_one_of_each_step_taken(blocks, steps):
    everything = [*blocks, (0, steps)] if steps else blocks
    spending = Spending(Counter(), tuple((first, first + count, 1) for first, count in everything))
    expected = Counter(t for first, count in blocks for t in range(first, first + count))
    found = Counter()
    for first, last, times in spending.besides(steps):
        found.update(dict.fromkeys(range(first, last), times))
    assert found == expected
    assert spending.lots == sum(expected.values()) + steps


class Shared:
    """A budget of so many lots for everybody."""

    def __init__(self, lots):
        self.left, self.names, self.returned = lots, [], []

    def reserve(self, name, phases):
        lots = sum(phase.lots for phase in phases)
        if lots > self.left:
            raise BudgetSpentError(f"{name}: {self.left} left")
        self.left -= lots
        self.names.append(name)

    def give_back(self, name, phases):
        self.returned.append((name, sum(phase.lots for phase in phases)))


def test_a_shared_budget_is_asked_first_and_gives_what_it_still_has(tmp_path):
    path, a_plan, shared = tmp_path / "run.ledger", plan(releases=(PCA,)), Shared(1 + 6)
    ledger = Ledger(a_plan, shared=shared)
    with create(path, a_plan) as journal:
        ledger.keep(journal)
        ledger.charge(PCA)
        for t in range(6):
            ledger.reserve(a_plan.step(t))
        with pytest.raises(BudgetSpentError, match="lot 7"):
            ledger.reserve(a_plan.step(6))
    assert shared.names[0] == "dp_pca"
    assert shared.left == 0
    assert ledger.steps == 6  # not 3: a block that is too large is asked for by halves
    assert sum(e.count for e in _read(path) if e.kind is EntryKind.BLOCK) == 6


def test_only_under_a_filter_are_lots_returned(tmp_path, monkeypatch):
    from dpexp.ledger import ledger as module

    path, a_plan, shared = tmp_path / "run.ledger", plan(), Shared(100)
    ledger = Ledger(a_plan, shared=shared)
    with create(path, a_plan) as journal:
        ledger.keep(journal)
        for t in range(4):  # blocks 1, 2, 4: three are left
            ledger.reserve(a_plan.step(t))
        with pytest.raises(RuntimeError, match="filter"):
            ledger.give_back()
        monkeypatch.setattr(module, "declares_filter", lambda plan: True)
        ledger.give_back()
        ledger.give_back()
    assert shared.returned == [("lots 5 to 7", 3)]
    assert resumed(path, a_plan, steps=4).lots == 4


def test_blocks_follow_the_speed_of_lots_and_disk():
    now = [0.0]
    pace = Pace(clock=lambda: now[0])

    def run(per_lot, writing, blocks):
        for _ in range(blocks):
            size = pace.next_size()
            assert 1 <= size <= pace.most
            pace.wrote(size, writing)
            now[0] += size * per_lot
        return size

    assert run(0.005, 0.001, 20) == 100  # half a second
    assert run(0.005, 0.020, 20) == 400  # a slow disk: two seconds, 1 % of which is writing
    assert run(0.005, 5.0, 20) == 2000  # however slow, ten seconds
    assert run(60.0, 0.001, 40) == 1
    assert run(1e-6, 0.001, 40) == MOST_LOTS


def test_a_clock_that_stands_still_or_goes_back_harms_nothing():
    ticks = iter([0.0, 0.0, -5.0, -5.0, -9.0, 1e9, 1e9])
    pace = Pace(clock=lambda: next(ticks))
    for _ in range(3):
        size = pace.next_size()
        assert 1 <= size <= pace.most
        pace.wrote(size, 0.001)


BY_EPOCH = {
    sampling.name: settings(lot_size=100, noise_multiplier=4, steps=20, epsilon=None, relation=relation).plan(
        num_examples=1000, sampling=sampling, accountant=as_accountant("pld"), releases=()
    )
    for sampling, relation in [
        (PartitionSampling(), "replace_one"),
        (BallsAndBinsSampling(), "add_or_remove_one"),
    ]
}


@pytest.mark.parametrize("sampling", BY_EPOCH)
@settings_of_hypothesis(max_examples=40)
@given(stops=st.lists(st.tuples(st.integers(0, 25), st.booleans()), max_size=6), blocks=st.integers(1, 7))
def test_every_order_of_an_epoch_is_paid_for(tmp_path_factory, sampling, stops, blocks):
    """Sessions that stop anywhere, with a checkpoint or not; each draws an order for every epoch it sees."""
    plan = BY_EPOCH[sampling]
    path = tmp_path_factory.mktemp("orders") / "run.ledger"
    orders, at, journal, ledger = set(), 0, create(path, plan), Ledger(plan)
    ledger.keep(journal)
    ledger._pace = Fixed(blocks)
    for session, (lots, checkpointed) in enumerate([*stops, (25, True)]):
        for _ in range(min(lots, plan.steps - ledger.steps)):
            orders.add((session, ledger.steps // 10))
            ledger.reserve(plan.step(ledger.steps))
        at = ledger.steps if checkpointed else at
        spent = float(ledger.epsilon())
        journal.close()
        journal = reopen(path, plan)
        ledger = Ledger.resumed(plan, journal, steps=at, fitted=True)
        ledger._pace = Fixed(blocks)
        assert spent >= epsilon_of_orders(plan, len(orders)) * (1 - 1e-9)
    journal.close()


def epsilon_of_orders(plan, orders):
    accountant, relation = plan.guarantee.accountant, plan.guarantee.relation
    cost = accountant.price(Repeated(plan.step(0).event, orders), relation) if orders else accountant.zero
    return float(accountant.epsilon(cost, plan.guarantee.budget.delta, relation))


class Fixed:
    """Blocks of one size."""

    def __init__(self, size):
        self.size = size

    def next_size(self):
        return self.size

    def most_after(self, size):
        return self.size

    def wrote(self, size, seconds):
        pass
