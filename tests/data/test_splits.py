import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.data import Examples
from dpexp.data.splits import cut


def numbered(rows):
    return Examples(inputs=np.arange(rows, dtype=np.float32)[:, None], targets=np.arange(rows))


def test_the_last_training_rows_become_the_validation_split():
    splits = cut(numbered(10), numbered(3), validation=4)
    np.testing.assert_array_equal(splits.train.targets, range(6))
    np.testing.assert_array_equal(splits.validation.targets, range(6, 10))
    np.testing.assert_array_equal(splits.validation.inputs[:, 0], range(6, 10))
    assert not splits.validation_is_test


def test_without_validation_rows_the_test_split_serves_and_says_so():
    train, test = numbered(10), numbered(3)
    splits = cut(train, test, validation=0)
    assert splits.train is train
    assert splits.validation is splits.test is test
    assert splits.validation_is_test


def test_one_training_row_may_remain():
    assert len(cut(numbered(10), numbered(3), validation=9).train) == 1


@pytest.mark.parametrize("validation", [10, 11])
def test_a_cut_that_leaves_no_training_row_is_refused(validation):
    with pytest.raises(UserError, match=f"data.validation = {validation}: expected a whole number below 10"):
        cut(numbered(10), numbered(3), validation=validation)
