"""Pictures of pages for the documentation: `python -m docs.screenshots`.

It trains a small sweep (or takes the runs in the folder given by `--outputs`), starts the MLflow UI as a user
would, and saves its view of the runs as docs/images/mlflow_view.png. `--run OUTPUTS` does so with the newest
run of the main job in that folder, as docs/images/mlflow_run.png; `PAGE.html PICTURE.png` with any page.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from mlflow import MlflowClient
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import await_charts, chromium

REPOSITORY = Path(__file__).parents[1]
RUN = REPOSITORY / "docs" / "images" / "mlflow_run.png"
VIEW = REPOSITORY / "docs" / "images" / "mlflow_view.png"
SWEEP = [
    "-m",
    "+experiment=smoke",
    "privacy.noise_multiplier=1,2,4",
    "privacy.steps=300",
    "seed=0,1",
    "trainer.val_check_interval=25",
]
CHARTS = ["final/epsilon vs. final/accuracy", "val/accuracy", "privacy/epsilon"]
METRICS = "^(privacy/epsilon|privacy/epsilon_rdp|privacy/delta_at_budget|val/accuracy|val/loss)$"
SEARCH = "input[placeholder*='etric']"
# Plotly shows its tools over the charts where there is no mouse; MLflow tells shared views from saved ones.
TIDY = """
document.querySelectorAll('.modebar-container').forEach(element => element.remove());
document.querySelectorAll('button[aria-label="Hide banner"]').forEach(button => button.click());
"""


def main() -> None:
    """Takes the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", type=Path, help="an outputs folder with runs of smoke")
    parser.add_argument("--run", type=Path, help="an outputs folder with a run of mnist_medium")
    parser.add_argument("page", nargs="*", help="a page and the picture of it")
    arguments = parser.parse_args()
    if arguments.page:
        page, picture = arguments.page
        shoot_page(Path(page), Path(picture))
    elif arguments.run:
        shoot_run(arguments.run.absolute(), RUN)
    elif arguments.outputs:
        shoot_view(arguments.outputs.absolute(), VIEW)
    else:
        with tempfile.TemporaryDirectory() as folder:
            dpexp(folder, *SWEEP)
            shoot_view(Path(folder) / "outputs", VIEW)


def shoot_page(page: Path, picture: Path, *, width: int = 1200) -> None:
    """The whole of a page that is a file, however long it is."""
    with chromium(width, 800) as driver:
        driver.get(page.absolute().as_uri())
        height = driver.execute_script("return document.documentElement.scrollHeight")
        save(driver, picture, width, height)


def shoot_view(outputs: Path, picture: Path) -> None:
    """What a person sees who follows the link to the view of `smoke`."""
    with ui(outputs, "smoke") as link, chromium(1500, 1160) as driver:
        driver.get(link)
        await_charts(driver, CHARTS)
        time.sleep(2)  # fonts, colors and the parallel coordinates, which are no plot of plotly
        driver.execute_script(TIDY)
        time.sleep(1)
        save(driver, picture, 1500, 1060)


def shoot_run(outputs: Path, picture: Path) -> None:
    """The metrics along training of the newest run of the main job."""
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    experiment = store.get_experiment_by_name("mnist_medium")
    assert experiment is not None
    run = store.search_runs([experiment.experiment_id], max_results=1)[0]
    place = f"experiments/{experiment.experiment_id}/runs/{run.info.run_id}/model-metrics"
    with ui(outputs, "mnist_medium") as link, chromium(1500, 1160) as driver:
        driver.get(f"{link.split('#')[0]}#/{place}?workflowType=machine_learning")
        search = WebDriverWait(driver, 60).until(lambda page: page.find_element(By.CSS_SELECTOR, SEARCH))
        search.send_keys(METRICS)
        time.sleep(5)  # for the charts of other metrics to go, and for what is drawn again
        driver.execute_script(TIDY)
        time.sleep(1)
        save(driver, picture, 1500, 1087)


def save(driver: WebDriver, picture: Path, width: int, height: int) -> None:
    """A picture of exactly this part of the page, from its upper left corner."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1)  # for the page to settle into its size
    driver.save_screenshot(str(picture))
    print(picture)


@contextmanager
def ui(outputs: Path, experiment: str) -> Iterator[str]:
    """`task=ui` on a store; yields the link to its newest view of an experiment."""
    command = [sys.executable, "-u", "-m", "dpexp", "task=ui", f"tracking.outputs={outputs}"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, cwd=outputs.parent, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = list(takewhile(lambda line: not line.startswith("Ctrl-C"), process.stdout))
        links = [line.split()[-1] for line in said if line.startswith(f"Privacy-utility of {experiment}")]
        try:
            yield links[0]
        finally:
            process.terminate()
            process.communicate()


def dpexp(folder: str, *arguments: str) -> None:
    """The command line, in a folder."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-m", "dpexp", *arguments], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
