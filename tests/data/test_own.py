"""Data sets in code: what is taken from them, how lots are read, and what is refused."""

import multiprocessing
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from dpexp._validate import UserError
from dpexp.data import Examples, LightningData, Rows, TorchDataset
from dpexp.data.reading import ReadByWorkers, Wanted, contents


class Numbered:
    """A map-style data set without torch: row r is filled with r; its class is r % 2."""

    def __init__(self, rows=10, shape=(2, 3), bad=None):
        self.rows, self.shape, self.bad = rows, shape, bad or {}

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        if row in self.bad:
            return self.bad[row]() if callable(self.bad[row]) else self.bad[row]
        return np.full(self.shape, row), row % 2


class Noisy(Numbered):
    """Draws from every global generator."""

    def __getitem__(self, row):
        drawn = random.random() + np.random.random() + torch.rand(()).item()
        return np.full(self.shape, drawn), 0


class Endless(IterableDataset):
    def __len__(self):
        return 10

    def __iter__(self):
        return iter(())


class Loader(DataLoader):
    """A loader."""


class Module:
    """A LightningDataModule, as far as its data sets go."""

    def __init__(self, rows=10):
        self.rows, self.calls = rows, []

    def prepare_data(self):
        self.calls.append("prepare")

    def setup(self, stage):
        self.calls.append(stage)
        self.training = TensorDataset(torch.ones(self.rows, 2, 3), torch.zeros(self.rows))

    def testing(self):
        assert self.calls == ["prepare", "fit", "test"]
        return Numbered(4)

    def train_dataloader(self):
        return DataLoader(self.training, batch_size=2, shuffle=True)

    def val_dataloader(self):
        raise AssertionError("a loader was asked for")


HERE = __name__
DECLARED = {
    "name": "own",
    "num_examples": 10,
    "num_classes": 2,
    "dimensions": 6,
    "shape": [2, 3],
    "validation_split": "private",
    "test_split": "public",
    "statistics": "none",
    "workers": 0,
}


def own(**changes):
    nodes = {"train": {"_target_": f"{HERE}.Numbered"}, "test": {"_target_": f"{HERE}.Numbered", "rows": 4}}
    return TorchDataset(**(DECLARED | nodes | changes))


def lightning(**changes):
    nodes = {"module": {"_target_": f"{HERE}.Module"}, "train": "training", "test": "testing"}
    return LightningData(**(DECLARED | nodes | changes))


def store(source, seed=lambda position: position, **changes):
    declared = {"name": "data.train", "shape": (2, 3), "dtype": "float32", "num_classes": 2}
    return ReadByWorkers(Rows(source=source, **(declared | changes)), seed)


def read(store, *lots):
    return list(store.read(Wanted(t, f"lot {t}", np.array(rows, np.int64)) for t, rows in enumerate(lots)))


def test_rows_are_read_by_number_and_converted_to_what_is_declared():
    splits = own().load()
    assert (len(splits.train), len(splits.test)) == (10, 4)
    inputs, targets = splits.train.read([7, 2])
    assert (inputs.dtype, inputs.shape, targets.dtype) == (np.float32, (2, 2, 3), np.int64)
    assert inputs[:, 0, 0].tolist() == [7, 2]
    assert targets.tolist() == [1, 0]


def test_a_validation_split_is_cut_off_without_reading_a_row():
    bad = dict.fromkeys(range(10), RuntimeError)
    splits = own(train={"_target_": f"{HERE}.Numbered", "bad": bad}, validation={"every": 3}).load()
    assert splits.validation.numbers.tolist() == [2, 5, 8]
    assert splits.train.numbers.tolist() == [0, 1, 3, 4, 6, 7, 9]


def test_rows_of_a_part_are_those_of_the_whole():
    splits = own(validation=4).load()
    assert splits.validation.read([0])[0][0, 0, 0] == 6


def test_in_memory_all_rows_are_read_once():
    splits = own(in_memory=True).load()
    assert isinstance(splits.train, Examples)
    assert splits.train.inputs[:, 0, 0].tolist() == list(range(10))


