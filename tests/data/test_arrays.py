"""The user's own files: what is read, and what is refused with file and row."""

import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from dpexp._validate import UserError
from dpexp.data import Arrays

ROWS = 20
TABLE = pd.DataFrame(
    {
        "age": [20 + row for row in range(ROWS)],
        "colour": ["red", "green", "blue", "green"] * 5,
        "person": [f"p{row}" for row in range(ROWS)],
        "sick": [row % 2 for row in range(ROWS)],
        "weight": [row / 4 for row in range(ROWS)],
    }
)


def arrays(**changes):
    declared = {
        "name": "mine",
        "num_examples": 16,
        "num_classes": 2,
        "dimensions": 2,
        "validation_split": "private",
        "test_split": "private",
        "train": "train.csv",
        "test": {"every": 5},
        "inputs": ["age", "weight"],
        "target": "sick",
    }
    return Arrays(**(declared | changes))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(table, name="train.csv"):
    if name.endswith(".parquet"):
        table.to_parquet(name)
    else:
        table.to_csv(name, index=False)
    return name


def changed(column, row, value):
    table = TABLE.astype({column: object})
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz", "train.parquet"])
def test_a_table_is_read_alike_from_every_format(name):
    splits = arrays(train=written(TABLE, name)).load()
    assert len(splits.train) == 16
    np.testing.assert_array_equal(splits.test.targets, TABLE["sick"][4::5])
    np.testing.assert_array_equal(splits.test.inputs, TABLE[["age", "weight"]][4::5].to_numpy(np.float32))
    assert splits.train.inputs.dtype == np.float32
    assert splits.validation is splits.test


def test_columns_become_numbers_by_what_is_declared_of_them():
    known = {
        "age": [20, 30],
        "colour": {"values": ["red", "green", "blue"]},
        "weight": {"low": 0, "high": 3, "log": True},
    }
    test = arrays(train=written(TABLE), inputs=known, dimensions=5).load().test
    expected = [[0.4, 0, 1, 0, np.log(2) / np.log(4)], [0.9, 0, 1, 0, np.log(3.25) / np.log(4)]]
    np.testing.assert_allclose(test.inputs[0], [0.4, 1, 0, 0, np.log(2) / np.log(4)], rtol=1e-6)
    np.testing.assert_allclose(test.inputs[1], expected[1], rtol=1e-6)
    assert test.inputs[3].tolist()[0] == 1.0  # 39 counts as 30
    assert test.inputs[3].tolist()[4] == 1.0


def test_patterns_and_nothing_at_all_name_columns_too():
    numbers = TABLE.drop(columns=["colour"])
    pattern = arrays(train=written(numbers), inputs=["w*", "age"]).load().train.inputs
    np.testing.assert_array_equal(pattern[1], [0.25, 21])
    everything = arrays(train="train.csv", inputs=None, id="person").load().train.inputs
    np.testing.assert_array_equal(everything[1], [21, 0.25])


def test_classes_may_be_words():
    declared = arrays(train=written(TABLE), target="colour", classes=["blue", "green", "red"], num_classes=3)
    assert declared.load().train.targets[:3].tolist() == [2, 1, 0]


def test_public_constants_shift_and_scale():
    plain, scaled = arrays(train=written(TABLE)), arrays(train="train.csv", shift=20, scale=4)
    np.testing.assert_allclose(scaled.load().train.inputs, (plain.load().train.inputs - 20) / 4)


def test_files_of_arrays_and_pairs_of_files_are_read(here):
    inputs, target = np.arange(80, dtype=np.float64).reshape(20, 2, 2), np.arange(20) % 2
    np.savez("train.npz", x=inputs, y=target)
    np.save("x.npy", inputs)
    np.save("y.npy", target)
    one = arrays(train="train.npz", inputs="x", target="y", dimensions=4, shape=[2, 2]).load()
    two = arrays(train={"inputs": "x.npy", "target": "y.npy"}, dimensions=4, shape=[2, 2]).load()
    for split in ("train", "test"):
        np.testing.assert_array_equal(getattr(one, split).inputs, getattr(two, split).inputs)
        np.testing.assert_array_equal(getattr(one, split).targets, getattr(two, split).targets)
    assert one.train.inputs.shape == (16, 2, 2)


