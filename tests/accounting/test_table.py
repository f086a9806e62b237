"""Every cell of the table: a figure that an independent one confirms, or a refusal that says what would work.

The oracles integrate the densities of the pairs as docs/theory/sampling.md states them, for one release (one
epoch) at σ = 1.5; no code of dpexp is in them.
"""

import functools

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dpexp.accounting import (
    BallsAndBins,
    FixedSizeSampled,
    Gaussian,
    Kind,
    Partitioned,
    PoissonSampled,
    Relation,
    accountants_by_name,
    as_accountant,
)
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.samplers import TABLE, Sampler, rule_of

SIGMA, Q, BINS, DELTA = 1.5, 0.1, 2, 1e-4
ADD, REPLACE, ZERO = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE, Relation.ZERO_OUT
NOISE = Gaussian(noise_multiplier=SIGMA)
EVENTS = {
    Sampler.FULL: NOISE,
    Sampler.POISSON: PoissonSampled(gaussian=NOISE, sampling_probability=Q),
    Sampler.WITHOUT_REPLACEMENT: FixedSizeSampled(gaussian=NOISE, lot_size=10, population=100),
    Sampler.SHUFFLE: Partitioned(gaussian=NOISE, epochs=1),
    Sampler.BALLS_AND_BINS: BallsAndBins(gaussian=NOISE, lots=BINS, epochs=1),
}
Z = np.linspace(-20, 20, 40_001)
NULL, UP, DOWN = (stats.norm.pdf(Z, mean, SIGMA) for mean in (0, 1, -1))
NULL_F, UP_F = (
    stats.norm.pdf(Z, mean, SIGMA / 2) for mean in (0, 1)
)  # replacing, in units of its sensitivity


def mix(one, other, q):
    return (1 - q) * one + q * other


def in_the_plane():
    z = np.linspace(-12, 12, 301)
    null, up = (stats.norm.pdf(z, mean, SIGMA) for mean in (0, 1))
    return (np.outer(up, null) + np.outer(null, up)) / 2, np.outer(null, null), (z[1] - z[0]) ** 2


BALLS_P, BALLS_Q, CELL = in_the_plane()
STEP = Z[1] - Z[0]
PAIRS = {  # (P, Q, cell), in the direction that is worse for δ
    (Sampler.FULL, ADD): (UP, NULL, STEP),
    (Sampler.FULL, ZERO): (UP, NULL, STEP),
    (Sampler.FULL, REPLACE): (UP_F, NULL_F, STEP),
    (Sampler.POISSON, ADD): (mix(NULL, UP, Q), NULL, STEP),
    (Sampler.POISSON, ZERO): (mix(NULL, UP, Q), NULL, STEP),
    (Sampler.POISSON, REPLACE): (mix(NULL, UP, Q), mix(NULL, DOWN, Q), STEP),
    (Sampler.WITHOUT_REPLACEMENT, REPLACE): (mix(NULL_F, UP_F, Q), NULL_F, STEP),
    (Sampler.WITHOUT_REPLACEMENT, ZERO): (mix(NULL_F, UP_F, Q), NULL_F, STEP),
    (Sampler.SHUFFLE, ZERO): (UP, NULL, STEP),
    (Sampler.SHUFFLE, REPLACE): (UP_F, NULL_F, STEP),
    (Sampler.BALLS_AND_BINS, ADD): (BALLS_P, BALLS_Q, CELL),
    (Sampler.BALLS_AND_BINS, ZERO): (BALLS_P, BALLS_Q, CELL),
}
PRICED = [(rule, name) for rule in TABLE for name in rule.accountants]
REFUSED = [(rule, name) for rule in TABLE for name in accountants_by_name if name not in rule.accountants]


def true_delta(cell, epsilon):
    """sup over sets of P - e^ε Q, the larger direction."""
    p, q, area = PAIRS[cell]
    both = (p - np.exp(epsilon) * q, q - np.exp(epsilon) * p)
    return max(np.maximum(difference, 0).sum() * area for difference in both)


@functools.cache
def true_epsilon(cell, delta=DELTA):
    return optimize.brentq(lambda epsilon: true_delta(cell, epsilon) - delta, 0, 50, xtol=1e-10)


def true_moment(cell, order):
    """log E_P[(P/Q)^λ] of the larger direction."""
    p, q, area = PAIRS[cell]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.nan_to_num(np.log(p) - np.log(q))
        return max(np.log(np.sum(x * np.exp(sign * order * loss)) * area) for x, sign in ((p, 1), (q, -1)))


def figure(rule, name, delta=DELTA):
    accountant = as_accountant(name)
    return accountant.epsilon(accountant.price(EVENTS[rule.sampler], rule.relation), delta, rule.relation)


def test_every_cell_is_here_once():
    assert len(PRICED) + len(REFUSED) == len(Sampler) * len(Relation) * len(accountants_by_name)
    assert set(PAIRS) == {(rule.sampler, rule.relation) for rule in TABLE if rule.accountants}


