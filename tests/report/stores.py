"""Runs as dpexp records them, written straight into a store or made in memory: nothing is trained."""

from dataclasses import dataclass, field

from dpexp.report.stored import StoredRun
from dpexp.tracking import MLflowTracking, connect

PARAMS = {
    "data.name": "digits",
    "data.num_examples": "1438",
    "data.test_split": "public",
    "privacy._target_": "dpexp.privacy.DPSGD",
    "privacy.noise_multiplier": "2",
    "privacy.delta": "1e-05",
    "privacy.relation": "add_or_remove_one",
    "privacy.deterministic": "False",
    "sampling._target_": "dpexp.lots.PoissonSampling",
    "seed": "0",
    "tracking.outputs": "outputs",
}
TAGS = {
    "dpexp.kind": "train",
    "dpexp.private": "true",
    "dpexp.experiment": "smoke",
    "dpexp.accountant": "rdp",
    "dpexp.epsilon_kind": "certified",
    "dpexp.budget": "run",
}
METRICS = {"final/epsilon": 0.7057, "final/delta": 1e-5, "final/accuracy": 0.8, "final/steps": 40.0}
PLAIN = {"dpexp.private": "false", "dpexp.accountant": None, "dpexp.epsilon_kind": None, "dpexp.budget": None}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One run; None in a mapping takes the key away."""

    name: str = "run"
    status: str = "FINISHED"
    seed: int = 0
    params: dict = field(default_factory=dict)
    tags: dict = field(default_factory=dict)
    metrics: dict = field(default_factory=dict)
    series: dict = field(default_factory=dict)  # metric → values at lots 1, 2, …
    artifacts: dict = field(default_factory=dict)  # name → text

    @property
    def all_params(self):
        return _kept({**PARAMS, "seed": str(self.seed), **self.params})

    @property
    def all_tags(self):
        return _kept({**TAGS, "dpexp.seed": str(self.seed), "mlflow.runName": self.name, **self.tags})

    @property
    def all_metrics(self):
        return _kept({**METRICS, **self.metrics})


def plain(**changes):
    """A run without privacy."""
    params = {"privacy._target_": "dpexp.privacy.NoPrivacy", "privacy.noise_multiplier": "None"}
    return Recorded(
        **{
            "params": {**params, "privacy.delta": "None", "privacy.relation": "None"},
            "tags": PLAIN,
            "metrics": {"final/epsilon": None, "final/delta": None},
            **changes,
        }
    )


def _kept(values):
    return {key: value for key, value in values.items() if value is not None}


def in_memory(recorded, number=0):
    """The run as a report reads it."""
    return StoredRun(
        run_id=f"{number:032x}",
        name=recorded.name,
        status=recorded.status,
        started=1_700_000_000_000 + number,
        seconds=1.0,
        params=recorded.all_params,
        tags=recorded.all_tags,
        metrics=recorded.all_metrics,
    )


def tracking(folder, **changes):
    return MLflowTracking(**({"uri": None, "experiment": None, "outputs": str(folder), "every": 1} | changes))


def write(folder, runs, experiment="smoke"):
    """Writes runs into the store of an outputs folder; returns their ids."""
    client = connect(f"sqlite:///{folder / 'mlflow.db'}", folder)
    found = client.get_experiment_by_name(experiment)
    location = (folder / "artifacts" / experiment.replace("/", "_")).as_uri()
    if found is None:
        experiment_id = client.create_experiment(experiment, artifact_location=location)
    else:
        experiment_id = found.experiment_id
    return [_write(client, experiment_id, run) for run in runs]


def _write(client, experiment_id, recorded):
    from mlflow.entities import Metric, Param, RunTag

    run_id = client.create_run(experiment_id, run_name=recorded.name).info.run_id
    metrics = [Metric(key, value, 0, 40) for key, value in recorded.all_metrics.items()]
    for key, values in recorded.series.items():
        metrics += [Metric(key, value, 0, lots) for lots, value in enumerate(values, start=1)]
    params = [Param(key, value) for key, value in recorded.all_params.items()]
    tags = [RunTag(key, value) for key, value in recorded.all_tags.items()]
    client.log_batch(run_id, metrics[:1000], params, tags)
    for start in range(1000, len(metrics), 1000):
        client.log_batch(run_id, metrics[start : start + 1000])
    for name, text in recorded.artifacts.items():
        client.log_text(run_id, text, name)
    if recorded.status != "RUNNING":
        client.set_terminated(run_id, recorded.status)
    return run_id