def test_token_ids_stay_whole_numbers():
    np.savez("train.npz", x=np.arange(40).reshape(20, 2) % 7, y=np.arange(20) % 2)
    train = arrays(train="train.npz", inputs="x", target="y", tokens=7).load().train
    assert train.inputs.dtype == np.int64
    with pytest.raises(
        UserError, match=r"value 1 in row 2 \(from 0\) of 'x' of train\.npz = 5: expected 0 … 4"
    ):
        arrays(train="train.npz", inputs="x", target="y", tokens=5).load()


def test_validation_rows_come_from_a_rule_or_from_a_file():
    ruled = arrays(train=written(TABLE), validation={"every": 4}, num_examples=12).load()
    assert (len(ruled.train), len(ruled.validation), len(ruled.test)) == (12, 4, 4)
    assert arrays(train="train.csv").validation_privacy == "private"
    held = arrays(
        train="train.csv",
        held_out=written(TABLE[:3], "held.csv"),
        test=written(TABLE[3:8], "test.csv"),
        validation_split="public",
    )
    assert held.validation_privacy == "public"
    splits = held.load()
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (20, 3, 5)


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("age", 7, "old", r"row 7 \(from 0\) of 'age' of train\.csv = 'old': expected a finite number"),
        (
            "age",
            7,
            "",
            r"row 7 \(from 0\) of 'age' of train\.csv = '': expected a finite number\.?\nLeave such",
        ),
        ("weight", 3, "nan", r"row 3 \(from 0\) of 'weight' of train\.csv"),
        ("weight", 3, "inf", r"row 3 \(from 0\) of 'weight' of train\.csv"),
        ("weight", 3, "1e300", r"value 1 in row 3 \(from 0\) of train\.csv = inf"),
        ("sick", 19, 2, r"label in row 19 \(from 0\) of 'sick' of train\.csv = 2: expected a class in 0 … 1"),
        ("sick", 0, -1, r"label in row 0 \(from 0\) of 'sick' of train\.csv = -1"),
        (
            "sick",
            5,
            0.5,
            r"label in row 5 \(from 0\) of 'sick' of train\.csv = 0\.5: expected a whole number",
        ),
        ("sick", 5, "yes", r"row 5 \(from 0\) of 'sick' of train\.csv = 'yes'.*\nIf .* data\.classes"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_bad_cell_is_refused_with_its_file_column_and_row(column, row, value, message):
    written(changed(column, row, value))
    with pytest.raises(UserError, match=message):
        arrays().load()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2,0,7\n3,4,1,7\n", r"header of train\.csv names 3 columns, and the first row has 4 fields"),
        ("1,2,0,\n3,4,1,\n", r"names 3 columns, and the first row has 4 fields"),
        ("1,2,0,,\n3,4,1\n", r"names 3 columns, and the first row has 5 fields"),
        ("1,2,0\n3,4,1,7\n", r"Expected 3 fields in line 3, saw 4\.\n"),
        ("1,2\n3,4,1\n", r"row 0 \(from 0\) of train\.csv has 2 fields, expected 3"),
        ("1,2,0\n\n3,'4',1\n5,1\n", r"row 2 \(from 0\) of train\.csv has 2 fields, expected 3"),
        ("1,2,0\n3,4,\n", r"row 1 \(from 0\) of 'sick' of train\.csv = ''"),
    ],
)
def test_rows_longer_or_shorter_than_the_header_are_refused(here, rows, message):
    (here / "train.csv").write_text(f"age,weight,sick\n{rows}")
    with pytest.raises(UserError, match=message):
        arrays().load()


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
def test_a_short_row_is_refused_where_its_last_column_is_not_used(here, name):
    text = "age,sick,weight,note\n1,0,2,a\n3,1,b\n5,0,6,c\n"  # the note of row 1 would be its weight
    with (gzip.open if name.endswith("gz") else open)(here / name, "wt") as file:
        file.write(text)
    with pytest.raises(UserError, match=r"row 1 \(from 0\) of train\.csv\S* has 3 fields, expected 4"):
        arrays(train=name, inputs=["age"], dimensions=1).load()


