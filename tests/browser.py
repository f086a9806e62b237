"""A headless Chromium that reaches this machine only, and what is drawn in the pages it opens."""

import contextlib
import os
import shutil
import tempfile
import time

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

_FLAGS = [
    "--headless",
    "--no-sandbox",  # there is none for root, in containers
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
# MLflow opens its assistant at the first visit, over a quarter of the page.
_NO_ASSISTANT = """
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
"""
_CHARTS = """
return [...document.querySelectorAll('.js-plotly-plot')].map(plot => ({
  title: plot.closest('[data-testid=experiment-view-compare-runs-card]').innerText.split('\\n')[0],
  x_title: plot.layout.xaxis.title.text,
  points: plot.querySelectorAll('.point').length,
  lines: plot.querySelectorAll('.js-line').length,
  series: plot.data.map(({name, text, x, y, mode}) => ({name, text, x: [...x], y: [...y], mode})),
}))
"""


def _program(name, package):
    found = shutil.which(name)
    assert found, f"{name} is not installed; Debian: apt-get install {package}"
    return found


@contextlib.contextmanager
def chromium(width=1700, height=1300):
    """A browser with an empty profile, and nothing left of it afterwards."""
    os.environ["SE_OFFLINE"] = "true"  # selenium fetches no driver
    options = ChromeOptions()
    options.binary_location = _program("chromium", "chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = Chrome(options, Service(_program("chromedriver", "chromium-driver")))
        try:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _NO_ASSISTANT})
            yield driver
        finally:
            driver.quit()


def charts(driver):
    """What plotly has drawn, by title: the title of the x axis, points and lines on the screen, the data."""
    return {chart.pop("title"): chart for chart in driver.execute_script(_CHARTS)}


def await_charts(driver, titles, seconds=120):
    """The charts, when all of these have points or lines; the page is shown in the error otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        found = charts(driver)
        if all(title in found and found[title]["points"] + found[title]["lines"] for title in titles):
            return found
        if time.monotonic() > deadline:
            text = driver.find_element("tag name", "body").text
            raise TimeoutError(f"{titles} are not drawn; found {found}, and the page:\n{text}")
        time.sleep(0.5)
