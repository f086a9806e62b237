"""The laws of the shared store: nothing beyond the total, nothing lost, nothing silently wrong."""

import math
import sqlite3
import stat
import tempfile
import threading
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import URL

from dpexp.accounting import Budget, BudgetExceededError, Relation, RenyiFilter, Repeated
from dpexp.budgets import filesystem
from dpexp.budgets import store as store_module
from dpexp.budgets.database import BudgetStoreError, Database
from dpexp.budgets.spending import Spending
from dpexp.budgets.store import BudgetRefusedError
from dpexp.budgets.totals import Totals
from tests.budgets.stores import EVENTS, TOTALS, opened, priced, spent, store_at

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["reserve", "return"]), st.sampled_from(EVENTS), st.integers(1, 40)),
    max_size=10,
)


def exact_sum(held):
    """Σ count·α as fractions, counted apart from the code under test."""
    prices = {event: TOTALS.price(event) for event in EVENTS}
    return tuple(
        sum((count * Fraction(prices[event][k]) for event, count in held.items()), Fraction(0))
        for k in range(len(TOTALS.orders))
    )


def within(sums):
    return any(total <= limit for total, limit in zip(sums, TOTALS.limits, strict=True))


@settings(max_examples=15)
@given(ACTIONS)
def test_the_store_does_what_an_exact_model_does(actions):
    with tempfile.TemporaryDirectory() as folder:
        store, run = opened(Path(folder) / "budgets.db")
        held = Counter()
        for kind, event, count in actions:
            if kind == "reserve" and within(exact_sum(held + Counter({event: count}))):
                store.reserve("people", run, "lots", [priced(event, count)])
                held[event] += count
            elif kind == "reserve":
                with pytest.raises(BudgetRefusedError, match="Nothing was reserved"):
                    store.reserve("people", run, "lots", [priced(event, count)])
            elif count <= held[event]:
                store.give_back("people", run, "undrawn", {repr(event): count})
                held[event] -= count
            else:
                with pytest.raises(ValueError, match="cannot be given back"):
                    store.give_back("people", run, "undrawn", {repr(event): count})
            assert spent(store).sums == exact_sum(held)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 10**6)), max_size=20), st.randoms())
def test_sums_are_exact_in_any_order_and_come_back_from_text(parts, random):
    forth = Spending.nothing(1)
    for alpha, count in parts:
        forth = forth.plus([alpha], count)
    assert Spending.read(forth.written) == forth
    assert math.inf > forth.rounded_up[0] >= forth.sums[0]
    random.shuffle(parts)
    for alpha, count in parts:
        forth = forth.plus([alpha], -count)
    assert forth == Spending.nothing(1)


def test_what_was_infinite_stays_spent():
    spending = Spending.nothing(2).plus([math.inf, 1.0], 1).plus([math.inf, 1.0], -1)
    assert spending.sums == (None, 0)
    assert Spending.read(spending.written) == spending


@pytest.mark.parametrize("event", EVENTS)
def test_it_admits_what_the_filter_of_the_accounting_room_admits(event):
    oracle = RenyiFilter(budget=Budget(epsilon=1, delta=1e-5), relation=TOTALS.relation, orders=TOTALS.orders)
    most = oracle.admits(event)
    nothing = Spending.nothing(2)
    assert TOTALS.lots_within(nothing, [priced(event, 10**9)]) == most
    assert TOTALS.admits(nothing.plus(TOTALS.price(event), most))
    assert not TOTALS.admits(nothing.plus(TOTALS.price(event), most + 1))
    with pytest.raises(BudgetExceededError):
        oracle.charge(Repeated(event, most + 1))