def test_a_word_that_was_not_declared_is_refused_with_the_one_meant():
    written(changed("colour", 11, "gren"))
    known = {"colour": {"values": ["red", "green", "blue"]}}
    with pytest.raises(UserError, match=r"row 11 \(from 0\) of 'colour'.*= 'gren'.*\n?Did you mean green\?"):
        arrays(inputs=known, dimensions=3).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inputs": ["age", "wieght"]},
            r"data\.inputs = 'wieght': expected one of .*\nDid you mean weight\?",
        ),
        ({"target": "sik"}, r"data\.target = 'sik': expected one of .*\nDid you mean sick\?"),
        ({"id": "persn"}, r"data\.id = 'persn'.*\nDid you mean person\?"),
        ({"inputs": ["age", "sick"]}, r"data\.inputs = 'sick': expected columns other than"),
        ({"inputs": {"age": [3, 1]}}, r"data\.inputs\.age: low = 3: expected a number < 1"),
        ({"inputs": {"age": {"low": 0, "high": "x"}}}, r"data\.inputs\.age: high = 'x': expected a number"),
        ({"dimensions": 3}, r"data\.dimensions = 3: expected 2, the numbers in a row of train\.csv"),
        ({"train": "other.csv"}, r"data\.train = 'other\.csv': expected a file that exists"),
        ({"train": "train.pkl"}, r"data\.train = 'train\.pkl': expected a file that ends in \.csv"),
        ({"train": "x.npy"}, r"data\.train = 'x\.npy': expected \{inputs: x\.npy, target: y\.npy\}"),
        ({"test": 20}, r"data\.test = 20: expected a rule that leaves and cuts off rows"),
        ({"test": 0}, r"data\.test = 0"),
        ({"held_out": "a.csv", "validation": 3}, r"data\.validation = 3: expected 0 where data\.held_out"),
        ({"scale": 0}, r"data\.scale = 0"),
        ({"classes": ["a", "b", "c"]}, r"data\.num_classes = 2: expected 3"),
    ],
)
def test_a_declaration_that_does_not_fit_the_files_is_refused_under_its_key(changes, message):
    written(TABLE)
    with pytest.raises(UserError, match=message):
        arrays(**changes).load()


def test_somebody_in_two_splits_is_refused_with_both_rows():
    written(changed("person", 9, "p2"))  # row 9 is a test row
    with pytest.raises(
        UserError, match=r"id 'p2' is in two splits: in row 2 \(from 0\) of train\.csv and in row 9"
    ):
        arrays(id="person").load()
    assert len(arrays(id=None).load().train) == 16


def test_somebody_with_two_rows_of_one_split_is_nobody_in_two_splits():
    written(changed("person", 8, "p2"))
    assert len(arrays(id="person").load().train) == 16


def test_somebody_in_two_files_is_refused_with_both_files():
    written(TABLE)
    written(TABLE[5:7], "test.csv")
    with pytest.raises(
        UserError, match=r"id 'p5' .* row 5 .* of train\.csv and in row 0 of test\.csv; so are 1"
    ):
        arrays(id="person", test="test.csv").load()


def test_a_table_without_rows_is_refused():
    written(TABLE[:0])
    with pytest.raises(UserError, match=r"train\.csv has no row"):
        arrays().load()


SOUND = {"x": np.arange(40.0).reshape(20, 2), "y": np.arange(20) % 2, "who": np.arange(20)}


