"""The store on a PostgreSQL server, which the test makes: `python -m pytest -m postgres`."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

from dpexp.budgets.database import BudgetStoreError
from dpexp.budgets.store import BudgetRefusedError
from tests.budgets.stores import EVENTS, TOTALS, opened, priced, spent, store_at

pytestmark = pytest.mark.postgres


def program(name):
    """`pg_ctl` and the like, which Debian keeps off the path."""
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    assert found, f"{name} is not installed; Debian: apt-get install postgresql"
    return str(found)


def as_server_user(*command):
    """PostgreSQL refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")


@pytest.fixture(scope="module")
def server():
    """A server on a free port, with its data in a folder that goes afterwards; yields its URL."""
    folder = Path(tempfile.mkdtemp(prefix="dpexp-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, log = str(folder / "data"), str(folder / "log")
    as_server_user(program("initdb"), "-D", data, "-U", "postgres", "-A", "trust")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    as_server_user(program("pg_ctl"), "-D", data, "-l", log, "-o", options, "-w", "start")
    yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    as_server_user(program("pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def database(server):
    """An empty database of its own for each test."""
    import psycopg

    name = f"test_{os.urandom(6).hex()}"
    plain = server.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.rpartition("/")[0] + f"/{name}"


def test_reserving_giving_back_and_refusing_are_those_of_a_file(database, tmp_path):
    kept = []
    for place in (database, tmp_path / "budgets.db"):
        store, run = opened(place)
        store.reserve("people", run, "lots", [priced(EVENTS[0], 3), priced(EVENTS[1], 5)])
        store.give_back("people", run, "undrawn", {repr(EVENTS[1]): 2})
        with pytest.raises(BudgetRefusedError):
            store.reserve("people", run, "lots", [priced(EVENTS[0], 10**6)])
        store.record_digest("people", run, "a")
        found, runs, entries = store.read("people")
        kept.append((found.spent, found.totals, found.entries, [entry.lots for entry in entries], len(runs)))
        assert len(store.digest_key()) == 32
    assert kept[0] == kept[1]


def test_many_at_once_never_overspend_and_their_ledgers_add_up(database):
    kept = [Counter() for _ in range(8)]

    def spend(own, event):
        store, run = opened(database)  # also makes the tables, all at once
        try:
            while True:
                store.reserve("people", run, "lots", [priced(event, 9)])
                own[event] += 9
                store.give_back("people", run, "undrawn", {repr(event): 2})
                own[event] -= 2
        except BudgetRefusedError:
            return

    threads = [threading.Thread(target=spend, args=(own, EVENTS[i % 2])) for i, own in enumerate(kept)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = spent(store_at(database))
    expected = type(total).nothing(len(TOTALS.orders))
    for event, lots in sum(kept, Counter()).items():
        expected = expected.plus(TOTALS.price(event), lots)
    assert total == expected
    assert TOTALS.admits(total)
    assert TOTALS.lots_within(total, [priced(EVENTS[0], 9)]) < 9


def test_a_locked_budget_is_waited_for_and_then_refused(database):
    import psycopg

    store, run = opened(database, wait_s=0.2)
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute("SELECT * FROM dpexp_budgets FOR UPDATE")
        with pytest.raises(BudgetStoreError, match="locked by another process"):
            store.reserve("people", run, "lots", [priced(EVENTS[0], 1)])
    store.reserve("people", run, "lots", [priced(EVENTS[0], 1)])


def test_a_server_that_does_not_answer_or_forgets_is_refused(database):
    import psycopg

    nobody = store_at("postgresql+psycopg://postgres@127.0.0.1:1/postgres", wait_s=1)
    with pytest.raises(BudgetStoreError, match="cannot be used"):
        nobody.open("people", lambda found: TOTALS)
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET fsync = off")
        admin.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(100):
                with psycopg.connect(database.replace("+psycopg", "")) as probe:
                    if probe.execute("SHOW fsync").fetchone() == ("off",):
                        break
            with pytest.raises(ValueError, match="fsync = on"):
                opened(database)
        finally:
            admin.execute("ALTER SYSTEM RESET fsync")
            admin.execute("SELECT pg_reload_conf()")


def test_runs_train_against_the_server(database, dpexp, outputs, capsys):
    shared = ["+experiment=smoke", "trainer=cpu", "budget=dataset", "data.budget_id=people"]
    shared += [f"budget.store={database}", "privacy.steps=2"]
    assert dpexp(*shared, "budget.epsilon=1") == 0
    assert dpexp(*shared, "privacy.steps=100000") == 1
    assert "does not fit" in capsys.readouterr().err
    _, _, entries = store_at(database).read("people")
    assert sum(entry.lots for entry in entries) == 2  # of the run that fits, however many lots at a time
