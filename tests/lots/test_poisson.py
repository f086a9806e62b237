import numpy as np
import pytest
from scipy import stats

from dpexp.accounting import Gaussian, PoissonSampled
from dpexp.lots import LotSource, LotStep, PoissonSampling
from dpexp.streams import Stream

ALPHA = 1e-4  # error rate of each statistical test; keys are fixed, so a pass stays a pass


def source(num_rows):
    return LotSource(PoissonSampling(), Stream.keyed_by(1).child("lots"), num_rows)


def lot(name="common", q=0.3):
    return LotStep(name=name, size=1.0, sampling_probability=q)


def drawn(num_rows, q, draws):
    rows = source(num_rows)
    return [rows.draw(t, [lot(q=q)]).rows for t in range(draws)]


def test_sizes_are_binomial():
    sizes = np.array([len(rows) for rows in drawn(50, 0.3, 4000)])
    expected = stats.binom.pmf(np.arange(51), 50, 0.3) * len(sizes)
    observed = np.bincount(sizes, minlength=51)
    keep = expected > 5
    pooled = [np.append(counts[keep], counts[~keep].sum()) for counts in (observed, expected)]
    assert stats.chisquare(*pooled).pvalue > ALPHA


def test_each_example_enters_with_probability_q_and_independently_of_any_other():
    n, q, draws = 12, 0.3, 6000
    inside = np.zeros((draws, n))
    for row, rows in enumerate(drawn(n, q, draws)):
        inside[row, rows] = 1
    pairs = inside.T @ inside
    std = np.sqrt(draws * q**2 * (1 - q**2))
    off_diagonal = pairs[~np.eye(n, dtype=bool)]
    limit = stats.norm.isf(ALPHA / (2 * n * n))
    assert np.abs(off_diagonal - draws * q**2).max() < limit * std
    assert np.abs(np.diag(pairs) - draws * q).max() < limit * np.sqrt(draws * q * (1 - q))


def test_rows_are_distinct_and_in_range():
    for rows in drawn(40, 0.9, 50):
        assert len(np.unique(rows)) == len(rows)
        assert rows.size == 0 or (rows.min() >= 0 and rows.max() < 40)


@pytest.mark.parametrize(("q", "size"), [(0.0, 0), (1.0, 30)])
def test_q_zero_draws_nothing_and_q_one_everything(q, size):
    assert {len(rows) for rows in drawn(30, q, 20)} == {size}


def test_lot_t_does_not_depend_on_what_was_drawn_before():
    forwards = [source(1000).draw(t, [lot()]).rows for t in range(5)]
    rows = source(1000)
    for t in reversed(range(5)):
        np.testing.assert_array_equal(rows.draw(t, [lot()]).rows, forwards[t])


def test_lots_of_one_step_are_independent_and_their_union_says_who_is_where():
    q, draws, n = 0.4, 3000, 10
    rows = source(n)
    both = 0
    for t in range(draws):
        step = rows.draw(t, [lot("a", q), lot("b", q)])
        for name in ("a", "b"):
            alone = rows.draw(t, [lot(name, q)]).rows
            assert set(step.rows[step.members[name]]) == set(alone)
        both += int((step.members["a"] & step.members["b"]).sum())
    expected, std = draws * n * q * q, np.sqrt(draws * n * q * q * (1 - q * q))
    assert abs(both - expected) < stats.norm.isf(ALPHA / 2) * std


def test_a_single_lot_needs_no_membership():
    assert source(100).draw(0, [lot()]).members == {}


def test_drawing_from_a_hundred_million_rows_touches_only_the_lot():
    rows = source(10**8).draw(0, [lot(q=1e-6)]).rows
    assert 50 < len(rows) < 160


def test_the_event_is_what_is_drawn():
    event = PoissonSampling().event(Gaussian(noise_multiplier=4), 600, 60_000)
    assert event == PoissonSampled(gaussian=Gaussian(noise_multiplier=4), sampling_probability=0.01)
