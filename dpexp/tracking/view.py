"""The view of an MLflow experiment that dpexp saves: accuracy against ε, ready when the UI is opened.

MLflow keeps a shared view as a tag of its experiment. What is in the tag is state of the UI that MLflow does
not document, so that it is a convenience and nothing depends on it: a store that refuses the tag costs a
warning, and a UI that cannot read it says so and shows the runs without the view. So it is written whatever
the version. Tried in a browser with MLflow 3.13.0, which reads the state itself, and 3.17.2, which reads an
envelope with a name and lists it under "Views": the tag carries both.
"""

import base64
import json
import logging
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["VIEW_NAME", "VIEW_TAG", "has_view", "run_link", "save_view", "ui_address", "view_link"]

_log = logging.getLogger(__name__)
VIEW_NAME = "Privacy-utility"
_KEY = "dpexp"
VIEW_TAG = f"mlflow.sharedViewState.{_KEY}"
_VERSION = 1  # raise it with any change of what the view shows: saved ones are then renewed
_SECTION = "dpexp-privacy-utility"
# Both, since the UI hides lines that no run has; scatter plots it does not hide.
_ALONG = ("val/accuracy", "nonprivate/val/accuracy")
_PARAMS = ("plan.noise_multiplier", "privacy.clip_norm", "privacy.lot_size", "optimizer.lr")
# What MLflow 3.13 misses where it is not there, as the UI has it by itself.
_UNCHANGED: Mapping[str, Any] = {
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "columnOrder": [],
    "columnWidths": {},
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "viewMaximized": False,
    "runListHidden": False,
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "groupBy": None,
    "groupsExpanded": {},
    "autoRefreshEnabled": True,
    "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
}


def save_view(client: "MlflowClient", experiment_id: str, *, accuracy: str | None) -> None:
    """Saves the view where it is missing, of an earlier version, or without this accuracy.

    Other views, which users saved, and one of a later version are left alone. A store that refuses it costs a
    warning.

    Args:
        client: The store.
        experiment_id: The MLflow experiment.
        accuracy: The metric that is drawn against `final/epsilon`, beside those of earlier runs; None where
            the test split is not evaluated.
    """
    from mlflow.exceptions import MlflowException

    wanted = set() if accuracy is None else {accuracy}
    try:
        saved = client.get_experiment(experiment_id).tags.get(VIEW_TAG)
        version, shown = _saved(saved)
        if version < _VERSION or (version == _VERSION and not wanted <= shown):
            client.set_experiment_tag(experiment_id, VIEW_TAG, _view(sorted(wanted | shown)))
    except (MlflowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        _log.warning("The view %s of the MLflow UI could not be saved: %s", VIEW_NAME, reason)


def has_view(tags: Mapping[str, str]) -> bool:
    """Whether an MLflow experiment with these tags has the view."""
    return VIEW_TAG in tags


def view_link(uri: str, experiment_id: str) -> str:
    """Where the view of an MLflow experiment is.

    Args:
        uri: The store, or the address of its UI.
        experiment_id: The MLflow experiment.
    """
    query = f"workflowType=machine_learning&viewStateShareKey={_KEY}&compareRunsMode=CHART"
    return f"{ui_address(uri)}/#/experiments/{experiment_id}/runs?{query}"


def run_link(uri: str, experiment_id: str, run_id: str) -> str:
    """Where the metrics of a run are.

    Args:
        uri: The store, or the address of its UI.
        experiment_id: Its MLflow experiment.
        run_id: The run.
    """
    place = f"experiments/{experiment_id}/runs/{run_id}/model-metrics"
    return f"{ui_address(uri)}/#/{place}?workflowType=machine_learning"


def ui_address(uri: str) -> str:
    """Where the UI of a store is: the server itself, without its user; else where `task=ui` serves it."""
    if not uri.startswith("http"):
        return "http://127.0.0.1:5000"
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _saved(tag: str | None) -> tuple[int, set[str]]:
    """Version and accuracies of a saved view; 0 and none where there is no view that can be read."""
    try:
        mark = json.loads(tag or "")[_KEY]
        return int(mark["version"]), set(mark["accuracies"])
    except (ValueError, KeyError, TypeError):
        return 0, set()


def _view(accuracies: Iterable[str]) -> str:
    """The content of the tag; below 5000 characters, which is all that MLflow 3.13 takes."""
    state, now = _state(accuracies), int(time.time() * 1000)
    packed = base64.b64encode(zlib.compress(_compact(state).encode(), level=9)).decode()
    envelope = {"name": VIEW_NAME, "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"}
    mark = {_KEY: {"version": _VERSION, "accuracies": list(accuracies)}}
    return _compact(envelope | mark | state)


def _compact(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _state(accuracies: Iterable[str]) -> dict[str, Any]:
    """What the UI shows: the training runs, the most accurate first, and the charts."""
    charts = [
        *(_scatter(accuracy) for accuracy in accuracies),
        *(_line(along, against="privacy/epsilon") for along in _ALONG),
        *(_parallel(accuracy) for accuracy in accuracies),
        _line("privacy/epsilon"),
    ]
    section = {"uuid": _SECTION, "name": VIEW_NAME, "display": True, "isReordered": True, "columns": 2}
    columns = [
        *(f"params.`{key}`" for key in _PARAMS),
        *(f"metrics.`{key}`" for key in ("final/epsilon", *accuracies)),
    ]
    return {
        **_UNCHANGED,
        "searchFilter": "tags.`dpexp.kind` = 'train'",
        "orderByKey": "metrics.`final/accuracy`",  # in its own order the UI hides the runs of a sweep
        "orderByAsc": False,
        "selectedColumns": columns,
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunCharts": charts,
        "compareRunSections": [section],
    }


def _scatter(accuracy: str) -> dict[str, Any]:
    """One point a run."""
    x, y = ({"key": key, "type": "METRIC"} for key in ("final/epsilon", accuracy))
    return {**_chart("SCATTER", accuracy), "xaxis": x, "yaxis": y}


def _parallel(accuracy: str) -> dict[str, Any]:
    """What it depends on; σ as it was solved, which is a number where `privacy.noise_multiplier` is null."""
    shown = {"selectedParams": _PARAMS, "selectedMetrics": ["final/epsilon", accuracy], "showAllRuns": True}
    return {**_chart("PARALLEL", accuracy), **shown}


def _line(metric: str, *, against: str | None = None) -> dict[str, Any]:
    """A series by step, or against another one at the same steps."""
    axis = (
        {"xAxisKey": "step"} if against is None else {"xAxisKey": "metric", "selectedXAxisMetricKey": against}
    )
    return {
        **_chart("LINE", metric),
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "yAxisKey": "metric",
        "scaleType": "linear",
        "xAxisScaleType": "linear",
        "lineSmoothness": 0,
        "range": {},
        "useGlobalXaxisKey": False,
        **axis,
    }


def _chart(kind: str, metric: str) -> dict[str, Any]:
    """What charts of all kinds have; titles of its own the UI makes from the axes."""
    return {
        "uuid": f"dpexp-{kind.lower()}-{metric}",
        "type": kind,
        "metricSectionId": _SECTION,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
    }
