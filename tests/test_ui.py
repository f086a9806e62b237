"""`task=ui`: ports, links, and a server that leaves nothing behind. In a browser: test_ui_in_a_browser.py."""

import http.server
import shlex
import socket
import threading
import time

import pytest

from dpexp._validate import UserError
from dpexp.console import show_links
from dpexp.tracking import connect, server, view_link
from dpexp.tracking.server import free_port, mlflow_ui
from dpexp.tracking.view import save_view
from tests.test_conf import composed

# In place of Python: a server that ignores SIGTERM, and so does what it starts.
STUBBORN = """#!/bin/sh
trap '' TERM
sleep 600 &
echo $! $$ > "$PIDS"
wait
"""


@pytest.fixture
def listener():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


class Healthy(http.server.BaseHTTPRequestHandler):
    """Answers as a server of MLflow does when it is up."""

    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def healthy():
    """The port of a server that is up."""
    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as answering:
        threading.Thread(target=answering.serve_forever, args=(0.05,), daemon=True).start()
        yield answering.server_port
        answering.shutdown()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a script run in place of Python."""

    def install(script):
        path = tmp_path / "program"
        path.write_text(script)
        path.chmod(0o700)
        monkeypatch.setattr(server.sys, "executable", str(path))
        monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
        return tmp_path / "pids"

    return install


def alive(pid):
    """Whether a process runs; one that has ended and was not yet asked about does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_taken_port_is_passed_over(listener, monkeypatch):
    assert listener < free_port("task.port", listener) < listener + 20
    monkeypatch.setattr(server, "_PORTS", 1)
    with pytest.raises(UserError, match=f"task.port = {listener}: expected a free port"):
        free_port("task.port", listener)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_no_process_is_left_however_the_block_ends(tmp_path, healthy, program, monkeypatch, error):
    monkeypatch.setattr(server, "_END_SECONDS", 0.2)
    pids = program(STUBBORN)
    try:
        with mlflow_ui("sqlite:///any", tmp_path, port=healthy) as ui:
            assert ui.address == f"http://127.0.0.1:{healthy}"
            while not (pids.exists() and pids.read_text().strip()):
                time.sleep(0.01)
            started = [int(pid) for pid in pids.read_text().split()]
            assert all(alive(pid) for pid in started)
            if error:
                raise error
    except KeyboardInterrupt:
        assert error
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in started):
        assert time.monotonic() < deadline, "left behind"
        time.sleep(0.01)


def test_a_server_that_does_not_start_says_why(tmp_path, program, listener):
    program("#!/bin/sh\necho No such database. >&2\nexit 3\n")
    with (
        pytest.raises(UserError, match=r"did not start; the end of .*mlflow_ui.log:\nNo such database\."),
        mlflow_ui("sqlite:///any", tmp_path, port=free_port("task.port", listener)),
    ):
        pytest.fail("it started")


def test_the_password_of_a_store_is_not_on_the_command_line(tmp_path, healthy, program):
    said = tmp_path / "pids"
    program('#!/bin/sh\necho "$@" > "$PIDS.part"; echo "$MLFLOW_BACKEND_STORE_URI" >> "$PIDS.part"\n'
            'mv "$PIDS.part" "$PIDS"; sleep 600\n')  # fmt: skip
    with mlflow_ui("postgresql://me:secret@host/db", tmp_path, port=healthy):
        while not said.exists():
            time.sleep(0.01)
    command, uri = said.read_text().splitlines()
    assert "secret" not in command
    assert "--host 127.0.0.1" in command
    assert "--workers 1" in command
    assert uri == "postgresql://me:secret@host/db"


@pytest.fixture
def views(outputs):
    """A client of a store with two experiments that have a view, and one of another program."""
    client = connect(f"sqlite:///{outputs / 'mlflow.db'}", outputs)
    ids = {name: client.create_experiment(name) for name in ("first", "second", "other")}
    for name in ("first", "second"):
        save_view(client, ids[name], accuracy="final/accuracy")
    return client, ids


def test_a_store_behind_a_server_gets_links_and_no_second_server(dpexp, views, monkeypatch, capsys):
    client, ids = views
    monkeypatch.setattr("dpexp.ui.connect", lambda uri, folder: client)
    monkeypatch.setattr("dpexp.ui.mlflow_ui", lambda *_, **__: pytest.fail("a server was started"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host:1")
    assert dpexp("task=ui", "tracking.experiment=first") == 0
    lines = capsys.readouterr().out.splitlines()
    first, second, everything = (line.rpartition("  ")[2] for line in lines)
    assert first == view_link("http://host:1", ids["first"])
    assert second == view_link("http://host:1", ids["second"])
    assert everything == "http://host:1/#/experiments"
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.port=0", "task.port = 0"),
        ("task.port=70000", "task.port = 70000"),
        ("task.port=x", "task.port = 'x'"),
        ("task.open=maybe", "task.open = 'maybe': expected true or false"),
    ],
)
def test_what_makes_no_sense_is_refused(dpexp, outputs, capsys, override, message):
    assert dpexp("task=ui", override) == 1
    assert message in capsys.readouterr().err


class Lines:
    """A console that keeps what is printed."""

    def __init__(self):
        self.lines = []

    def print(self, line, **_):
        self.lines.append(line)


def shown(uri):
    console = Lines()
    show_links(console, uri, ["LINK"])
    return console.lines


def test_the_command_that_is_shown_opens_the_store_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = f"sqlite:///{tmp_path / 'outputs' / 'mlflow.db'}"
    assert shown(usual) == ["python -m dpexp task=ui", "LINK"]
    assert shown("http://host") == ["LINK"]
    elsewhere = f"sqlite:///{tmp_path}/it's here, (too)/mlflow.db"
    command, link = shown(elsewhere)
    assert link == "LINK"
    overrides = shlex.split(command)[3:]
    assert composed(*overrides).tracking.uri == elsewhere
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host/db")
    assert shown("postgresql://me:***@host/db") == ["python -m dpexp task=ui", "LINK"]
    assert composed(*shlex.split(shown(usual)[0])[3:]).tracking.uri == usual
