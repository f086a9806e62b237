"""What others get to see of a selection: one MLflow run with the best model, or with none."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dpexp import __version__
from dpexp.accounting import Kind
from dpexp.experiment import Experiment
from dpexp.selection.candidate import Candidate
from dpexp.selection.selection import Selection
from dpexp.selection.trial import Kept
from dpexp.selection.words import statement
from dpexp.strict import CoveredRun
from dpexp.tracking import Run, flatten
from dpexp.tracking.tags import COMMAND_TAG, KIND_TAG, PLAN_TAG, SWEEP_TAG

__all__ = ["release_best", "release_nothing", "tags_of"]

_OF_SINGLE_RUNS = (PLAN_TAG, "dpexp.ledger_head")  # by which runs are found that can go on
_FINAL = ("final/accuracy", "final/steps", "final/charged_lots")
_OF_SPLITS = {"validation": ("val/accuracy", "val/loss"), "test": ("test/accuracy", "test/loss")}


def release_best(run: Run, selection: Selection, winner: Candidate, kept: Kept) -> None:
    """Model, point, statement, and figures on public splits; nothing of its training."""
    covered = CoveredRun(run, flatten(winner.experiment.config))
    covered.log_params(kept.params)
    tags = {key: value for key, value in kept.tags.items() if key not in _OF_SINGLE_RUNS}
    covered.set_tags({**tags, **tags_of(selection), SWEEP_TAG: run.run_id, "dpexp.released": "true"})
    for name, text in kept.texts.items():
        covered.log_text(text, name)
    for path in map(Path, kept.files):
        _date_now(path)
        covered.log_artifact(path)
    if kept.model is not None:
        _date_now(Path(kept.model))
        covered.log_model(Path(kept.model), step=winner.plan.steps)
    _declare(covered, selection)
    shown = {name: kept.metrics[name] for name in _shown(winner.experiment) if name in kept.metrics}
    covered.record(winner.plan.steps, {**shown, **_price(selection)})


def release_nothing(run: Run, selection: Selection) -> None:
    """The same without a model: no trial came to a score, or there was none."""
    common = _common(selection)
    covered = CoveredRun(run, common)
    covered.log_params(common)
    covered.set_tags({SWEEP_TAG: run.run_id, "dpexp.released": "false"})
    covered.log_text(statement(selection, None), "privacy_statement.txt")
    _declare(covered, selection)
    covered.record(0, _price(selection))


def _date_now(path: Path) -> None:
    """Dates a file, or all of a model's folder, to its release: when it was made is for nobody to know."""
    description = path / "MLmodel"
    if description.is_file():
        content = yaml.safe_load(description.read_text(encoding="utf-8"))
        content["utc_time_created"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        description.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for part in (path, *path.rglob("*")):
        os.utime(part)  # copies keep the time


def _declare(run: CoveredRun, selection: Selection) -> None:
    """What was declared before anything was drawn."""
    law, cost = selection.law, selection.cost
    declared = {
        "space": {key: list(values) for key, values in selection.space.choices.items()},
        "points": len(selection.candidates),
        "trials": law.in_words,
        "score": selection.score.metric,
        "epsilon": float(cost.whole),
        "epsilon_of_one_trial": float(cost.trial),
        "delta": selection.delta,
        "relation": str(selection.relation),
        "accountant": cost.whole.accountant,
        "theorem": f"Papernot and Steinke (2022), arXiv 2110.03620, {law.theorem}",
    }
    run.log_text(json.dumps(declared, indent=2, ensure_ascii=False), "selection.json")


def _price(selection: Selection) -> dict[str, float]:
    epsilon, delta = float(selection.cost.whole), selection.delta
    finals = {"final/epsilon": epsilon, "final/delta": delta}
    return {"sweep/epsilon_best": epsilon, "sweep/delta": delta, **finals}


def _shown(experiment: Experiment) -> tuple[str, ...]:
    data = experiment.data
    declared = {"validation": data.validation_privacy, "test": data.test_privacy}
    public = [split for split in _OF_SPLITS if declared[split] == "public"]
    return (*_FINAL, *(name for split in public for name in _OF_SPLITS[split]))


def tags_of(selection: Selection) -> dict[str, str]:
    """The tags of its run, from the first moment."""
    return {
        KIND_TAG: "sweep",
        "dpexp.selection": "true",
        COMMAND_TAG: selection.command,
        "dpexp.experiment": selection.name,
        "dpexp.private": "true",
        "dpexp.epsilon_kind": str(Kind.CERTIFIED),
        "dpexp.accountant": selection.cost.whole.accountant,
        "dpexp.version": __version__,
        "mlflow.source.name": "dpexp",
    }


def _common(selection: Selection) -> Mapping[str, Any]:
    """The keys of the configuration that all points share."""
    first, *others = (flatten(candidate.experiment.config) for candidate in selection.candidates)
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}