def with_entry(name, place, value):
    entries = SOUND[name].astype(float)
    entries[place] = value
    return {name: entries}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            with_entry("x", (3, 1), np.nan),
            r"value 1 in row 3 \(from 0\) of 'x' of train\.npz = nan: expected a finite",
        ),
        (with_entry("x", (4, 0), np.inf), r"value 0 in row 4 \(from 0\) of 'x' of train\.npz = inf"),
        (
            with_entry("y", 7, 2),
            r"label in row 7 \(from 0\) of 'y' of train\.npz = 2: expected a class in 0 … 1",
        ),
        (
            with_entry("y", 7, np.nan),
            r"label in row 7 \(from 0\) of 'y' of train\.npz = nan: expected a whole",
        ),
        (
            with_entry("who", 9, 2),
            r"id '2\.0' is in two splits: in row 2 \(from 0\) of 'x' of train\.npz and in row 9",
        ),
        (
            {"x": np.zeros((20, 3))},
            r"data\.dimensions = 2: expected 3, the numbers in a row of 'x' of train\.npz",
        ),
        ({"x": np.zeros((19, 2))}, r"rows of 'y' of train\.npz = 20: expected 19 labels"),
        ({"y": np.zeros((20, 2))}, r"shape of 'y' of train\.npz = \(20, 2\): expected \(N,\)"),
        ({"who": np.zeros(3)}, r"shape of data\.id in 'x' of train\.npz = \(3,\): expected \(20,\)"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0), "who": np.zeros(0)}, r"'x' of train\.npz has no row"),
    ],
)
def test_bad_arrays_are_refused_with_their_file_array_and_row(changes, message):
    np.savez("train.npz", **(SOUND | changes))
    with pytest.raises(UserError, match=message):
        arrays(train="train.npz", inputs="x", target="y", id="who").load()


def test_pickled_objects_are_refused_and_never_loaded(here):
    class Bomb:
        def __reduce__(self):
            return (open, (str(here / "exploded"), "w"))

    bomb = np.array([Bomb()] * 20, dtype=object)
    np.save("y.npy", bomb, allow_pickle=True)
    np.save("x.npy", np.zeros((20, 2)))
    np.savez("train.npz", x=np.zeros((20, 2)), y=bomb)
    for changes in (
        {"train": {"inputs": "x.npy", "target": "y.npy"}},
        {"train": "train.npz", "inputs": "x", "target": "y"},
    ):
        with pytest.raises(UserError, match="holds pickled objects"):
            arrays(**changes).load()
    assert not (here / "exploded").exists()


@pytest.mark.parametrize("name", ["train.npz", "train.parquet", "train.csv.gz"])
def test_a_file_that_is_cut_short_is_refused_with_its_name(here, name):
    written(TABLE, name) if name != "train.npz" else np.savez(name, age=np.zeros((20, 2)), sick=np.zeros(20))
    content = (here / name).read_bytes()
    (here / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(UserError, match=f"data.train: {name} "):
        arrays(train=name, inputs="age" if name == "train.npz" else ["age", "weight"]).load()


@pytest.mark.parametrize("name", ["train.csv", "train.npz", "train.parquet"])
def test_an_empty_file_is_called_empty(here, name):
    (here / name).touch()
    with pytest.raises(UserError, match=f"data.train = '{name}': expected a file that is not empty"):
        arrays(train=name).load()


def test_a_text_in_another_encoding_is_refused_with_what_mends_it(here):
    (here / "train.csv").write_bytes("größe,sick\n1,0\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"train\.csv is not text in UTF-8: .*\n.*iconv -f latin1 -t utf-8"):
        arrays().load()


def test_a_pair_that_is_cut_short_is_refused_with_its_name(here):
    np.save("x.npy", np.zeros((20, 2)))
    np.save("y.npy", np.zeros(20, np.int64))
    (here / "x.npy").write_bytes((here / "x.npy").read_bytes()[:-8])
    with pytest.raises(UserError, match=r"data\.train\.inputs: x\.npy"):
        arrays(train={"inputs": "x.npy", "target": "y.npy"}).load()


def test_a_zip_file_of_something_else_is_refused(here):
    written_to = io.BytesIO()
    with zipfile.ZipFile(written_to, "w") as archive:
        archive.writestr("x.npy", b"no array")
    (here / "train.npz").write_bytes(written_to.getvalue())
    with pytest.raises(UserError, match=r"data\.train: train\.npz"):
        arrays(train="train.npz", inputs="x", target="y").load()
