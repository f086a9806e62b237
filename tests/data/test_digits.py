import numpy as np
import pytest
from sklearn.datasets import load_digits

from dpexp._validate import UserError
from dpexp.data import Digits


def digits(**changes):
    declared = {
        "name": "digits",
        "num_examples": 1438,
        "num_classes": 10,
        "dimensions": 64,
        "validation_split": "private",
        "test_split": "public",
    }
    return Digits(**(declared | changes))


def test_every_fifth_row_is_a_test_row_and_every_other_a_training_row():
    splits = digits().load()
    assert (len(splits.train), len(splits.test)) == (1438, 359)
    images = load_digits().images
    np.testing.assert_array_equal(splits.test.inputs[1].reshape(8, 8) * 16, images[9])
    np.testing.assert_array_equal(splits.train.inputs[4].reshape(8, 8) * 16, images[5])


def test_pixels_are_float32_vectors_that_fill_the_unit_interval():
    train = digits().load().train
    assert (train.inputs.dtype, train.inputs.shape) == (np.float32, (1438, 64))
    assert (train.inputs.min(), train.inputs.max()) == (0, 1)
    assert train.targets.dtype == np.int64
    assert set(train.targets) == set(range(10))


def test_validation_rows_are_cut_off_the_end_of_the_training_rows():
    whole, parts = digits().load(), digits(validation=200).load()
    assert (len(parts.train), len(parts.validation)) == (1238, 200)
    np.testing.assert_array_equal(parts.validation.inputs, whole.train.inputs[-200:])
    np.testing.assert_array_equal(parts.test.inputs, whole.test.inputs)


def test_a_label_beyond_the_declared_classes_is_refused():
    with pytest.raises(UserError, match=r"row 9 .*load_digits = 9: expected a class in 0 … 8"):
        digits(num_classes=9).load()


def test_other_dimensions_than_the_images_have_are_refused():
    with pytest.raises(UserError, match=r"data\.dimensions = 784: expected 64"):
        digits(dimensions=784).load()
