"""What sweeps left in a store."""

from mlflow import MlflowClient


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


def statuses(runs):
    return [run.info.status for run in runs]
