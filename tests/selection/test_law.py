"""K is drawn from the very law that is priced."""

import math
from collections import Counter
from decimal import localcontext
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from dpexp._validate import UserError
from dpexp.accounting.selection import log_inverse_gamma
from dpexp.selection import NegativeBinomial, Poisson
from dpexp.selection import law as laws

MANY = [
    NegativeBinomial(mean_trials=10),
    NegativeBinomial(mean_trials=10, shape=1),
    NegativeBinomial(mean_trials=3, shape=2.5),
    NegativeBinomial(mean_trials=2, shape=-0.5),
    Poisson(mean_trials=3),
]


def chances(law, count):
    with localcontext() as context:
        context.prec = 120
        return [float(chance) for chance in islice(law.chances(), count)]


def oracle(law, k):
    """By SciPy, which knows no γ: the parameter is found from the mean by its own root finder."""
    if isinstance(law, Poisson):
        return stats.poisson.pmf(k, law.mean_trials)
    gamma = math.exp(-log_inverse_gamma(law.mean_trials, law.shape))
    if law.shape == 0:
        return stats.logser.pmf(k, 1 - gamma)
    if law.shape > 0:
        return stats.nbinom.pmf(k, law.shape, gamma) / -math.expm1(law.shape * math.log(gamma))
    steps = np.log1p(-gamma) + np.log1p((law.shape - 1) / np.arange(2, k[-1] + 1))
    weights = np.exp(np.concatenate([[0.0], np.cumsum(steps)]))
    return weights / weights.sum()


@pytest.mark.parametrize("law", MANY, ids=lambda law: law.in_words)
def test_the_probabilities_are_those_of_the_law(law):
    k = np.arange(law.least, 2000)
    found = np.array(chances(law, len(k)))
    assert found == pytest.approx(oracle(law, k), rel=1e-10, abs=1e-300)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert (k * found).sum() == pytest.approx(law.mean_trials, rel=1e-9)


@pytest.mark.parametrize("law", MANY, ids=lambda law: law.in_words)
def test_what_is_drawn_follows_the_law(law):
    """A χ² test on draws from the system's entropy: about one false alarm in 10⁹ runs."""
    draws = 2000
    counts = Counter(laws.draw(law) for _ in range(draws))
    expected = draws * np.array(chances(law, 3000))
    most = int(np.argmax(expected < 8))  # cells beyond are one
    cells = [counts[law.least + index] for index in range(most)]
    cells.append(draws - sum(cells))
    of_law = [*expected[:most], draws - expected[:most].sum()]
    assert stats.chisquare(cells, of_law).pvalue > 1e-9


def test_quantiles_meet_at_the_ends_of_the_unit_interval():
    geometric = NegativeBinomial(mean_trials=2, shape=1)  # P(K = k) = 2⁻ᵏ
    assert [laws.quantile(geometric, level) for level in (0, 0.49, 0.5, 0.74, 0.75)] == [1, 1, 2, 2, 3]
    assert laws._quantile(geometric, 2**256 - 1) == 257  # P(K <= 256) is no more than that
    assert laws.quantile(Poisson(mean_trials=3), 0) == 0


def test_one_trial_on_average_is_one_trial():
    assert {laws.draw(NegativeBinomial(mean_trials=1)) for _ in range(20)} == {1}


def test_a_shape_near_zero_is_as_good_as_zero():
    near, zero = NegativeBinomial(mean_trials=10, shape=1e-9), NegativeBinomial(mean_trials=10)
    assert chances(near, 50) == pytest.approx(chances(zero, 50), rel=1e-7)
    tiny = NegativeBinomial(mean_trials=10, shape=1e-30)
    assert chances(tiny, 50) == pytest.approx(chances(zero, 50), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: NegativeBinomial(mean_trials=0.5), "mean_trials"),
        (lambda: Poisson(mean_trials=math.inf), "mean_trials"),
        (lambda: NegativeBinomial(mean_trials=10, shape=-1), "shape"),
        (lambda: NegativeBinomial(mean_trials=100, shape=-0.9), "never be trained"),
    ],
)
def test_a_law_that_cannot_be_drawn_is_refused(make, named):
    with pytest.raises(UserError, match=named):
        make()
