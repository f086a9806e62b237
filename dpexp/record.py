"""What a run leaves in MLflow besides its trajectory: params, plan, statement, data set, model, finals."""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml

from dpexp import __version__
from dpexp.accounting import Kind, PrivacyBound
from dpexp.artifact import claim_of, log_model
from dpexp.datamodule import LotDataModule
from dpexp.experiment import Experiment, Result
from dpexp.ledger import Ledger, Terms
from dpexp.module import DPModule, Evaluation
from dpexp.plan import PrivacyPlan
from dpexp.planning import plan_as_json, shares_as_json, shares_of
from dpexp.statement import statement
from dpexp.tracking import Recording, flatten, shown_uri
from dpexp.tracking.tags import KIND_TAG, PLAN_TAG

__all__ = ["record_end", "record_start", "split_prefix"]


def record_start(
    run: Recording,
    experiment: Experiment,
    plan: PrivacyPlan,
    datamodule: LotDataModule,
    terms: Terms,
) -> None:
    """Params, tags, configuration, plan and data set, before anything is released."""
    run.log_params(flatten(experiment.config) | _solved(plan))
    run.set_tags(_tags(experiment, plan))
    run.log_text(yaml.safe_dump(dict(experiment.config), sort_keys=False, allow_unicode=True), "config.yaml")
    run.log_text(json.dumps(_planned(experiment, plan), indent=2, ensure_ascii=False), "plan.json")
    run.log_dataset(
        name=experiment.data.name,
        digest=datamodule.digest(experiment.tracking.dataset_key()),
        num_examples=plan.num_examples,
        relation="none" if plan.guarantee is None else str(plan.guarantee.relation),
    )
    run.save_view(accuracy=_accuracy_at_end(experiment))
    run.set_tags({PLAN_TAG: terms.hash.hex()})  # last: from here on the run can be resumed


def record_end(
    run: Recording,
    experiment: Experiment,
    module: DPModule,
    datamodule: LotDataModule,
    at_end: Sequence[PrivacyBound],
) -> Result:
    """Final metrics, the statement and the model; returns the result."""
    plan, evaluation, ledger = module.plan, module.evaluation, module.ledger
    lots = ledger.lots
    public = experiment.data.test_privacy == "public"
    run.record(lots, {"final/steps": ledger.steps, "final/charged_lots": lots})
    run.record(lots, {"final/forfeited_lots": ledger.forfeited_lots})
    if evaluation is not None:
        run.record(lots, _of_the_test_split(evaluation, split_prefix(experiment.data.test_privacy)))
    epsilon = None if plan.guarantee is None else float(_claimed(experiment, ledger))
    delta = None if plan.guarantee is None else plan.guarantee.budget.delta
    if epsilon is not None and delta is not None:
        run.record(lots, {"final/epsilon": epsilon, "final/delta": delta} | _other_figures(module, at_end))
    words = statement(experiment, plan, ledger)
    run.log_text(words, "privacy_statement.txt")
    _log_weights(run, module, datamodule)
    log_model(run, experiment, module, datamodule.fitted, claim_of(ledger, words, experiment.whole))
    return Result(
        accuracy=evaluation.accuracy if public and evaluation is not None else None,
        epsilon=epsilon,
        delta=delta,
        steps=ledger.steps,
        forfeited_lots=ledger.forfeited_lots,
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        tracking_uri=shown_uri(experiment.tracking.resolved_uri),
        deterministic=plan.deterministic,
        statement=words,
    )


def _planned(experiment: Experiment, plan: PrivacyPlan) -> dict[str, Any]:
    """The plan; with ε by part only where the run's own ε is what is claimed."""
    shares = {} if experiment.whole is not None else {"shares": shares_as_json(shares_of(plan))}
    return {**plan_as_json(plan), **shares}


def _accuracy_at_end(experiment: Experiment) -> str | None:
    """The metric that the run will have; None where the test split is not evaluated."""
    prefix = split_prefix(experiment.data.test_privacy)
    return f"{prefix}final/accuracy" if experiment.evaluates("test") else None


def _claimed(experiment: Experiment, ledger: Ledger) -> PrivacyBound:
    """The run's own ε, or that of what it is a part of."""
    return ledger.epsilon() if experiment.whole is None else experiment.whole.epsilon


def _of_the_test_split(found: Evaluation, prefix: str) -> dict[str, float]:
    return {
        f"{prefix}test/accuracy": found.accuracy,
        f"{prefix}test/loss": found.loss,
        f"{prefix}final/accuracy": found.accuracy,
    }


def _other_figures(module: DPModule, at_end: Sequence[PrivacyBound]) -> dict[str, float]:
    """ε at the end by the accountants that have no trajectory, each under its kind."""
    recorded = {companion.accountant.name for companion in module.ledger.companions}
    others = [bound for bound in at_end[1:] if bound.accountant not in recorded]
    return {f"{_section(bound)}/epsilon_{bound.accountant}": float(bound) for bound in others}


def _section(bound: PrivacyBound) -> str:
    return "privacy" if bound.kind is Kind.CERTIFIED else str(bound.kind)


def split_prefix(privacy: str) -> str:
    """`nonprivate/` for metrics of a split that is not declared public."""
    return "" if privacy == "public" else "nonprivate/"


def _on_cpu(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.cpu() for name, tensor in model.state_dict().items()}


def _solved(plan: PrivacyPlan) -> dict[str, Any]:
    sigmas = {group.noise_multiplier.in_words for group in plan.groups}
    solved = {
        "plan.steps": plan.steps,
        "plan.sampling_probability": ", ".join(f"{lot.sampling_probability!r}" for lot in plan.step(0).lots),
    }
    return solved if plan.guarantee is None else solved | {"plan.noise_multiplier": ", ".join(sorted(sigmas))}


def _tags(experiment: Experiment, plan: PrivacyPlan) -> dict[str, str]:
    tags = {
        KIND_TAG: "train",
        "dpexp.private": str(plan.guarantee is not None).lower(),
        "dpexp.experiment": experiment.name,
        "dpexp.seed": str(experiment.seed),
        "mlflow.source.name": "dpexp",
        "dpexp.version": __version__,
        "dpexp.python": platform.python_version(),
        "dpexp.torch": torch.__version__,
        "dpexp.numpy": np.__version__,
    }
    if plan.guarantee is not None:
        tags["dpexp.epsilon_kind"] = str(Kind.CERTIFIED)
        tags["dpexp.accountant"] = plan.guarantee.accountant.name
        tags["dpexp.budget"] = plan.guarantee.terms.name
    if experiment.data.budget_id is not None:
        tags["dpexp.budget_id"] = experiment.data.budget_id
    if experiment.strict:
        tags["dpexp.strict"] = "true"
    if plan.deterministic:
        tags["dpexp.deterministic"] = "true"
    return tags


def _log_weights(run: Recording, module: DPModule, datamodule: LotDataModule) -> None:
    weights = _on_cpu(module.model)
    average = None if module.average is None else _on_cpu(module.average.module)
    fitted = {name: torch.from_numpy(array) for name, array in datamodule.fitted.state.items()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        torch.save({"model": weights, "average": average, "features": fitted}, path)
        run.log_artifact(path)
