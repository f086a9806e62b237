"""What is drawn along training."""

import pytest

from dpexp.report.comparison import Comparison
from dpexp.report.courses import read_course
from dpexp.report.store import Store
from dpexp.report.subject import find_subject
from tests.report.stores import Recorded, tracking, write

WHOLE = {"privacy/epsilon": [0.1, 0.2, 0.3, 0.4], "val/accuracy": [0.2, 0.4, 0.6, 0.8]}
STOPPED = {"privacy/epsilon": [0.1, 0.2], "val/accuracy": [0.4, 0.6]}  # and on, at lots of its own


def course_of(outputs, runs):
    write(outputs, runs)
    store = Store(tracking(outputs))
    subject = find_subject(store, experiment="smoke", sweep=None, tags={})
    [series] = Comparison.of(subject.runs).series
    [point] = series.points
    return read_course(store, series, point)


def interrupted(seed):
    return Recorded(seed=seed, series=STOPPED, metrics={"final/forfeited_lots": 3.0})


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_curve_goes_to_its_end_whatever_was_interrupted_beside_it(outputs, others):
    runs = [Recorded(seed=seed, series=WHOLE) for seed in (0, 1)]
    reached = course_of(outputs, [*runs, *(interrupted(seed) for seed in range(2, 2 + others))]).reached
    assert [at.epsilon for at in reached] == WHOLE["privacy/epsilon"]
    assert [at.mean for at in reached] == pytest.approx(WHOLE["val/accuracy"])


def test_where_all_were_interrupted_one_is_drawn(outputs):
    reached = course_of(outputs, [interrupted(0), interrupted(1)]).reached
    assert [at.epsilon for at in reached] == STOPPED["privacy/epsilon"]
