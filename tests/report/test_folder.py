"""A report is whole or not there."""

import pytest

from dpexp.report.folder import whole_folder

OURS = frozenset({"report.html", "old.svg"})


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_new_folder_takes_the_old_ones_place_and_keeps_what_is_not_ours(tmp_path):
    folder = tmp_path / "reports" / "smoke"
    folder.mkdir(parents=True)
    for name in ("report.html", "old.svg", "notes.txt"):
        (folder / name).write_text("old")
    with whole_folder(folder, OURS) as new:
        assert contents(folder)["report.html"] == "old"
        (new / "report.html").write_text("new")
    assert contents(folder) == {"report.html": "new", "notes.txt": "old"}
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["smoke"]


def test_after_a_failure_the_old_one_is_as_it_was(tmp_path):
    folder = tmp_path / "smoke"
    folder.mkdir()
    (folder / "report.html").write_text("old")

    def fail(new):
        (new / "report.html").write_text("half of it")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), whole_folder(folder, OURS) as new:
        fail(new)
    assert contents(folder) == {"report.html": "old"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["smoke"]


def test_a_crash_between_the_two_renames_is_mended(tmp_path):
    folder, old = tmp_path / "smoke", tmp_path / ".smoke.old"
    left = tmp_path / ".smoke~0.part"
    old.mkdir()
    left.mkdir()
    (old / "notes.txt").write_text("mine")
    with whole_folder(folder, OURS) as new:
        (new / "report.html").write_text("new")
    assert contents(folder) == {"report.html": "new", "notes.txt": "mine"}
    assert not left.exists()
