"""Names of the tags by which runs are found again."""

__all__ = ["COMMAND_TAG", "JOB_TAG", "KIND_TAG", "OVERRIDES_TAG", "PARENT_TAG", "PLAN_TAG", "SWEEP_TAG"]

KIND_TAG = "dpexp.kind"  # train or sweep
PLAN_TAG = "dpexp.plan_hash"  # of the terms; set when a run begins, so that runs without it released nothing
COMMAND_TAG = "dpexp.command"  # what makes the same run from a shell
OVERRIDES_TAG = "dpexp.overrides"  # the same as a JSON list
SWEEP_TAG = "dpexp.sweep"  # the parent's run id
JOB_TAG = "dpexp.job"  # number in the sweep
PARENT_TAG = "mlflow.parentRunId"  # MLflow's own: its pages fold the children below it