def test_threads_at_once_never_overspend_and_their_ledgers_add_up(tmp_path):
    store, _ = opened(tmp_path / "budgets.db")
    kept = [Counter() for _ in range(6)]

    def spend(own, event):
        mine = store_at(tmp_path / "budgets.db")
        run = mine.add_run("people", label="thread")
        try:
            while True:
                mine.reserve("people", run, "lots", [priced(event, 9)])
                own[event] += 9
                mine.give_back("people", run, "undrawn", {repr(event): 2})
                own[event] -= 2
        except BudgetRefusedError:
            return

    threads = [
        threading.Thread(target=spend, args=(own, EVENTS[index % 2])) for index, own in enumerate(kept)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = sum(kept, Counter())
    assert spent(store).sums == exact_sum(together)
    assert TOTALS.admits(spent(store))
    assert TOTALS.lots_within(spent(store), [priced(EVENTS[0], 9)]) < 9  # it was used up


def test_a_locked_store_is_waited_for_and_then_refused(tmp_path):
    store, run = opened(tmp_path / "budgets.db", wait_s=0.1)
    other = sqlite3.connect(tmp_path / "budgets.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BudgetStoreError, match="locked by another process for more than"):
        store.reserve("people", run, "lots", [priced(EVENTS[0], 1)])
    other.close()
    store.reserve("people", run, "lots", [priced(EVENTS[0], 1)])


def test_a_store_that_cannot_be_written_can_be_read_and_not_spent(tmp_path):
    path = tmp_path / "budgets.db"
    store, run = opened(path)
    url = URL.create("sqlite", database=path.as_uri(), query={"mode": "ro", "uri": "true"})
    store.database.__dict__["_writer"] = store.database._file(url, "BEGIN IMMEDIATE")
    with pytest.raises(BudgetStoreError, match="cannot be written"):
        store.reserve("people", run, "lots", [priced(EVENTS[0], 1)])
    assert store.read("people")[0].entries == 0


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "budgets.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(BudgetStoreError, match="damaged"):
        opened(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE dpexp_reservations SET lots = 1 WHERE entry = 1",
        "UPDATE dpexp_reservations SET moments = '0x0p+0 0x0p+0' WHERE entry = 2",
        "UPDATE dpexp_budgets SET spent = '0 0'",
        "UPDATE dpexp_budgets SET epsilon = '0x1.0p+3'",
        "DELETE FROM dpexp_reservations WHERE entry = 2",
        "UPDATE dpexp_budgets SET spent = 'x y'",
    ],
)
def test_a_changed_record_is_refused(tmp_path, damage):
    path = tmp_path / "budgets.db"
    store, run = opened(path)
    for event in EVENTS[:2]:
        store.reserve("people", run, "lots", [priced(event, 3)])
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(BudgetStoreError, match="damaged"):
        store.read("people")
    with pytest.raises(BudgetStoreError, match="damaged"):
        opened(path)


def test_what_fails_before_the_commit_has_reserved_nothing(tmp_path, monkeypatch):
    store, run = opened(tmp_path / "budgets.db")
    real = store_module._enter

    def dies(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module, "_enter", dies)
    with pytest.raises(KeyboardInterrupt):
        store.reserve("people", run, "lots", [priced(EVENTS[0], 3)])
    monkeypatch.undo()
    assert spent(store) == Spending.nothing(2)
    assert store.reserve("people", run, "lots", [priced(EVENTS[0], 3)]).entries == 1


def test_several_events_are_reserved_together_or_not_at_all(tmp_path):
    store, run = opened(tmp_path / "budgets.db")
    with pytest.raises(BudgetRefusedError):
        store.reserve("people", run, "lots", [priced(EVENTS[0], 1), priced(EVENTS[1], 10**6)])
    assert store.read("people")[0].entries == 0


def test_a_run_gives_back_only_what_it_holds_itself(tmp_path):
    store, run = opened(tmp_path / "budgets.db")
    store.reserve("people", run, "lots", [priced(EVENTS[0], 3)])
    other = store.add_run("people", label="another")
    with pytest.raises(ValueError, match="0 of this event"):
        store.give_back("people", other, "undrawn", {repr(EVENTS[0]): 1})


def test_new_rows_are_recorded_under_the_budget_and_known_rows_open_no_second_one(tmp_path):
    store, run = opened(tmp_path / "budgets.db")
    for digest in ("a", "b", "a"):
        store.record_digest("people", run, digest)
    store.open("others", lambda found: TOTALS)
    other = store.add_run("others", label="another")
    with pytest.raises(BudgetRefusedError, match="expected 'people'"):
        store.record_digest("others", other, "b")


def test_the_file_is_private_and_holds_one_key_for_digests(tmp_path):
    store, _ = opened(tmp_path / "budgets.db")
    assert stat.S_IMODE((tmp_path / "budgets.db").stat().st_mode) == 0o600
    assert store.digest_key() == store_at(tmp_path / "budgets.db").digest_key()
    assert len(store.digest_key()) == 32


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_network_file_systems_are_refused(tmp_path, monkeypatch, kind):
    mounts = tmp_path / "mounts"
    (tmp_path / "far away").mkdir()
    far = str(tmp_path / "far away").replace(" ", "\\040")
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {far} {kind} rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(filesystem, "_MOUNTS", mounts)
    opened(tmp_path / "budgets.db")
    with pytest.raises(ValueError, match=f"this one is on {kind}"):
        opened(tmp_path / "far away" / "budgets.db")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("postgresql://me:SECRET@host/db", "without password"),
        ("mysql://host/db", "a path"),
        ("sqlite://", "a path"),
        ("nonsense://", "a path"),
    ],
)
def test_a_store_is_a_file_or_a_postgresql_server(store, message):
    with pytest.raises(ValueError, match=message) as refused:
        _ = Database(store=store, wait_s=1).url
    assert "SECRET" not in str(refused.value)


def test_without_a_limit_everything_is_admitted_and_the_realized_loss_is_told():
    totals = Totals(epsilon=None, delta=1e-5, relation=Relation.ADD_OR_REMOVE_ONE)
    nothing = Spending.nothing(len(totals.orders))
    assert totals.spent_epsilon(nothing) == 0
    assert totals.spent_fraction(nothing) is None
    spending = nothing.plus(totals.price(EVENTS[0]), 10_000)
    assert totals.admits(spending)
    limited = Totals(epsilon=3, delta=1e-5, relation=Relation.ADD_OR_REMOVE_ONE)
    assert totals.spent_epsilon(spending) > limited.spent_epsilon(spending) > 0


@given(st.sampled_from(EVENTS), st.integers(1, 10**5), st.sampled_from([(8,), (1, 4, 32)]))
def test_the_measure_of_what_was_spent_is_the_filter_that_just_holds_it(event, lots, orders):
    def totals(epsilon):
        return Totals(epsilon=epsilon, delta=1e-5, relation=Relation.ADD_OR_REMOVE_ONE, orders=orders)

    spending = Spending.nothing(len(orders)).plus(totals(1).price(event), lots)
    found = totals(1).spent_epsilon(spending)
    assert totals(found).admits(spending) or found == 0
    assert not totals(found * (1 - 1e-6)).admits(spending) if found else True
