"""The trained model as an MLflow model: it predicts on raw rows, and carries its guarantee."""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor

from dpexp import __version__
from dpexp.accounting import Kind
from dpexp.experiment import Experiment, Whole
from dpexp.features import FittedFeatures
from dpexp.inference import Predictor, predictor, synthetic_rows
from dpexp.ledger import Ledger
from dpexp.module import DPModule
from dpexp.tracking import Recording

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

__all__ = ["Claim", "claim_of", "log_model"]

_log = logging.getLogger(__name__)
_ROWS = 3  # of the input example
_NOT_SAVED = (
    "The model of run %s is not logged as an MLflow model: %s\n"
    "The run is complete without it; the weights are in its artifact model.pt."
)
_TOLERANCE = 1e-3  # relative: another device sums in another order


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is guaranteed of a model.

    Attributes:
        statement: In words.
        figures: Plain values: `private`, and where that is true `epsilon`, `delta`, `relation` and others.
    """

    statement: str
    figures: Mapping[str, Any]


def claim_of(ledger: Ledger, words: str, whole: Whole | None) -> Claim:
    """That of one run, from all that was ever charged, or of the whole that it is a part of."""
    plan = ledger.plan
    figures: dict[str, Any] = {"private": plan.guarantee is not None, "deterministic": plan.deterministic}
    if plan.guarantee is not None:
        figures |= {
            "epsilon": float(ledger.epsilon() if whole is None else whole.epsilon),
            "delta": plan.guarantee.budget.delta,
            "epsilon_kind": str(Kind.CERTIFIED),
            "accountant": plan.guarantee.accountant.name if whole is None else whole.epsilon.accountant,
            "relation": str(plan.guarantee.relation),
        }
    return Claim(statement=words, figures=figures)


def log_model(
    run: Recording, experiment: Experiment, module: DPModule, fitted: FittedFeatures, claim: Claim
) -> None:
    """Logs the released model as the run's MLflow model `model`.

    Where that fails, an error says so and the run goes on: what was trained has been paid for, and must not
    look as if it had not been.

    Args:
        run: The run.
        experiment: What the model was made by, and the shape of its raw rows.
        module: What was trained; the average of its weights, where there is one, is what is logged.
        fitted: The features that it was trained on: public, or charged.
        claim: What is guaranteed of it.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        try:
            _save(path, *_predictor(experiment, module, fitted), claim)
        except Exception as error:  # noqa: BLE001  (networks may refuse to be pickled in any way)
            _log.error(_NOT_SAVED, run.run_id, f"{type(error).__name__}: {error}")
        else:
            run.log_model(path, step=module.ledger.lots)


def _predictor(
    experiment: Experiment, module: DPModule, fitted: FittedFeatures
) -> tuple[Predictor, Tensor, Tensor]:
    """The predictor, synthetic rows, and its logits for them, which are those of what was evaluated."""
    data = experiment.data
    network = module.model if module.average is None else module.average.module
    made = predictor(
        experiment.model,
        network.state_dict(),
        fitted.as_layer(),
        shape=data.input_shape,
        takes_values=data.vocabulary is None,
        seed=experiment.seed,
    )
    if made.network is module.model:
        raise TypeError("model makes no new network when it is called, and the old one may hold private rows")
    rows = synthetic_rows(_ROWS, data.input_shape, data.vocabulary)
    with torch.no_grad():
        logits = copy.deepcopy(made)(rows)  # what is saved has seen no row at all
        features = torch.from_numpy(np.ascontiguousarray(fitted.transform(rows.numpy())))
        expected = module.eval()(features.to(module.device)).cpu()
    torch.testing.assert_close(
        logits, expected, rtol=_TOLERANCE, atol=_TOLERANCE * float(expected.abs().max()), equal_nan=True
    )
    return made, rows, logits


def _save(path: Path, model: Predictor, rows: Tensor, logits: Tensor, claim: Claim) -> None:
    with _without_known_warnings():
        import mlflow.pytorch

        mlflow.pytorch.save_model(
            model,
            path,
            serialization_format="pickle",  # traced graphs fix the number of rows, and layers that look at it
            signature=_signature(rows, logits),
            input_example=rows.numpy(),
            pip_requirements=_requirements(),
            metadata={"dpexp": {**claim.figures, "statement": claim.statement}},
        )
    (path / "privacy_statement.txt").write_text(claim.statement, encoding="utf-8")


def _signature(rows: Tensor, logits: Tensor) -> "ModelSignature":
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    inputs, outputs = (
        Schema([TensorSpec(tensor.numpy().dtype, (-1, *tensor.shape[1:]))]) for tensor in (rows, logits)
    )
    return ModelSignature(inputs=inputs, outputs=outputs)


def _requirements() -> list[str]:
    """Given, since MLflow would run the model in another process to find them."""
    return [
        f"dpexp=={__version__}",
        f"torch=={torch.__version__.partition('+')[0]}",
        f"numpy=={np.__version__}",
    ]


@contextmanager
def _without_known_warnings() -> Iterator[None]:
    """Hides MLflow's advice on pickles, which docs/security.md gives, and a warning about its own code."""
    logger = logging.getLogger("mlflow.pytorch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
            yield
    finally:
        logger.setLevel(before)
