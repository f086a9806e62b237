"""Processes at once, and killed ones: `python -m pytest -m faults`."""

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from dpexp.budgets.spending import Spending
from dpexp.budgets.store import BudgetRefusedError
from tests.budgets.stores import EVENTS, TOTALS, opened, priced, spent, store_at
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.faults
NOTHING = Spending.nothing(len(TOTALS.orders))


def hammer(place, trace, seconds):
    command = [sys.executable, "-m", "tests.budgets.hammer", str(place), str(trace), str(seconds)]
    return subprocess.Popen(command, cwd=REPOSITORY)


def ledger_of(trace):
    """(run, least, most): what the process certainly held, and at most, by event, when it ended."""
    lines = [line.split() for line in trace.read_text(encoding="utf-8").splitlines()]
    (_, run), *lines = lines
    least, most = Counter(), Counter()
    for kind, which, lots in lines:
        event, count = EVENTS[int(which)], int(lots)
        most[event] += {"asked": count, "refused": -count, "returned": -count}.get(kind, 0)
        least[event] += {"reserved": count, "returning": -count}.get(kind, 0)
    return run, least, most


def check(place, traces):
    """The store is whole, within its total, and holds what the processes say; returns its entries."""
    store = store_at(place)
    found, _, entries = store.read("people")  # verifies the chain, and the total against the entries
    assert TOTALS.admits(found.spent)
    for trace in traces:
        run, least, most = ledger_of(trace)
        held = Counter()
        for entry in entries:
            if entry.run == run:
                held[entry.event] += entry.lots
        for event in EVENTS:
            assert least[event] <= held[repr(event)] <= most[event]
    return entries


def overspent_at_any_time(entries):
    total = NOTHING
    for entry in entries:
        total = total.plus(entry.moments, entry.lots)
        if not TOTALS.admits(total):
            return True
    return False


@pytest.mark.timeout(300)
def test_eight_processes_for_a_minute_never_overspend_and_their_ledgers_add_up(tmp_path):
    place = tmp_path / "budgets.db"
    store, _ = opened(place)
    traces = [tmp_path / f"trace{index}" for index in range(8)]
    processes = [hammer(place, trace, 60) for trace in traces]
    assert [process.wait(timeout=200) for process in processes] == [0] * 8
    entries = check(place, traces)
    assert not overspent_at_any_time(entries)
    together = Counter()
    for trace in traces:
        _, least, most = ledger_of(trace)
        assert +least == +most  # none was killed: each knows exactly what it holds
        together += least
    total = NOTHING
    for event, lots in together.items():
        total = total.plus(TOTALS.price(event), lots)
    assert total == spent(store)
    refused = sum(trace.read_text(encoding="utf-8").count("refused") for trace in traces)
    print(f"\n{len(entries)} entries, {refused} refusals, by 8 processes in 60 s")
    assert refused > 100


@pytest.mark.timeout(300)
def test_processes_killed_at_random_leave_the_store_whole_and_lose_no_charge(tmp_path):
    random.seed(7)
    for turn in range(20):
        place, trace = tmp_path / f"budgets{turn}.db", tmp_path / f"trace{turn}"
        store, run = opened(place)
        process = hammer(place, trace, 200)
        deadline = time.monotonic() + 200
        while not (trace.exists() and "reserved" in trace.read_text(encoding="utf-8")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.2))
        process.kill()
        process.wait()
        with contextlib.suppress(BudgetRefusedError):  # the next writer finds the store whole, and goes on
            store.reserve("people", run, "lots", [priced(EVENTS[2], 1)])
        check(place, [trace])
