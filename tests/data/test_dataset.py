import dataclasses

import pytest

from dpexp._validate import UserError
from dpexp.data import Dataset, Digits
from tests.data.test_digits import digits


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "../elsewhere"),
        ("name", ""),
        ("num_examples", 0),
        ("num_examples", 2.5),
        ("num_classes", 1),
        ("dimensions", 0),
        ("validation", -1),
        ("validation", True),
        ("validation_split", "secret"),
        ("test_split", "Public"),
    ],
)
def test_a_declaration_out_of_range_is_refused_under_its_key(field, value):
    with pytest.raises(UserError, match=rf"data\.{field} = "):
        digits(**{field: value})


def test_whole_floats_become_ints():
    declared = digits(num_examples=1438.0, validation=5.0)
    assert isinstance(declared.num_examples, int)
    assert isinstance(declared.validation, int)


@pytest.mark.parametrize("validation_split", ["public", "private"])
@pytest.mark.parametrize("test_split", ["public", "private"])
def test_the_test_split_governs_a_validation_split_that_it_serves_as(validation_split, test_split):
    declared = digits(validation=0, validation_split=validation_split, test_split=test_split)
    assert declared.validation_privacy == declared.test_privacy == test_split


@pytest.mark.parametrize("validation_split", ["public", "private"])
@pytest.mark.parametrize("test_split", ["public", "private"])
def test_a_validation_split_cut_off_is_governed_by_its_own_declaration(validation_split, test_split):
    declared = digits(validation=1, validation_split=validation_split, test_split=test_split)
    assert (declared.validation_privacy, declared.test_privacy) == (validation_split, test_split)


def test_declarations_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        digits().num_examples = 7


def test_the_declared_number_of_examples_is_never_filled_in_from_the_data():
    declared = digits(num_examples=1000)
    assert len(declared.load().train) == 1438
    assert declared.num_examples == 1000


def test_a_data_set_without_load_cannot_be_built():
    declared = {field.name: getattr(digits(), field.name) for field in dataclasses.fields(Digits)}
    with pytest.raises(TypeError, match="abstract"):
        Dataset(**declared)
