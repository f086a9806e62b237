"""Each sampler has the distribution that its event is priced for. Keys are fixed; each test errs at 1e-4."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from dpexp._validate import UserError
from dpexp.accounting import BallsAndBins, FixedSizeSampled, Gaussian, Partitioned, PoissonSampled
from dpexp.accounting.statement import ANY_LOT, ONE_LOT_AN_EPOCH
from dpexp.lots import BallsAndBinsSampling, FixedSizeSampling, PartitionSampling, PoissonSampling
from tests.lots.drawing import ALPHA, SAMPLINGS, drawn, indicators, lot, source

FIXED, PARTITION, BALLS, POISSON = (
    FixedSizeSampling(),
    PartitionSampling(),
    BallsAndBinsSampling(),
    PoissonSampling(),
)
by_name = pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.name)
by_epoch = pytest.mark.parametrize("sampling", [PARTITION, BALLS], ids=lambda sampling: sampling.name)


def assert_uniform(counts, kinds):
    """Chi-square: every one of `kinds` outcomes is equally likely."""
    counts = list(counts)
    assert len(counts) <= kinds
    assert sum(counts) > 5 * kinds
    assert stats.chisquare([*counts, *[0] * (kinds - len(counts))]).pvalue > ALPHA


def assert_mean(found, expected, variance, draws, tests=1):
    """A mean of `draws` independent values, two-sided, corrected for so many tests at once."""
    limit = stats.norm.isf(ALPHA / (2 * tests))
    assert np.max(np.abs(np.asarray(found) - expected)) < limit * np.sqrt(variance / draws)


@by_name
def test_rows_are_distinct_integers_in_range(sampling):
    for rows in drawn(sampling, 40, 20, 50):
        assert rows.dtype == np.int64
        assert len(np.unique(rows)) == len(rows)
        assert rows.size == 0 or (rows.min() >= 0 and rows.max() < 40)


@by_name
def test_every_row_is_in_a_lot_with_probability_q(sampling):
    n, size, draws = 12, 3, 4000
    inside = indicators(drawn(sampling, n, size, draws), n)
    first = inside[:: n // size] if sampling.by_epoch else inside  # one lot of each epoch: independent lots
    assert_mean(first.mean(axis=0), 0.25, 0.25 * 0.75, len(first), tests=n)


@by_name
def test_lot_t_does_not_depend_on_what_was_drawn_before(sampling):
    forwards = drawn(sampling, 1000, 100, 25)
    lots = source(sampling, 1000)
    for t in [*reversed(range(25)), 3, 17, 3]:
        np.testing.assert_array_equal(lots.draw(t, [lot(100, 1000)]).rows, forwards[t])


@by_name
def test_lots_of_another_key_name_or_epoch_are_independent(sampling):
    n, size, draws = 40, 10, 400
    one = indicators(drawn(sampling, n, size, draws), n)
    others = {
        "key": indicators(drawn(sampling, n, size, draws, key=2), n),
        "time": np.roll(one, 4, axis=0),  # an epoch has four lots
    }
    lots = source(sampling, n)
    named = [lots.draw(t, [lot(size, n, "other")]).rows for t in range(draws)]
    others["name"] = indicators(named, n)
    step = 4 if sampling.by_epoch else 1  # lots of one epoch are not independent of each other
    for other in others.values():
        both = (one * other)[::step].mean(axis=1)
        # Of one row: Bernoulli(q²). Rows of a lot are independent or negatively correlated, or nearly so.
        assert_mean(both.mean(), 1 / 16, 1 / 16 / n, len(both))


def test_lots_of_fixed_size_are_uniform_subsets():
    n, size = 6, 3
    lots = drawn(FIXED, n, size, 4000)
    assert {len(rows) for rows in lots} == {size}
    counts = Counter(tuple(sorted(rows)) for rows in lots)
    assert_uniform(counts.values(), 20)  # 6 choose 3


def test_pairs_in_lots_of_fixed_size_are_hypergeometric():
    n, size, draws = 12, 4, 6000
    inside = indicators(drawn(FIXED, n, size, draws), n)
    pairs = (inside.T @ inside / draws)[~np.eye(n, dtype=bool)]
    both = size * (size - 1) / (n * (n - 1))
    assert_mean(pairs, both, both * (1 - both), draws, tests=n * n)
    assert both < (size / n) ** 2 - 0.01  # so that independent coins would fail


def test_successive_lots_of_fixed_size_overlap_as_independent_ones():
    n, size, draws = 30, 10, 3000
    lots = drawn(FIXED, n, size, draws)
    overlaps = [len(np.intersect1d(*pair)) for pair in zip(lots[::2], lots[1::2], strict=True)]
    law = stats.hypergeom(n, size, size)
    assert_mean(np.mean(overlaps), law.mean(), law.var(), len(overlaps))


@pytest.mark.parametrize("size", [1, 30])
def test_one_row_and_all_rows_are_lots_of_fixed_size(size):
    assert {len(rows) for rows in drawn(FIXED, 30, size, 20)} == {size}


@by_epoch
def test_an_epoch_sees_every_row_once(sampling):
    lots = drawn(sampling, 60, 10, 18)
    for epoch in range(3):
        rows = np.concatenate(lots[6 * epoch : 6 * epoch + 6])
        np.testing.assert_array_equal(np.sort(rows), np.arange(60))


def test_a_partition_leaves_the_remainder_out_of_the_epoch_and_each_row_as_often():
    n, size, epochs = 11, 3, 3000
    inside = indicators(drawn(PARTITION, n, size, 3 * epochs), n).reshape(epochs, 3, n).sum(axis=1)
    assert set(inside.sum(axis=1)) == {9}
    assert set(np.unique(inside)) == {0, 1}
    assert_mean(inside.mean(axis=0), 9 / 11, 9 / 11 * 2 / 11, epochs, tests=n)


def test_partitions_are_uniform():
    lots = drawn(PARTITION, 6, 2, 3 * 3000)
    cut = Counter(
        tuple(tuple(sorted(rows)) for rows in lots[3 * epoch : 3 * epoch + 3]) for epoch in range(3000)
    )
    assert_uniform(cut.values(), 90)  # 6! / 2!³


def test_the_order_within_a_partition_of_single_rows_is_a_uniform_permutation():
    lots = drawn(PARTITION, 4, 1, 4 * 2000)
    orders = Counter(tuple(int(rows[0]) for rows in lots[4 * e : 4 * e + 4]) for e in range(2000))
    assert_uniform(orders.values(), 24)


def test_successive_epochs_of_a_partition_are_independent():
    lots = drawn(PARTITION, 3, 1, 3 * 2000)
    orders = [tuple(int(rows[0]) for rows in lots[3 * e : 3 * e + 3]) for e in range(2000)]
    assert_uniform(Counter(zip(orders[::2], orders[1::2], strict=True)).values(), 36)


def test_balls_fall_into_bins_uniformly_and_independently():
    n, bins, epochs = 3, 3, 3000
    lots = drawn(BALLS, n, n / bins, bins * epochs)
    where = np.argmax(indicators(lots, n).reshape(epochs, bins, n), axis=1)
    assert_uniform(Counter(map(tuple, where)).values(), bins**n)


def test_sizes_of_bins_are_binomial():
    n, bins, epochs = 40, 4, 3000
    sizes = np.array([len(rows) for rows in drawn(BALLS, n, n / bins, bins * epochs)[::bins]])
    expected = stats.binom.pmf(np.arange(n + 1), n, 1 / bins) * epochs
    observed = np.bincount(sizes, minlength=n + 1)
    keep = expected > 5
    pooled = [np.append(counts[keep], counts[~keep].sum()) for counts in (observed, expected)]
    assert stats.chisquare(*pooled).pvalue > ALPHA


def test_a_bin_may_be_empty():
    assert min(len(rows) for rows in drawn(BALLS, 4, 1, 40)) == 0


def test_bins_are_those_declared_whatever_the_number_of_rows():
    declared = lot(5, 20)  # four bins
    lots = source(BALLS, 23)
    rows = np.concatenate([lots.draw(t, [declared]).rows for t in range(4)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(23))


@pytest.mark.parametrize("sampling", [POISSON, FIXED], ids=lambda sampling: sampling.name)
def test_drawing_from_a_hundred_million_rows_touches_only_the_lot(sampling):
    rows = drawn(sampling, 10**8, 100, 1)[0]
    assert 50 < len(rows) < 160


def test_an_epoch_holds_four_bytes_a_row_and_one_order():
    lots = source(PARTITION, 10_000)
    for t in range(30):
        lots.draw(t, [lot(1000, 10_000)])
    [held] = lots._lots.values()
    assert held._order.nbytes == 4 * 10_000


GAUSSIAN = Gaussian(noise_multiplier=4)


@pytest.mark.parametrize(
    ("sampling", "event", "lots_per_epoch"),
    [
        (POISSON, PoissonSampled(gaussian=GAUSSIAN, sampling_probability=0.1), 10),
        (FIXED, FixedSizeSampled(gaussian=GAUSSIAN, lot_size=100, population=1000), 10),
        (PARTITION, Partitioned(gaussian=GAUSSIAN, epochs=1), 10),
        (BALLS, BallsAndBins(gaussian=GAUSSIAN, lots=10, epochs=1), 10),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_event_is_what_is_drawn(sampling, event, lots_per_epoch):
    assert sampling.event(GAUSSIAN, 100, 1000) == event
    assert sampling.lots_per_epoch(100, 1000) == lots_per_epoch


def test_what_remains_when_lots_are_known_is_said():
    known = {sampling.name: sampling.if_known for sampling in SAMPLINGS}
    assert known == {
        "poisson": ANY_LOT,
        "fixed_size": ANY_LOT,
        "partition": None,
        "balls_and_bins": ONE_LOT_AN_EPOCH,
    }


@pytest.mark.parametrize(
    ("sampling", "size", "message"),
    [
        (FIXED, 64.5, "exactly L rows"),
        (FIXED, 0.5, "exactly L rows"),
        (PARTITION, 64.5, "exactly L rows"),
        (PARTITION, 1001, "N = data.num_examples = 1000"),
        (BALLS, 300, "L=333.3333333333333 for 3, or 250.0 for 4"),
    ],
)
def test_a_size_that_such_lots_cannot_have_is_refused(sampling, size, message):
    with pytest.raises(UserError) as error:
        sampling.check("L", size, 1000)
    assert message in str(error.value)


@pytest.mark.parametrize("bins", [1, 3, 7, 21, 1000, 166_667])
def test_n_over_b_is_a_size_of_bins_however_it_is_rounded(bins):
    n = 10**8
    BALLS.check("L", n / bins, n)
    assert BALLS.lots_per_epoch(n / bins, n) == bins
    assert round(1 / lot(n / bins, n).sampling_probability) == bins
