"""The file: what was written is there, and what is there was written."""

import errno
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp.ledger import Entry, EntryKind, Head, Journal, Ledger, LedgerError, Terms
from dpexp.ledger.entry import ENTRY_BYTES
from tests.ledger.files import RUN, create, plan, reopen, resumed, spend, terms
from tests.plans import PCA

PLAN = plan(releases=(PCA,))

entries = st.builds(
    Entry,
    sequence=st.integers(0, 2**63),
    kind=st.sampled_from(EntryKind),
    first=st.integers(0, 2**63),
    count=st.integers(0, 2**63),
    most_next=st.integers(0, 2**63),
    process=st.integers(0, 2**31),
    text=st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=64),
    digest=st.binary(min_size=32, max_size=32),
    previous=st.binary(min_size=32, max_size=32),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A ledger of 1 + 2 + 4 + … reserved lots, and what it charged: everything that was reserved."""
    path = tmp_path_factory.mktemp("ledger") / "run.ledger"
    spend(path, PLAN, 12)
    content = path.read_bytes()
    charged = resumed(path, PLAN)
    path.write_bytes(content)
    return path, content, charged


@given(entries)
def test_an_entry_reads_back_as_it_was_written(entry):
    assert len(entry.encoded()) == ENTRY_BYTES
    assert Entry.decoded(entry.encoded()) == entry
    assert Head.parse(str(entry.head)) == entry.head


@given(entries, st.integers(0, ENTRY_BYTES * 8 - 1))
def test_every_flipped_bit_of_an_entry_is_found(entry, bit):
    data = bytearray(entry.encoded())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match=r"entry|checksum|EntryKind|decode"):
        Entry.decoded(bytes(data))


@given(data=st.data())
def test_a_damaged_ledger_is_refused_or_charges_no_less(written, data, tmp_path_factory):
    path, content, whole = written
    bad = path.with_name("damaged.ledger")
    if data.draw(st.booleans()):
        length = data.draw(st.integers(0, len(content) - 1))
        bad.write_bytes(content[:length])
    else:
        flipped = bytearray(content)
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        flipped[bit // 8] ^= 1 << bit % 8
        bad.write_bytes(bytes(flipped))
    head = Entry.decoded(content[-ENTRY_BYTES:]).head
    before = Entry.decoded(content[-2 * ENTRY_BYTES : -ENTRY_BYTES]).head
    # A checkpoint or the store knows an entry before the damage; of the last entry nobody knows yet.
    with pytest.raises(LedgerError):
        reopen(bad, PLAN, {"a checkpoint": head.hash})
    try:
        with reopen(bad, PLAN, {"a checkpoint": before.hash}) as journal:
            if not journal.torn:  # cut off between two entries, as if the last had never been begun
                assert len(journal.entries) == len(content) // ENTRY_BYTES - 1
                return
            ledger = Ledger.resumed(PLAN, journal, steps=0, fitted=True)
    except LedgerError:
        return
    assert ledger.lots >= whole.lots
    assert float(ledger.epsilon()) >= float(whole.epsilon())


@pytest.mark.parametrize("left", [1, 100, 255])
def test_a_torn_entry_is_charged_as_a_full_block_and_repaired_once(tmp_path, left):
    path = tmp_path / "run.ledger"
    spend(path, PLAN, 7)  # blocks of 1, 2 and 4
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * left)
    ledger = resumed(path, PLAN)
    assert ledger.lots == 7 + 8
    with reopen(path, PLAN) as journal:
        assert [entry.kind for entry in journal.entries[-2:]] == [EntryKind.TORN, EntryKind.RESUMED]
        assert not journal.torn
    assert path.read_bytes().startswith(whole)  # nothing that was written was changed
    assert resumed(path, PLAN).lots == 15


def test_a_torn_one_time_release_is_charged(tmp_path):
    path = tmp_path / "run.ledger"
    create(path, PLAN).close()
    path.write_bytes(path.read_bytes() + b"dp")
    with reopen(path, PLAN) as journal:
        ledger = Ledger.resumed(PLAN, journal, steps=0, fitted=False)
        ledger.charge(PCA)
    assert ledger.releases == ["dp_pca", "dp_pca"]
    once = spend(tmp_path / "other.ledger", PLAN, 0)
    assert float(ledger.epsilon()) > float(once.epsilon())


def test_an_older_and_a_forked_ledger_are_refused(tmp_path):
    path, copy = tmp_path / "run.ledger", tmp_path / "copy.ledger"
    spend(path, PLAN, 3)
    shutil.copy(path, copy)
    resumed(path, PLAN, steps=1)
    with reopen(path, PLAN) as journal:
        head = journal.head
    with pytest.raises(LedgerError, match="older than its run, or was forked: the store knows an entry"):
        reopen(copy, PLAN, {"the store": head.hash})
    resumed(copy, PLAN, steps=2)
    with pytest.raises(LedgerError, match="forked"):
        reopen(copy, PLAN, {"the store": head.hash})


def test_ledgers_of_other_runs_and_plans_and_missing_ones_are_refused(tmp_path):
    path = tmp_path / "run.ledger"
    with pytest.raises(LedgerError, match="is missing"):
        reopen(path, PLAN)
    spend(path, PLAN, 1)
    with pytest.raises(LedgerError, match="another plan"):
        reopen(path, plan(clip_norm=3))
    with pytest.raises(LedgerError, match="this is the ledger of run"):
        Journal.open(path, run_id="other", terms=terms(PLAN).hash, known={})
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="empty"):
        reopen(path, PLAN)


def test_a_second_process_is_refused_and_told_who_holds_the_run(tmp_path):
    path = tmp_path / "run.ledger"
    with create(path, PLAN), pytest.raises(LedgerError, match=f"in use by process {os.getpid()}"):
        reopen(path, PLAN)
    reopen(path, PLAN).close()


def test_files_are_readable_by_their_owner_only(tmp_path):
    path = tmp_path / "ledgers" / "run.ledger"
    create(path, PLAN).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_existing_ledger_is_not_overwritten(tmp_path):
    path = tmp_path / "run.ledger"
    spend(path, PLAN, 2)
    before = path.read_bytes()
    with pytest.raises(LedgerError):
        create(path, PLAN)
    assert path.read_bytes() == before


@pytest.mark.parametrize("written", [0, 50])
def test_a_full_disk_refuses_the_lot_and_everything_after_it(tmp_path, monkeypatch, written):
    path = tmp_path / "run.ledger"
    ledger = Ledger(PLAN)
    with create(path, PLAN) as journal:
        ledger.keep(journal)
        ledger.charge(PCA)
        ledger.reserve(PLAN.step(0))
        parts = [written]

        def full(descriptor, data, write=os.write):
            if parts and (length := parts.pop()):
                return write(descriptor, bytes(data)[:length])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(LedgerError, match=r"No space left on device\. Nothing was drawn"):
                ledger.reserve(PLAN.step(1))
        assert ledger.steps == 1
        with pytest.raises(LedgerError, match="could not be written"):  # room again, but what is there?
            ledger.reserve(PLAN.step(1))
    assert resumed(path, PLAN, steps=1).lots == (3 if written else 1)  # what is torn counts


def test_a_run_id_is_kept(tmp_path):
    with create(tmp_path / "run.ledger", PLAN) as journal:
        assert journal.entries[0].text == RUN


@pytest.mark.parametrize("key", ["strict", "seed", "ema"])
def test_what_a_run_may_not_change_when_it_goes_on_is_in_its_terms(key):
    before, now = Terms.of(PLAN, {key: 0}), Terms.of(PLAN, {key: 1})
    assert before.hash != now.hash
    assert before.difference(now) == [f"{key}: 0 → 1"]
