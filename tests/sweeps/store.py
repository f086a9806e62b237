"""What sweeps left in a store."""

import csv
from pathlib import Path

from mlflow import MlflowClient

SWEEP = ["-m", "+experiment=smoke", "trainer=cpu", "privacy.steps=2", "trainer.val_check_interval=2"]


class Store:
    def __init__(self, outputs):
        self.client = MlflowClient(tracking_uri=f"sqlite:///{outputs / 'mlflow.db'}")

    def runs(self, filter_string=""):
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        return self.client.search_runs(experiments, filter_string, order_by=["attributes.start_time ASC"])

    @property
    def parents(self):
        return self.runs("tags.`dpexp.kind` = 'sweep'")

    def children(self, parent):
        found = self.runs(f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
        return sorted(found, key=lambda run: int(run.data.tags["dpexp.job"]))

    def table(self, parent):
        """The runs one by one, as the parent's artifact has them."""
        path = self.client.download_artifacts(parent.info.run_id, "sweep_runs.csv")
        return list(csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()))


def statuses(runs):
    return [run.info.status for run in runs]
