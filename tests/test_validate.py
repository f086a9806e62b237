import math

import numpy as np
import pytest

from dpexp import _validate
from dpexp._validate import UserError


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, [1]])
def test_a_number_is_finite_and_a_number(value):
    with pytest.raises(UserError, match=r"privacy.delta = .*: expected a number"):
        _validate.number("privacy.delta", value)


@pytest.mark.parametrize(("value", "inside"), [(0, False), (1, True), (2, True), (3, False)])
def test_bounds_are_open_or_closed_as_named(value, inside):
    def check():
        return _validate.number("x", value, above=0, at_most=2)

    if inside:
        assert check() == value
    else:
        with pytest.raises(UserError, match="expected a number > 0 and <= 2"):
            check()


def test_numpy_numbers_are_numbers():
    assert _validate.number("x", np.float32(0.5)) == 0.5
    assert _validate.integer("n", np.int64(3), at_least=1) == 3


@pytest.mark.parametrize("value", [0, 1.5, "3", True, None, math.nan])
def test_an_integer_is_whole_and_large_enough(value):
    with pytest.raises(UserError, match="expected a whole number >= 1"):
        _validate.integer("n", value, at_least=1)


def test_the_word_probably_meant_is_suggested():
    with pytest.raises(UserError, match="Did you mean flat"):
        _validate.one_of("privacy.clipping", "flt", ["flat", "adaptive"])


def test_the_hint_is_a_line_of_its_own():
    error = _validate.refuse("a", 1, "2", "Do this.")
    assert str(error) == "a = 1: expected 2.\nDo this."