@pytest.mark.parametrize(("rule", "name"), PRICED, ids=lambda v: getattr(v, "sampler", v))
def test_a_priced_cell_is_confirmed_by_the_densities(rule, name):
    cell, bound = (rule.sampler, rule.relation), figure(rule, name)
    truth = true_epsilon(cell)
    if name == "gdp":
        assert bound.kind is Kind.ASYMPTOTIC
        assert float(bound) == pytest.approx(limit(cell), rel=1e-6)
    elif name == "exact":
        assert bound.kind is Kind.ESTIMATE
        assert float(bound) == pytest.approx(truth, rel=2e-3)
    else:
        assert bound.kind is Kind.CERTIFIED
        assert float(bound) >= truth * (1 - 1e-6)
        assert float(bound) <= farthest(cell, name, truth)


def farthest(cell, name, truth):
    """How far above the truth each certified figure may be."""
    if name == "pld" and cell[0] is not Sampler.BALLS_AND_BINS:
        return truth * 1.002
    if name == "strong_composition":
        return true_epsilon(cell, 0.99 * DELTA) * 1.01  # one release: almost all of δ is its own
    return converted(cell)


@functools.cache
def converted(cell):
    """min over λ of (α(λ) + log(1/δ))/λ with true moments, which rdp and moments may not exceed by much."""
    slack = 2.5 if cell in ((Sampler.POISSON, REPLACE), (Sampler.BALLS_AND_BINS, ADD)) else 1.001
    return slack * min((true_moment(cell, order) - np.log(DELTA)) / order for order in range(1, 13))


MOMENTS_EXACT = [
    rule for rule in TABLE if "rdp" in rule.accountants and rule.sampler is not Sampler.BALLS_AND_BINS
]


@pytest.mark.parametrize("rule", MOMENTS_EXACT, ids=lambda rule: f"{rule.sampler}-{rule.relation}")
def test_moments_are_those_of_the_densities(rule):
    accountant = as_accountant("moments")
    alpha = accountant.price(EVENTS[rule.sampler], rule.relation).alpha
    for order in (1, 2, 5, 8):
        truth, found = true_moment((rule.sampler, rule.relation), order), alpha[order - 1]
        assert found >= truth * (1 - 1e-7)
        if rule.sampler is Sampler.WITHOUT_REPLACEMENT:
            assert found == pytest.approx(curve_moment(order), rel=1e-6)
        elif (rule.sampler, rule.relation) != (
            Sampler.POISSON,
            REPLACE,
        ):  # there Cauchy-Schwarz is in between
            assert found == pytest.approx(truth, rel=1e-6)


def curve_moment(order):
    """α(λ) of the pair with losses ±log R on z > 1/2, R = 1 - q + qE (docs/theory/sampling.md, section 4)."""
    s = SIGMA / 2

    def integrand(z):
        r = 1 - Q + Q * np.exp((2 * z - 1) / (2 * s * s))
        gain = r ** (order + 1) - 1 - (order + 1) * (r - 1) + r**-order - 1 + order * (r - 1)
        return stats.norm.pdf(z, 0, s) * gain

    return np.log1p(integrate.quad(integrand, 0.5, 30, epsabs=1e-14, epsrel=1e-11, limit=400)[0])


@pytest.mark.parametrize("relation", [ADD, ZERO])
def test_moments_of_balls_and_bins_are_above_both_directions_and_close(relation):
    alpha = as_accountant("moments").price(EVENTS[Sampler.BALLS_AND_BINS], relation).alpha
    for order in (1, 2, 5, 8):
        truth = true_moment((Sampler.BALLS_AND_BINS, relation), order)
        assert truth * (1 - 1e-6) <= alpha[order - 1] <= 1.5 * truth


def limit(cell):
    """ε of the Gaussian limit, μ² as in docs/theory/sampling.md, section 7."""
    sampler, relation = cell
    factor = 2 if relation is REPLACE or sampler is Sampler.WITHOUT_REPLACEMENT else 1
    factor = 1 if cell == (Sampler.WITHOUT_REPLACEMENT, ZERO) else factor
    s = SIGMA / factor
    if sampler is Sampler.POISSON:
        squared = Q**2 * np.expm1(1 / s**2)
    elif sampler is Sampler.WITHOUT_REPLACEMENT:
        s = SIGMA / 2
        cdf = stats.norm.cdf
        squared = 2 * Q**2 * (np.exp(1 / s**2) * cdf(1.5 / s) + 3 * cdf(-0.5 / s) - 2)
    else:
        squared = 1 / s**2
    mu = np.sqrt(squared)

    def excess(epsilon):
        high, low = stats.norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return high - np.exp(epsilon) * low - DELTA

    return optimize.brentq(excess, 0, 50, xtol=1e-12)


@pytest.mark.parametrize(("rule", "name"), REFUSED, ids=lambda v: getattr(v, "sampler", v))
def test_a_refused_cell_names_accountant_sampler_relation_and_what_would_work(rule, name):
    accountant = as_accountant(name)
    with pytest.raises(UnsupportedEventError) as error:
        accountant.price(EVENTS[rule.sampler], rule.relation)
    message = str(error.value)
    assert all(word in message for word in (name, str(rule.sampler), str(rule.relation), rule.status))
    working = [r for r in Relation if name in rule_of(rule.sampler, r).accountants]
    assert working or rule.accountants or name in ("exact", "gdp", "strong_composition")
    assert all(str(relation) in message for relation in working)
    if rule.accountants:
        assert f"accountant={', '.join(rule.accountants)}" in message
