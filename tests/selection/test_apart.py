"""What a trial says reaches its own log, and nobody else."""

import logging
import os
import sys

import pytest

from dpexp.selection.apart import apart, features_in

CANARY = "canary-5151"


def test_nothing_that_a_trial_says_comes_out(tmp_path, capfd, caplog):
    own = logging.getLogger("a library with a handler of its own")
    handler = logging.FileHandler(tmp_path / "outputs.log")
    own.addHandler(handler)
    try:
        with apart(tmp_path / "trial.log"):
            print(CANARY, "printed")
            print(CANARY, "on stderr", file=sys.stderr)
            os.write(1, f"{CANARY} from C\n".encode())
            os.write(2, f"{CANARY} from C on stderr\n".encode())
            os.system(f"echo {CANARY} of a child")
            logging.getLogger("any").warning("%s logged", CANARY)
            own.error("%s by its own handler", CANARY)
            (tmp_path / "made").touch()
        print("after")
        own.error("after")
    finally:
        own.removeHandler(handler)
        handler.close()
    out, err = capfd.readouterr()
    assert CANARY not in out + err + caplog.text + (tmp_path / "outputs.log").read_text()
    assert "after" in out
    assert "after" in (tmp_path / "outputs.log").read_text()
    assert (tmp_path / "trial.log").read_text().count(CANARY) == 7
    for name in ("trial.log", "made"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_a_handler_made_within_does_not_write_to_the_closed_log(tmp_path, capfd):
    library = logging.getLogger("a library imported within")
    library.propagate = False  # handlers of other tests have streams of their own
    with apart(tmp_path / "trial.log"):
        library.addHandler(logging.StreamHandler())
    try:
        library.warning("later")
    finally:
        library.handlers.clear()
    assert "Logging error" not in capfd.readouterr().err
    assert "later" not in (tmp_path / "trial.log").read_text()


def test_all_is_as_before_after_an_exception(tmp_path, capfd):
    before = (sys.stdout, sys.stderr, list(logging.root.handlers), os.umask(0o022))
    os.umask(before[3])
    with pytest.raises(KeyError), apart(tmp_path / "trial.log"):
        raise KeyError(CANARY)
    mask = os.umask(0o022)
    os.umask(mask)
    assert (sys.stdout, sys.stderr, list(logging.root.handlers), mask) == before
    print("shown")
    assert "shown" in capfd.readouterr().out


@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_features_are_cached_in_the_private_store(tmp_path, monkeypatch, before):
    monkeypatch.delenv("DPEXP_FEATURES_DIR", raising=False)
    if before:
        monkeypatch.setenv("DPEXP_FEATURES_DIR", before)
    with features_in(tmp_path):
        assert os.environ["DPEXP_FEATURES_DIR"] == str(tmp_path)
    assert os.environ.get("DPEXP_FEATURES_DIR") == before