def test_a_lightning_module_gives_its_data_sets_and_no_loader():
    splits = lightning().load()
    assert (len(splits.train), len(splits.test)) == (10, 4)
    assert splits.train.read([3])[1].tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": "train_dataloader"}, r"data\.train = train_dataloader is a torch.*DataLoader, a loader"),
        ({"train": "trainng"}, r"data\.train = 'trainng'.*\nDid you mean training\?"),
        ({"module": {"_target_": f"{HERE}.Numbered"}}, r"data\.module is a .*Numbered, expected a Lightning"),
        ({"statistics": None}, r"data\.statistics = None: expected none: nothing is computed"),
        ({"statistics": "private"}, r"data\.statistics = 'private'"),
    ],
)
def test_what_cannot_be_taken_from_a_module_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        lightning(**changes).load()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"_target_": f"{HERE}.Endless"}, r"data\.train is a .*Endless, expected a map-style data set"),
        (
            {"_target_": f"{HERE}.Loader", "dataset": {"_target_": f"{HERE}.Numbered"}},
            "a loader",
        ),
        (
            {"_target_": f"{HERE}.Numberd"},
            r"data\.train\._target_ = .*Numberd': expected something that can be",
        ),
        ({"_target_": f"{HERE}.Numbered", "row": 3}, r"data\.train: .*Numbered cannot be made: TypeError"),
        (
            {"_target_": "os.system", "command": "true"},
            r"data\.train\._target_ = 'os\.system': expected a class",
        ),
        ({"rows": 3}, r"data\.train is a builtins\.dict, expected a map-style"),
        ({"_target_": f"{HERE}.Numbered", "rows": 0}, "The train split has no row"),
    ],
)
def test_what_is_no_map_style_data_set_is_refused(node, message):
    with pytest.raises(UserError, match=message):
        own(train=node).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": -1}, r"data\.workers = -1"),
        ({"prefetch": 0}, r"data\.prefetch = 0"),
        ({"dtype": "float16"}, r"data\.dtype = 'float16'"),
        ({"dtype": "int64"}, r"data\.tokens = None: expected the number of token ids"),
        ({"tokens": 5}, r"data\.tokens = 5"),
        ({"shape": [2, 2]}, r"data\.dimensions = 6: expected 4, the product of data\.shape"),
        (
            {"held_out": {"_target_": f"{HERE}.Numbered"}, "validation": 1},
            r"data\.validation = 1: expected 0",
        ),
    ],
)
def test_a_declaration_out_of_range_is_refused_under_its_key(changes, message):
    with pytest.raises(UserError, match=message):
        own(**changes)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: 1 / 0, r"row 3 \(from 0\) of data\.train cannot be read: ZeroDivisionError"),
        (np.zeros((2, 3)), r"row 3 .* is a numpy\.ndarray, expected a pair"),
        ((np.zeros((3, 2)), 0), r"shape of the input in row 3 .* = \(3, 2\): expected \(2, 3\)"),
        ((np.full((2, 3), np.nan), 0), r"The input in row 3 \(from 0\) of data\.train is not finite"),
        ((np.full((2, 3), "x"), 0), r"The input in row 3 .* expected numbers of type float32"),
        ((np.zeros((2, 3)), 2), r"class in row 3 .* = 2: expected a class in 0 … 1"),
        ((np.zeros((2, 3)), -1), r"class in row 3"),
        ((np.zeros((2, 3)), 0.5), r"class in row 3"),
        ((np.zeros((2, 3)), "dog"), r"The class in row 3 .* is a str"),
    ],
)
def test_a_bad_row_is_named(bad, message):
    with pytest.raises(UserError, match=message):
        read(store(Numbered(bad={3: bad})), [1, 3])


def test_a_foreign_token_id_is_named():
    tokens = store(Numbered(shape=(2,)), shape=(2,), dtype="int64", vocabulary=5)
    with pytest.raises(UserError, match=r"row 6 .* foreign token id, expected token ids in 0 … 4"):
        read(tokens, [4, 6])
    halves = store(Numbered(bad={3: (np.full((2, 3), 0.5), 0)}), dtype="int64", vocabulary=5)
    with pytest.raises(UserError, match="The input in row 3"):
        read(halves, [3])


def test_lots_come_in_order_with_their_labels_and_empty_ones_with_their_shape():
    lots = read(store(Numbered()), [5, 1], [], [9])
    assert [label for label, _, _ in lots] == ["lot 0", "lot 1", "lot 2"]
    assert [inputs[:, 0, 0].tolist() for _, inputs, _ in lots] == [[5, 1], [], [9]]
    assert lots[1][1].shape == (0, 2, 3)
    assert (lots[1][1].dtype, lots[1][2].dtype) == (torch.float32, torch.int64)


def test_draws_inside_a_data_set_are_a_function_of_the_lot_and_leave_the_generators_as_they_were():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()
    first, second = (read(store(Noisy()), [0], [0, 1], [5]) for _ in range(2))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()
    for one, two in zip(first, second, strict=True):
        torch.testing.assert_close(one[1], two[1], rtol=0, atol=0)
    assert first[0][1][0, 0, 0] != first[2][1][0, 0, 0]
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_without_workers_no_lot_is_read_before_it_is_asked_for():
    asked = []

    class Watched(Numbered):
        def __getitem__(self, row):
            asked.append(row)
            return super().__getitem__(row)

    lots = store(Watched()).read(Wanted(t, t, np.array([t])) for t in range(10))
    for t in range(3):
        next(lots)
        assert asked == list(range(t + 1))


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_read_no_more_lots_ahead_than_asked_for_and_name_a_bad_row():
    counter = multiprocessing.get_context("fork").Value("i", 0)

    class Counted(Numbered):
        def __getitem__(self, row):
            with counter.get_lock():
                counter.value += 1
            return super().__getitem__(row)

    source = Counted(100, bad={9: (np.full((2, 3), np.nan), 0)})
    lots = store(source, workers=2, prefetch=3).read(Wanted(t, t, np.array([t])) for t in range(100))
    for taken in range(1, 10):
        assert next(lots)[0] == taken - 1
        assert counter.value <= taken + 2 * 3
    with pytest.raises(UserError, match=r"^The input in row 9 \(from 0\) of data\.train is not finite"):
        next(lots)


def test_a_digest_looks_at_some_rows_and_changes_with_them():
    def seen(source):
        rows = Rows(name="r", source=source, shape=(2, 3), dtype="float32", num_classes=2)
        return b"".join(bytes(part) for part in contents(rows))

    assert seen(Numbered()) == seen(Numbered())
    assert seen(Noisy()) == seen(Noisy())
    assert seen(Numbered()) != seen(Numbered(9))
    assert seen(Numbered()) != seen(Numbered(bad={4: (np.zeros((2, 3)), 0)}))
    assert len(seen(Numbered(5000))) < 5000
