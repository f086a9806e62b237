"""What may stand on one curve: laws of grouping, of the front, and of figures that are not numbers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp.report.comparison import Comparison
from dpexp.report.courses import chosen_points, thinned
from dpexp.report.front import front
from dpexp.report.terms import Terms
from dpexp.report.words import epsilon_in_words, guarantee_in_words
from tests.report.stores import Recorded, in_memory, plain

OTHER_TERMS = {
    "delta": Recorded(params={"privacy.delta": "1e-06"}, metrics={"final/delta": 1e-6}),
    "relation": Recorded(params={"privacy.relation": "replace_one"}),
    "sampler": Recorded(params={"sampling._target_": "dpexp.lots.FixedSizeSampling"}),
    "accountant": Recorded(tags={"dpexp.accountant": "pld"}),
    "kind": Recorded(tags={"dpexp.epsilon_kind": "estimate"}),
    "budget": Recorded(tags={"dpexp.budget": "dataset", "dpexp.budget_id": "people"}),
    "data": Recorded(params={"data.name": "mnist"}),
    "test_split": Recorded(
        params={"data.test_split": "private"},
        metrics={"final/accuracy": None, "nonprivate/final/accuracy": 0.7},
    ),
    "randomness": Recorded(tags={"dpexp.deterministic": "true"}),
    "procedure": Recorded(tags={"dpexp.kind": "sweep", "dpexp.selection": "true"}),
    "experiment": Recorded(tags={"dpexp.experiment": "other"}),
}
NOT_DRAWN = [
    Recorded(status="FAILED"),
    Recorded(status="KILLED"),
    Recorded(status="RUNNING"),
    Recorded(metrics={"final/epsilon": 1.7976931348623157e308}),
    Recorded(metrics={"final/epsilon": math.nan}),
    Recorded(metrics={"final/epsilon": None}),
    Recorded(metrics={"final/accuracy": None}),
    Recorded(metrics={"final/accuracy": math.nan}),
]
ANY_RUN = st.sampled_from([*OTHER_TERMS.values(), *NOT_DRAWN, Recorded(), plain(), plain(status="FAILED")])


def compared(*recorded):
    return Comparison.of([in_memory(run, number) for number, run in enumerate(recorded)])


@pytest.mark.parametrize("name", OTHER_TERMS)
def test_runs_that_differ_in_one_term_are_in_two_series_and_the_term_is_named(name):
    found = compared(Recorded(), OTHER_TERMS[name])
    assert len(found.series) == 2
    assert found.differences == [name]
    for series in found.series:
        assert series.terms.in_words([name]) in found.label(series)


def test_every_term_is_tried_above():
    assert set(OTHER_TERMS) == set(Terms.__dataclass_fields__)


@given(st.lists(st.tuples(ANY_RUN, st.sampled_from("1234"), st.integers(0, 2)), max_size=25))
def test_every_run_is_in_exactly_one_place_and_no_series_mixes_terms(rows):
    runs = [
        replace(run, seed=seed, params={**run.params, "privacy.noise_multiplier": sigma})
        for run, sigma, seed in rows
    ]
    found = compared(*runs)
    assert sorted(run.run_id for run in found.runs) == [f"{number:032x}" for number in range(len(runs))]
    for series in found.series:
        assert {Terms.of(run) for run in series.runs} == {series.terms}
        assert all(run.finished and math.isfinite(run.epsilon) for run in series.runs)
        for point in series.points:
            assert len({run.params["privacy.noise_multiplier"] for run in point.runs}) == 1
            assert min(point.accuracies) <= point.mean <= max(point.accuracies)
            assert point.epsilon == max(point.epsilons)
    assert len({series.terms for series in found.series}) == len(found.series)
    for baseline in found.baselines:
        assert not any(run.is_private for run in baseline.point.runs)


def test_runs_that_differ_only_in_seed_or_in_where_they_ran_are_one_point():
    beside = {"tracking.outputs": "elsewhere", "trainer.devices": "2", "physical_batch_size": "7"}
    found = compared(
        Recorded(seed=0, metrics={"final/accuracy": 0.5, "final/epsilon": 1.0}),
        Recorded(seed=1, metrics={"final/accuracy": 0.7, "final/epsilon": 1.1}, params=beside),
    )
    [point] = found.series[0].points
    assert point.mean == pytest.approx(0.6)
    assert point.epsilon == 1.1  # what each of them keeps


def test_settings_are_named_by_all_that_varies_and_nothing_else():
    params = [{"privacy.noise_multiplier": s, "optimizer.lr": lr} for s, lr in (("1", "0.1"), ("2", "0.2"))]
    found = compared(*(Recorded(params={**each, "schedule.value": each["optimizer.lr"]}) for each in params))
    assert [point.name for point in found.series[0].points] == ["σ = 1, lr = 0.1", "σ = 2, lr = 0.2"]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=30))
def test_no_point_of_the_front_is_dominated_and_every_other_one_is(points):
    def dominated(point):
        return any(e <= point[0] and a >= point[1] and (e, a) != point for e, a in points)

    assert front(points) == {index for index, point in enumerate(points) if not dominated(point)}


def test_runs_without_privacy_are_lines_and_never_points():
    found = compared(
        Recorded(), plain(seed=0), plain(seed=1, metrics={"final/epsilon": 1.7976931348623157e308})
    )
    assert sum(len(series.points) for series in found.series) == 1
    [baseline] = found.baselines
    assert len(baseline.point.runs) == 2


@pytest.mark.parametrize("run", NOT_DRAWN)
def test_what_is_not_drawn_says_why(run):
    [undrawn] = compared(run).undrawn
    assert undrawn.reason


@given(st.floats(1e-12, 1e12))
def test_an_epsilon_is_never_shown_smaller_than_it_is(epsilon):
    shown = float(epsilon_in_words(epsilon))
    assert epsilon <= shown <= epsilon * 1.0001


def test_the_guarantee_in_one_line_says_what_it_is_not():
    def words(run):
        return guarantee_in_words(in_memory(run))

    assert words(Recorded()).startswith("ε ≤ 0.7057 at δ = 1e-05, adding or removing one example; certified")
    assert words(OTHER_TERMS["randomness"]).startswith("arithmetic, not a guarantee: ")
    assert words(OTHER_TERMS["procedure"]).startswith("of the whole private selection: ")
    assert words(OTHER_TERMS["kind"]).startswith("ε ≈ ")
    failed = Recorded(status="FAILED", metrics={"final/epsilon": None, "privacy/epsilon": 0.3})
    assert words(failed).startswith("charged when last recorded: ε ≤ 0.3 ")
    assert words(NOT_DRAWN[3]).startswith("ε ≤ ∞")
    assert words(plain()) == "no privacy: nothing is guaranteed"


@given(st.lists(st.integers(), max_size=60), st.integers(0, 12))
def test_thinning_keeps_order_and_both_ends(values, most):
    found = thinned(values, most)
    assert len(found) == min(len(values), most)
    if most >= 2 and values:
        assert (found[0], found[-1]) == (values[0], values[-1])


def test_few_settings_are_drawn_along_training_those_of_a_front_first():
    runs = [
        Recorded(
            params={"privacy.noise_multiplier": str(s)},
            metrics={"final/epsilon": 1 / s, "final/accuracy": 0.9 - 0.01 * (s % 7)},
        )
        for s in range(1, 30)
    ]
    found = compared(*runs)
    chosen = chosen_points(found)
    assert len({point.name for _, point in chosen}) == len(chosen) == 6
    fronts = found.series[0].front
    assert [point for _, point in chosen[: len(fronts)]] == list(fronts)[:6]
