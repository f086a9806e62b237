import logging
import math

import numpy as np
import pytest
import torch

from dpexp.accounting import Gaussian, Release
from dpexp.data import Dataset, Examples, Splits
from dpexp.datamodule import LotDataModule
from dpexp.features import (
    DPPCA,
    GroupNormalization,
    NoFeatures,
    PrivateCentering,
    PrivateWhitening,
    RandomProjection,
)
from dpexp.ledger import BudgetSpentError, Ledger
from dpexp.lots import LotSource
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.schedules import Linear
from dpexp.streams import Stream
from tests.plans import plain_plan, private_plan

KEY = Stream.keyed_by(2)
RELEASE = Release("dp_pca", Gaussian(noise_multiplier=7, replace_one_factor=math.sqrt(2)))


class Small(Dataset):
    """200 rows of 6 values; the target is the row number, so that every row can be recognized."""

    def load(self):
        rng = np.random.default_rng(0)

        def examples(rows, first):
            inputs = rng.random((rows, 6), dtype=np.float32)
            return Examples(inputs=inputs, targets=np.arange(first, first + rows))

        test = examples(20, 1000)
        return Splits(train=examples(200, 0), validation=test, test=test, validation_is_test=True)


def datamodule(*, declared=200, features=None, plan=None, ledger=None, noise=None, kind=Small):
    data = kind(
        name="small",
        num_examples=declared,
        num_classes=10,
        dimensions=6,
        validation_split="private",
        test_split="public",
    )
    plan = plan or private_plan(num_examples=declared, lot_size=10, steps=30, epsilon=None)
    return LotDataModule(
        plan=plan,
        data=data,
        features=features or NoFeatures(inputs=6, dimensions=6),
        ledger=ledger or Ledger(plan),
        lots=KEY.child("lots"),
        noise=noise or GaussianNoise(KEY.child("features")),
    )


class Huge(Small):
    """One training row is finite, and too large to calculate with."""

    def load(self):
        splits = super().load()
        splits.train.inputs[7] = [3e38, -3e38, 3e38, 3e38, -3e38, 3e38]
        return splits


def ready(**changes):
    module = datamodule(**changes)
    module.setup("fit")
    return module


def pca(noise_multiplier=7):
    return DPPCA(inputs=6, components=2, dimensions=2, noise_multiplier=noise_multiplier)


def test_lots_hold_training_rows_only_with_their_own_targets():
    module = ready()
    inputs = Small.load(module._data).train.inputs
    loader = module.train_dataloader()
    assert len(loader) == 30
    for lot in loader:
        assert set(lot.targets.tolist()) <= set(range(200))
        torch.testing.assert_close(lot.inputs, torch.from_numpy(inputs[lot.targets.numpy()]))
    assert module.lots_drawn == 30


def test_empty_lots_come_through_with_their_shapes():
    plan = private_plan(num_examples=200, lot_size=0.01, steps=5, epsilon=None)
    lots = list(ready(plan=plan).train_dataloader())
    assert [lot.index for lot in lots] == list(range(5))
    assert lots[0].inputs.shape == (0, 6)


@pytest.mark.parametrize("at_once", [(1, 10**6), (7, 10**6), (32, 1), (32, 90)])
@pytest.mark.parametrize("first", [0, 8])
def test_lots_are_those_of_the_plan_however_many_are_drawn_at_once(monkeypatch, at_once, first):
    plan = private_plan(num_examples=200, lot_size=Linear(start=10, end=60, over=20), steps=30, epsilon=None)
    ledger = Ledger(plan)
    for t in range(first):
        ledger.reserve(plan.step(t))
    monkeypatch.setattr("dpexp.datamodule._LOTS_AT_ONCE", at_once[0])
    monkeypatch.setattr("dpexp.datamodule._ROWS_AT_ONCE", at_once[1])
    module = ready(plan=plan, ledger=ledger)
    lots = list(module.train_dataloader())
    source = LotSource(plan.sampling, KEY.child("lots"), 200)
    assert [lot.index for lot in lots] == list(range(first, 30))
    for lot in lots:  # a target is its row's number
        expected = source.draw(lot.index, plan.step(lot.index).lots).rows
        np.testing.assert_array_equal(lot.targets, expected)


