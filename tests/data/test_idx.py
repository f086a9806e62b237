import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.data.idx import read_images, read_labels
from tests.data.files import TRAIN_LABELS, TRAIN_PIXELS, idx, images, labels


def test_images_are_read_as_written():
    np.testing.assert_array_equal(read_images("f", images(TRAIN_PIXELS)), TRAIN_PIXELS)


def test_labels_are_read_as_written():
    np.testing.assert_array_equal(read_labels("f", labels(TRAIN_LABELS)), TRAIN_LABELS)


@pytest.mark.parametrize("length", range(len(labels(TRAIN_LABELS))))
def test_a_label_file_cut_anywhere_is_refused_with_its_name_and_size(length):
    with pytest.raises(UserError, match=rf"size of the-file = {length}: expected"):
        read_labels("the-file", labels(TRAIN_LABELS)[:length])


@pytest.mark.parametrize("length", [0, 3, 4, 15, 16, 17, len(images(TRAIN_PIXELS)) - 1])
def test_an_image_file_cut_anywhere_is_refused_with_its_name_and_size(length):
    with pytest.raises(UserError, match=rf"size of the-file = {length}: expected"):
        read_images("the-file", images(TRAIN_PIXELS)[:length])


def test_a_file_one_byte_too_long_is_refused_with_the_size_its_header_says():
    content = images(TRAIN_PIXELS)
    expected = rf"the-file = {len(content) + 1}: expected {len(content)} bytes.*\(7, 2, 3\)"
    with pytest.raises(UserError, match=expected):
        read_images("the-file", content + b"\0")


def test_labels_where_images_are_wanted_are_refused_by_their_magic_number():
    with pytest.raises(UserError, match="magic number of the-file = 2049: expected the number 2051"):
        read_images("the-file", labels(np.zeros(20, np.uint8)))


def test_images_where_labels_are_wanted_are_refused_by_their_magic_number():
    with pytest.raises(UserError, match="magic number of the-file = 2051: expected the number 2049"):
        read_labels("the-file", images(TRAIN_PIXELS))


@pytest.mark.parametrize("shape", [(0, 2, 3), (7, 0, 3)])
def test_a_file_without_a_value_is_refused(shape):
    with pytest.raises(UserError, match="shape of the-file"):
        read_images("the-file", idx(np.zeros(shape, np.uint8), magic=2051))
