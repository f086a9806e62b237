"""`LotDataModule`: one Lightning batch is one lot; features are fitted, and charged, in `setup`."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from dpexp.augmentation import Views
from dpexp.data import Dataset, Examples, Splits
from dpexp.features import Features, FittedFeatures
from dpexp.ledger import Ledger
from dpexp.lots import LotSource
from dpexp.noise import Noise
from dpexp.plan import PrivacyPlan
from dpexp.streams import Stream

__all__ = ["Lot", "LotDataModule", "Lots"]

# What depends on private rows is said here, and nowhere in strict mode.
_nonprivate_log = logging.getLogger("dpexp.nonprivate")
_EVALUATION_BATCH = 2000


@final
@dataclass(frozen=True)
class Lot:
    """The examples of one optimizer step; there may be none.

    Attributes:
        index: t, the step the lot was drawn for.
        inputs: Shape (n, …), or (n, K, …) for K views of each example.
        targets: Shape (n,).
        members: For each of the step's lots by name, which examples are in it, shape (n,) bool; empty
            where there is one lot.
    """

    index: int
    inputs: Tensor
    targets: Tensor
    members: Mapping[str, Tensor]

    def to(self, device: torch.device) -> "Lot":
        """The lot on another device (Lightning calls this)."""
        members = {name: member.to(device) for name, member in self.members.items()}
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device), members=members)


class Lots:
    """The plan's lots in order from `first` on, as a sized iterable that Lightning takes for a loader."""

    def __init__(
        self,
        plan: PrivacyPlan,
        source: LotSource,
        inputs: Tensor,
        targets: Tensor,
        views: Callable[[Tensor, int], Tensor],
        first: int = 0,
    ) -> None:
        self._plan, self._source, self._inputs, self._targets = plan, source, inputs, targets
        self._views, self._first = views, first
        self.drawn = 0

    def __len__(self) -> int:
        return self._plan.steps - self._first

    def __iter__(self) -> Iterator[Lot]:
        for index in range(self._first, self._plan.steps):
            drawn = self._source.draw(index, self._plan.step(index).lots)
            self.drawn += 1
            rows = torch.from_numpy(drawn.rows)
            members = {name: torch.from_numpy(member) for name, member in drawn.members.items()}
            yield Lot(index, self._views(self._inputs[rows], index), self._targets[rows], members)


class _Batches:
    """Consecutive slices of an evaluation split."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets = inputs, targets

    def __len__(self) -> int:
        return -(-len(self._targets) // _EVALUATION_BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self._targets), _EVALUATION_BATCH):
            rows = slice(start, start + _EVALUATION_BATCH)
            yield self._inputs[rows], self._targets[rows]


class LotDataModule(pl.LightningDataModule):
    """Loads a data set, fits the features on the training rows, and draws the plan's lots.

    Args:
        plan: What is drawn.
        data: The data set.
        features: Fixed features; their releases are charged to the ledger before they are fitted.
        ledger: The run's ledger.
        lots: The secret stream that lots are drawn from.
        noise: What the features' releases are noised with.
        views: Augmented views of the examples of a lot; None for the examples themselves.
        fitted: The features of a run that goes on, charged before; None to charge and fit them.
    """

    def __init__(
        self,
        *,
        plan: PrivacyPlan,
        data: Dataset,
        features: Features,
        ledger: Ledger,
        lots: Stream,
        noise: Noise,
        views: Views | None = None,
        fitted: FittedFeatures | None = None,
    ) -> None:
        super().__init__()
        self._plan, self._data, self._features = plan, data, features
        self._ledger, self._stream, self._noise = ledger, lots, noise
        self._views = _as_they_are if views is None else partial(views.of, stream=lots.child("views"))
        self._fitted = fitted
        self._splits: Splits | None = None
        self._tensors: dict[str, tuple[Tensor, Tensor]] = {}
        self._lots: Lots | None = None

    def prepare_data(self) -> None:
        """Finds, verifies and reads the data; releases nothing."""
        if self._splits is not None or self._tensors:
            return
        self._splits = self._data.load()
        rows = len(self._splits.train)
        self._plan.check_rows(rows)
        if rows != self._data.num_examples:
            _nonprivate_log.warning(
                "nonprivate: %s has %d training rows, declared are data.num_examples = %d. The data are used "
                "as they are; q, L and T come from the declared number.",
                self._data.name,
                rows,
                self._data.num_examples,
            )

    def setup(self, stage: str) -> None:
        """Fits the features once (charged) and turns the splits into tensors."""
        if self._tensors:
            return
        self.prepare_data()
        assert self._splits is not None
        fitted = self._fit(self._splits) if self._fitted is None else self._fitted
        self._tensors = {
            "train": _as_tensors(self._splits.train, fitted.transform(self._splits.train.inputs)),
            "test": _as_tensors(self._splits.test, fitted.transform(self._splits.test.inputs)),
        }
        if self._splits.validation_is_test:
            self._tensors["validation"] = self._tensors["test"]
        else:
            validation = self._splits.validation
            self._tensors["validation"] = _as_tensors(validation, fitted.transform(validation.inputs))
        self._splits = None  # the pixels are not needed any more
        self.fitted = fitted
        inputs, targets = self._tensors["train"]
        self._lots = Lots(
            self._plan,
            LotSource(self._plan.sampling, self._stream, len(targets)),
            inputs,
            targets,
            self._views,
            first=self._ledger.steps,
        )

    def _fit(self, splits: Splits) -> FittedFeatures:
        for release in self._features.releases:
            self._ledger.charge(release)  # before the noise of `fit` is drawn
        return self._features.fit(splits.train.inputs, self._noise)

    def train_dataloader(self) -> Lots:
        """The lots t = 0 … T-1, or those that are left of a run that goes on."""
        assert self._lots is not None
        return self._lots

    @property
    def lots_drawn(self) -> int:
        """How many lots have been drawn so far."""
        return 0 if self._lots is None else self._lots.drawn

    def val_dataloader(self) -> _Batches:
        """The validation split, which may be the test split."""
        return _Batches(*self._tensors["validation"])

    def test_dataloader(self) -> _Batches:
        """The test split."""
        return _Batches(*self._tensors["test"])

    def digest(self, key: bytes) -> str:
        """A digest of the training rows under a local secret; a plain hash would confirm membership."""
        assert self._splits is not None
        digest = hashlib.blake2b(key=key, digest_size=16)
        digest.update(np.ascontiguousarray(self._splits.train.inputs).data)
        digest.update(np.ascontiguousarray(self._splits.train.targets).data)
        return digest.hexdigest()


def _as_they_are(inputs: Tensor, lot: int) -> Tensor:
    return inputs


def _as_tensors(examples: Examples, inputs: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(examples.targets)