@pytest.mark.parametrize(("lot_size", "rows", "at_most"), [(0.01, 2**14, 32), (10, 2**14, 32), (150, 300, 3)])
def test_no_more_lots_are_in_hand_than_a_few(monkeypatch, lot_size, rows, at_most):
    monkeypatch.setattr("dpexp.datamodule._ROWS_AT_ONCE", rows)
    drawn, draw = [], LotSource.draw
    monkeypatch.setattr(LotSource, "draw", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    plan = private_plan(num_examples=200, lot_size=lot_size, steps=1000, epsilon=None)
    next(iter(ready(plan=plan).train_dataloader()))
    assert len(drawn) <= at_most
    assert sum(len(lot.rows) for lot in drawn[:-1]) < rows


def test_q_comes_from_the_declared_number_and_a_difference_is_only_warned_of(caplog):
    plan = private_plan(num_examples=100, lot_size=10, steps=400, epsilon=None)
    with caplog.at_level(logging.WARNING, "dpexp.datamodule"):
        module = ready(declared=100, plan=plan)
    assert "nonprivate: small has 200 training rows, declared are data.num_examples = 100" in caplog.text
    sizes = [len(lot.targets) for lot in module.train_dataloader()]
    assert np.mean(sizes) == pytest.approx(20, abs=4 * math.sqrt(18 / 400))  # q = 10/100 on 200 rows


def test_features_are_charged_once_however_often_lightning_sets_up():
    plan = private_plan(num_examples=200, lot_size=10, steps=30, epsilon=None, releases=(RELEASE,))
    ledger = Ledger(plan)
    module = datamodule(features=pca(), plan=plan, ledger=ledger)
    assert ledger.releases == []
    for stage in ("fit", "validate", "test"):
        module.setup(stage)
    assert ledger.releases == ["dp_pca"]
    assert float(ledger.epsilon()) == pytest.approx(0.6966, abs=1e-3)


def test_features_are_charged_before_their_noise_is_drawn():
    class Watching:
        spacing = 0.0

        def standard_normal(self, position, size):
            assert ledger.releases == ["dp_pca"]
            return np.zeros(size)

    plan = private_plan(num_examples=200, lot_size=10, steps=30, epsilon=None, releases=(RELEASE,))
    ledger = Ledger(plan)
    ready(features=pca(), plan=plan, ledger=ledger, noise=Watching())
    assert ledger.releases == ["dp_pca"]


def test_features_that_the_budget_does_not_pay_for_are_not_fitted():
    class Forbidden:
        spacing = 0.0

        def standard_normal(self, position, size):
            raise AssertionError("noise was drawn")

    plan = private_plan(num_examples=200, lot_size=0.1, noise_multiplier=50, epsilon=0.6, accountant=None)
    module = datamodule(features=pca(0.5), plan=plan, ledger=Ledger(plan), noise=Forbidden())
    with pytest.raises(BudgetSpentError, match="dp_pca"):
        module.setup("fit")


def test_all_splits_are_projected_alike():
    module = ready(features=pca())
    fitted = module.fitted
    test = Small.load(module._data).test.inputs
    [(inputs, _)] = list(module.test_dataloader())
    assert inputs.shape == (20, 2)
    np.testing.assert_allclose(inputs.numpy(), fitted.transform(test), rtol=1e-6)


def test_without_privacy_the_pca_is_exact():
    plan = plain_plan(num_examples=200, lot_size=10)
    one = ready(features=pca(), plan=plan, noise=NoNoise())
    two = ready(features=pca(0.001), plan=plan, noise=NoNoise())
    np.testing.assert_array_equal(one.fitted.directions, two.fitted.directions)
    assert one._ledger.account is None


def test_digests_need_the_secret_and_change_with_the_data():
    module = datamodule()
    module.prepare_data()
    assert module.digest(b"a") == module.digest(b"a")
    assert module.digest(b"a") != module.digest(b"b")
    assert len(module.digest(b"a")) <= 36  # what MLflow stores


@pytest.mark.parametrize(
    "features",
    [
        pca(),
        PrivateWhitening(inputs=6, dimensions=6, noise_multiplier=0.1),
        PrivateCentering(inputs=6, dimensions=6, noise_multiplier=4.0, bound=3.0, num_examples=200),
        RandomProjection(inputs=6, components=3, dimensions=3, key=0),
        GroupNormalization(inputs=6, dimensions=6, channels=3, groups=1),
    ],
    ids=lambda features: type(features).__name__,
)
def test_no_warning_tells_of_a_row_that_is_too_large(features):
    module = ready(features=features, kind=Huge)  # a warning would be an error
    finite = torch.stack([lot.inputs.isfinite().all(dim=1).sum() for lot in module.train_dataloader()])
    assert finite.sum() > 0
