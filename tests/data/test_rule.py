import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.data.rule import check_rule, selected


@given(st.integers(0, 300), st.integers(0, 400))
def test_a_number_selects_so_many_last_rows(rows, count):
    chosen = selected(count, rows)
    assert chosen.sum() == min(rows, count)
    assert list(np.flatnonzero(chosen)) == list(range(max(rows - count, 0), rows))


@given(st.integers(0, 300), st.integers(2, 20))
def test_every_selects_the_last_of_each_run(rows, every):
    assert list(np.flatnonzero(selected({"every": every}, rows))) == list(range(every - 1, rows, every))


def test_hashed_rows_are_a_fixed_fraction_spread_like_independent_draws():
    chosen = selected({"hashed": 0.2}, 200_000)
    # Under independent draws both counts are binomial; 5 standard deviations (error rate 1e-6).
    assert abs(chosen.sum() - 40_000) < 5 * (200_000 * 0.2 * 0.8) ** 0.5
    assert abs((chosen[1:] & chosen[:-1]).sum() - 8000) < 5 * (200_000 * 0.04) ** 0.5


@given(st.integers(1, 200), st.floats(0.01, 0.98))
def test_a_row_that_is_appended_moves_no_other_row(rows, fraction):
    before, after = selected({"hashed": fraction}, rows), selected({"hashed": fraction}, rows + 1)
    np.testing.assert_array_equal(before, after[:-1])


@given(st.floats(0.01, 0.5))
def test_a_larger_fraction_selects_the_same_rows_and_more(fraction):
    fewer, more = selected({"hashed": fraction}, 500), selected({"hashed": fraction + 0.4}, 500)
    assert not (fewer & ~more).any()


@pytest.mark.parametrize(
    "rule",
    [
        -1,
        2.5,
        True,
        "5",
        None,
        {},
        {"every": 1},
        {"hashed": 0},
        {"hashed": 1},
        {"evry": 5},
        {"every": 5, "hashed": 0.1},
    ],
)
def test_what_is_no_rule_is_refused_under_its_key(rule):
    with pytest.raises(UserError, match=r"^data\.validation"):
        check_rule("data.validation", rule)
