"""What is told to an MLflow run, as plain entries that can wait on disk, and how each is sent."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexp.spool import Refused

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Unavailable", "send"]

_METRICS, _PARAMS = 1000, 100  # the REST interface takes no more at once
_FOR_EVER = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS")


class Unavailable(ConnectionError):
    """The store does not answer, or is locked, for now."""


def send(client: "MlflowClient", run_id: str, entry: Mapping[str, Any]) -> None:
    """Tells the store one entry.

    Raises:
        Unavailable: It should be tried again later.
        Refused: The store does not take this entry, now or later.
    """
    from mlflow.exceptions import MlflowException

    keys = {key: value for key, value in entry.items() if key != "kind"}
    try:
        _SENDERS[entry["kind"]](client, run_id, **keys)
    except MlflowException as error:
        if error.error_code in _FOR_EVER:
            raise Refused(str(error)) from error
        raise Unavailable(str(error)) from error
    except FileNotFoundError as error:
        raise Refused(str(error)) from error
    except OSError as error:  # of the connection, or of the folder of artifacts
        raise Unavailable(str(error)) from error


def _metrics(client: "MlflowClient", run_id: str, points: Sequence[Sequence[Any]]) -> None:
    from mlflow.entities import Metric

    for start in range(0, len(points), _METRICS):
        batch = [Metric(*point) for point in points[start : start + _METRICS]]
        client.log_batch(run_id, metrics=batch)


def _params(client: "MlflowClient", run_id: str, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    entries = [Param(key, value) for key, value in params.items()]
    for start in range(0, len(entries), _PARAMS):
        client.log_batch(run_id, params=entries[start : start + _PARAMS])


def _tags(client: "MlflowClient", run_id: str, tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        client.set_tag(run_id, key, value)


def _text(client: "MlflowClient", run_id: str, name: str, text: str) -> None:
    client.log_text(run_id, text, name)


def _file(client: "MlflowClient", run_id: str, path: str) -> None:
    client.log_artifact(run_id, str(Path(path)))


def _model(client: "MlflowClient", run_id: str, experiment_id: str, name: str, path: str, step: int) -> None:
    """As a model of MLflow 3; older servers keep it with the run, where `runs:/…` finds it too."""
    from mlflow.exceptions import MlflowException

    try:
        _linked_model(client, run_id, experiment_id, name, path, step)
    except MlflowException as error:
        if error.error_code != "ENDPOINT_NOT_FOUND":
            raise
        client.log_artifacts(run_id, path, name)


def _linked_model(
    client: "MlflowClient", run_id: str, experiment_id: str, name: str, path: str, step: int
) -> None:
    """The same model when it is told again: it is looked for before it is made, and before it is linked."""
    from mlflow.entities import LoggedModelOutput

    found = client.search_logged_models(
        [experiment_id], filter_string=f"source_run_id = '{run_id}' AND name = '{name}'"
    )
    model = found[0] if found else client.create_logged_model(experiment_id, name=name, source_run_id=run_id)
    client.log_model_artifacts(model.model_id, path)
    client.finalize_logged_model(model.model_id, "READY")
    outputs = client.get_run(run_id).outputs
    if outputs is None or model.model_id not in {output.model_id for output in outputs.model_outputs}:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step)])


def _dataset(
    client: "MlflowClient", run_id: str, name: str, digest: str, profile: str, tags: Mapping[str, str]
) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(name=name, digest=digest, source_type="local", source="{}", profile=profile)
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag(key, value) for key, value in tags.items()])])


def _status(client: "MlflowClient", run_id: str, status: str, end_time: int) -> None:
    client.set_terminated(run_id, status, end_time)


_SENDERS: Mapping[str, Callable[..., None]] = {
    "metrics": _metrics,
    "params": _params,
    "tags": _tags,
    "text": _text,
    "file": _file,
    "model": _model,
    "dataset": _dataset,
    "status": _status,
}
