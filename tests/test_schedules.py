import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.schedules import Constant, Exponential, Linear, Step, as_schedule

LENGTHS = st.floats(0.5, 50)
VALUES = st.floats(-10, 10)
FACTORS = st.floats(0.1, 3)
SCHEDULES = st.one_of(
    st.builds(Constant, VALUES),
    st.builds(Linear, start=VALUES, end=VALUES, over=LENGTHS, unit=st.sampled_from(["lots", "epochs"])),
    st.builds(Exponential, start=VALUES, factor=FACTORS, every=LENGTHS),
    st.builds(Step, start=VALUES, factor=FACTORS, every=LENGTHS, unit=st.sampled_from(["lots", "epochs"])),
)


@given(SCHEDULES, st.integers(0, 300), st.floats(1, 20))
def test_between_changes_the_value_is_the_same(schedule, lot, epoch):
    until = schedule.changes_after(lot, epoch)
    assert until > lot
    last = lot + 50 if until == math.inf else int(until) - 1
    for later in range(lot, min(last, lot + 50) + 1):
        assert schedule.at(later, epoch) == schedule.at(lot, epoch)


@pytest.mark.parametrize("unit", ["lots", "epochs"])
def test_stairs_are_announced_at_the_very_lot_where_they_come(unit):
    for tenths in range(1, 80):
        schedule = Step(start=8.0, factor=0.98, every=tenths / 10, unit=unit)
        announced = 0
        for lot in range(400):
            if lot == announced:
                announced = schedule.changes_after(lot, 1.1)
            assert schedule.at(lot, 1.1) == schedule.at(int(announced) - 1, 1.1), (tenths, lot)


@given(SCHEDULES, st.floats(1, 20))
def test_schedules_are_monotone(schedule, epoch):
    values = [schedule.at(lot, epoch) for lot in range(200)]
    assert values in (sorted(values), sorted(values, reverse=True))


def test_the_papers_learning_rate():
    rate = Linear(start=0.1, end=0.052, over=10, unit="epochs")
    assert rate.at(0, 100) == 0.1
    assert rate.at(500, 100) == pytest.approx(0.076)
    assert rate.at(1000, 100) == rate.at(10**6, 100) == 0.052


def test_exponential_and_step_meet_at_the_stairs():
    smooth = Exponential(start=8.0, factor=0.5, every=10)
    stairs = Step(start=8.0, factor=0.5, every=10)
    for lot in (0, 10, 20, 50):
        assert smooth.at(lot, math.nan) == pytest.approx(stairs.at(lot, math.nan))
    assert stairs.at(9, math.nan) == 8.0
    assert smooth.at(5, math.nan) == pytest.approx(8 / math.sqrt(2))


@pytest.mark.parametrize("value", ["4", None, True, [4], {"start": 1}])
def test_what_is_neither_number_nor_schedule_is_refused(value):
    with pytest.raises(UserError, match=r"privacy.clip_norm = .* a number or a schedule"):
        as_schedule("privacy.clip_norm", value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(start=1, end=2, over=0),
        lambda: Linear(start=1, end=2, over=1, unit="hours"),
        lambda: Exponential(start=1, factor=-1, every=1),
        lambda: Step(start=math.nan, factor=1, every=1),
    ],
)
def test_impossible_schedules_are_refused(make):
    with pytest.raises(UserError, match="schedule"):
        make()
