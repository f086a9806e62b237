"""`task=ui` as a person sees it, in headless Chromium: `python -m pytest -m browser`."""

import os
import signal
import socket
import subprocess
import sys
from itertools import takewhile
from urllib.parse import urlsplit

import pytest

from dpexp.tracking import MLflowTracking
from tests.browser import await_charts, chromium
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.browser

SIGMAS, LOTS = (2, 4, 8), range(10, 101, 10)
PARAMS = {"privacy.clip_norm": 4, "privacy.lot_size": 64, "optimizer.lr": 0.1}
TITLES = ["final/epsilon vs. final/accuracy", "val/accuracy", "privacy/epsilon"]


def epsilon(sigma, lots):
    return lots**0.5 / sigma


def accuracy(sigma, lots):
    return 1 - 1 / (2 + epsilon(sigma, lots))


def name(sigma):
    return f"seen σ={sigma}"


@pytest.fixture
def store(outputs):
    """Runs at three noise multipliers, below a sweep that is no training run itself."""
    tracking = MLflowTracking(uri=None, experiment="seen", outputs=str(outputs), every=10)
    with tracking.run(name="seen", run_name="the sweep") as sweep:
        sweep.set_tags({"dpexp.kind": "sweep"})
        for sigma in SIGMAS:
            with tracking.run(name="seen", run_name=name(sigma)) as run:
                run.set_tags({"dpexp.kind": "train", "mlflow.parentRunId": sweep.run_id})
                run.log_params(PARAMS | {"plan.noise_multiplier": sigma})
                for lots in LOTS:
                    run.record(lots, {"privacy/epsilon": epsilon(sigma, lots)})
                    if lots % 20 == 0:
                        run.record(lots, {"val/accuracy": accuracy(sigma, lots)})
                run.record(
                    100, {"final/epsilon": epsilon(sigma, 100), "final/accuracy": accuracy(sigma, 100)}
                )
                run.save_view(accuracy="final/accuracy")
    return outputs


@pytest.fixture
def ui(store):
    """The command in a session of its own; yields it, and the link that it prints."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "dpexp", "task=ui", "task.port=5600"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        said = list(takewhile(lambda line: not line.startswith("Ctrl-C"), process.stdout))
        links = [line.split()[-1] for line in said if line.startswith("Privacy-utility of seen")]
        assert links, "".join(said)
        yield process, links[0]
        process.terminate()  # where the test has failed
        process.communicate()


def drawn(series):
    """The points of a line by the name of its run."""
    lines = (line for line in series if "markers" in line["mode"])
    return {line["name"]: list(zip(line["x"], line["y"], strict=True)) for line in lines}


def test_the_page_shows_the_view_with_the_right_runs(ui):
    process, link = ui
    with chromium() as driver:
        driver.get(link)
        found = await_charts(driver, TITLES)
        text = driver.find_element("tag name", "body").text
    assert "Privacy-utility" in text
    assert "3 matching runs" in text
    assert "the sweep" not in text
    assert "Parallel Coordinates" in text
    assert "nonprivate/final/accuracy" not in text

    scatter = found["final/epsilon vs. final/accuracy"]
    [points] = scatter["series"]
    at_end = [(name(s), epsilon(s, 100), accuracy(s, 100)) for s in SIGMAS]
    assert sorted(zip(points["text"], points["x"], points["y"], strict=True)) == sorted(at_end)
    assert scatter["points"] == len(SIGMAS)

    against = found["val/accuracy"]
    assert against["x_title"] == "privacy/epsilon"
    evaluated = [lots for lots in LOTS if lots % 20 == 0]
    assert drawn(against["series"]) == {
        name(s): [(epsilon(s, lots), accuracy(s, lots)) for lots in evaluated] for s in SIGMAS
    }
    assert drawn(found["privacy/epsilon"]["series"]) == {
        name(s): [(lots, epsilon(s, lots)) for lots in LOTS] for s in SIGMAS
    }

    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert "The MLflow UI has ended." in process.stdout.read()
    assert not listening(urlsplit(link).port)


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
