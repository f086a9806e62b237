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

from dpexp._validate import UserError, refuse
from dpexp.augmentation import Views
from dpexp.data import AnyExamples, Dataset, Examples, Rows, Splits
from dpexp.data.reading import ReadByWorkers, Store, Tensors, Wanted, contents
from dpexp.features import Features, FittedFeatures, NoFeatures, TakesTokens
from dpexp.ledger import Ledger
from dpexp.lots import DrawnLot, LotSource
from dpexp.noise import Noise
from dpexp.plan import PrivacyPlan
from dpexp.streams import Stream

__all__ = ["Lot", "LotDataModule", "Lots"]

# What depends on private rows is said here, and nowhere in strict mode.
_nonprivate_log = logging.getLogger("dpexp.nonprivate")
_LOTS_AT_ONCE, _ROWS_AT_ONCE = 32, 2**14  # 128 KB of row numbers
_EVALUATION_BATCH = 2000
_EVALUATION_VALUES = 2**24  # in a batch: 64 MB as float32


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
        store: Store,
        views: Callable[[Tensor, int], Tensor],
        first: int = 0,
    ) -> None:
        self._plan, self._source, self._store = plan, source, store
        self._views, self._first = views, first
        self.drawn = 0

    def __len__(self) -> int:
        return self._plan.steps - self._first

    def __iter__(self) -> Iterator[Lot]:
        for drawn, inputs, targets in self._store.read(self._wanted()):
            self.drawn += 1
            members = {name: torch.from_numpy(member) for name, member in drawn.members.items()}
            yield Lot(drawn.index, self._views(inputs, drawn.index), targets, members)

    def _wanted(self) -> Iterator[Wanted[DrawnLot]]:
        """A few lots are drawn at a time: one alone, after a step of torch, takes five times as long."""
        waiting: list[Wanted[DrawnLot]] = []
        for index in range(self._first, self._plan.steps):
            waiting.append(self._draw(index))
            if len(waiting) == _LOTS_AT_ONCE or sum(len(lot.rows) for lot in waiting) >= _ROWS_AT_ONCE:
                yield from waiting
                waiting.clear()
        yield from waiting

    def _draw(self, index: int) -> Wanted[DrawnLot]:
        drawn = self._source.draw(index, self._plan.lot_steps(index))
        return Wanted(index, drawn, drawn.rows)


class _Batches:
    """Consecutive rows of an evaluation split."""

    def __init__(self, store: Store, dimensions: int) -> None:
        self._store = store
        self._rows = max(1, min(_EVALUATION_BATCH, _EVALUATION_VALUES // dimensions))

    def __len__(self) -> int:
        return -(-len(self._store) // self._rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _, inputs, targets in self._store.read(self._wanted()):
            yield inputs, targets

    def _wanted(self) -> Iterator[Wanted[None]]:
        for number in range(len(self)):
            first = number * self._rows
            yield Wanted(number, None, range(first, min(first + self._rows, len(self._store))))


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
        self._stores: dict[str, Store] = {}
        self._lots: Lots | None = None

    def prepare_data(self) -> None:
        """Finds, verifies and reads the data; releases nothing."""
        if self._splits is not None or self._stores:
            return
        self._splits = self._data.load()
        rows = len(self._splits.train)
        self._plan.check_rows(rows)
        self._check_features(self._splits.train)
        if rows != self._data.num_examples:
            _nonprivate_log.warning(
                "nonprivate: %s has %d training rows, declared are data.num_examples = %d. The data are used "
                "as they are; q, L and T come from the declared number.",
                self._data.name,
                rows,
                self._data.num_examples,
            )

    def setup(self, stage: str) -> None:
        """Fits the features once (charged) and makes the splits readable."""
        if self._stores:
            return
        self.prepare_data()
        assert self._splits is not None
        # A row too large for float32 becomes one that is not finite, and counts for nothing: a warning would
        # tell that it is there.
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = self._fit(self._splits.train) if self._fitted is None else self._fitted
            self._stores = self._made(self._splits, fitted)
        self._splits = None  # the pixels are not needed any more
        self.fitted = fitted
        self._lots = Lots(
            self._plan,
            LotSource(self._plan.sampling, self._stream, len(self._stores["train"])),
            self._stores["train"],
            self._views,
            first=self._ledger.steps,
        )

    def _check_features(self, train: AnyExamples) -> None:
        """Refuses features that cannot be had of these examples, before anything is charged for them."""
        if isinstance(self._features, NoFeatures):
            return
        self._check_tokens()
        if isinstance(train, Rows):
            raise UserError(
                "features: found a data set that is read lot by lot, expected rows in memory, as features "
                "are computed once, beforehand.\nSet data.in_memory to true, or use features=none."
            )

    def _check_tokens(self) -> None:
        found, features = self._data.vocabulary, self._features
        if isinstance(features, TakesTokens):
            if found != features.vocabulary:
                expected = f"{features.vocabulary} token ids, which these features take"
                raise refuse("features: data.vocabulary", found, expected, "Use data=imdb_wordpieces.")
        elif found is not None:
            hint = "Features are computed from values, and token ids are names: use features=none."
            raise UserError(f"features: found inputs that are token ids, expected values.\n{hint}")

    def _fit(self, train: AnyExamples) -> FittedFeatures:
        for release in self._features.releases:
            self._ledger.charge(release)  # before the noise of `fit` is drawn
        # Where rows are read lot by lot there are no features, and nothing is fitted.
        inputs = train.inputs if isinstance(train, Examples) else train.read(())[0]
        return self._features.fit(inputs, self._noise)

    def _made(self, splits: Splits, fitted: FittedFeatures) -> dict[str, Store]:
        stores = {name: self._store(getattr(splits, name), name, fitted) for name in ("train", "test")}
        shared = splits.validation is splits.test
        return stores | {
            "validation": stores["test"] if shared else self._store(splits.validation, "validation", fitted)
        }

    def _store(self, examples: AnyExamples, split: str, fitted: FittedFeatures) -> Store:
        if isinstance(examples, Examples):
            return Tensors(examples, fitted.transform)
        draws = self._stream.child(f"reading {split}")
        return ReadByWorkers(examples, lambda position: int(draws.generator(position).integers(2**63)))

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
        return self._batches("validation")

    def test_dataloader(self) -> _Batches:
        """The test split."""
        return self._batches("test")

    def digest(self, key: bytes) -> str:
        """A digest of the training rows under a local secret; a plain hash would confirm membership."""
        assert self._splits is not None
        digest = hashlib.blake2b(key=key, digest_size=16)
        for part in contents(self._splits.train):
            digest.update(part)
        return digest.hexdigest()

    def _batches(self, split: str) -> _Batches:
        return _Batches(self._stores[split], self._data.dimensions)


def _as_they_are(inputs: Tensor, lot: int) -> Tensor:
    return inputs
