"""Every sampling by name under every accountant and relation: a figure, or a refusal."""

import itertools

import pytest

from dpexp.accounting import api, registry, schemes
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.bounds import Kind
from dpexp.accounting.events import Relation
from dpexp.accounting.samplers import Sampler, rule_of

RUN = {"noise_multiplier": 4, "steps": 10_000, "delta": 1e-5}
ALL = list(itertools.product(schemes.SAMPLING, Relation, registry.accountants_by_name))


def listed(sampling, relation, accountant):
    return accountant in rule_of(Sampler(sampling), relation).accountants


def share(sampling):
    return 1 if sampling == "full" else 0.01


@pytest.mark.parametrize(("sampling", "relation", "accountant"), [row for row in ALL if listed(*row)])
def test_a_sampling_of_the_table_has_a_figure(sampling, relation, accountant):
    scheme = {"sampling": sampling, "relation": str(relation), "accountant": accountant}
    bound = api.epsilon(**RUN, **scheme, sampling_probability=share(sampling))
    assert float(bound) > 0
    assert (bound.sampler, bound.relation, bound.accountant) == (sampling, relation, accountant)


@pytest.mark.parametrize("sigma", [4, 0])
@pytest.mark.parametrize(("sampling", "relation", "accountant"), [row for row in ALL if not listed(*row)])
def test_a_sampling_not_in_the_table_is_refused_by_name(sampling, relation, accountant, sigma):
    scheme = {"sampling": sampling, "relation": str(relation), "accountant": accountant}
    run = {**RUN, "noise_multiplier": sigma, "sampling_probability": share(sampling)}
    with pytest.raises(UnsupportedEventError, match=f"{accountant}.*{sampling}.*{relation}"):
        api.epsilon(**run, **scheme)


@pytest.mark.parametrize(
    ("sampling", "relation", "accountant", "low", "high"),
    [
        ("without_replacement", "replace_one", "pld", 2.163, 2.5625),  # golden: lower bound, certified upper
        ("without_replacement", "replace_one", "rdp", 2.163, 2.7795),
        ("shuffle", "zero_out", "pld", 13.2067, 13.2068),
        ("shuffle", "replace_one", "pld", 33.1037, 33.1038),
        ("balls_and_bins", "add_or_remove_one", "rdp", 0.9469, 1.0356),
        ("poisson", "add_or_remove_one", "pld", 0.946866, 0.9478),
    ],
)
def test_certified_figures_lie_where_the_research_found_them(sampling, relation, accountant, low, high):
    scheme = {"sampling": sampling, "relation": relation, "accountant": accountant}
    bound = api.epsilon(**RUN, **scheme, sampling_probability=0.01)
    assert bound.kind is Kind.CERTIFIED
    assert low <= float(bound) <= high


def test_replacing_one_costs_more_than_adding_or_removing_one():
    for accountant in ("pld", "exact"):
        one = api.epsilon(**RUN, sampling_probability=0.01, accountant=accountant)
        both = api.epsilon(**RUN, sampling_probability=0.01, accountant=accountant, relation="replace_one")
        assert float(one) < float(both)
