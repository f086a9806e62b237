"""Several noised sums over one lot are one release; accounting them apart reports too little."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp.accounting import api
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.events import Composed, Gaussian, PoissonSampled, Relation, joint
from tests.accounting.golden import rows

ADD = Relation.ADD_OR_REMOVE_ONE
quick = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.parametrize("row", rows("WRONG_sum_over_layers"), ids=str)
def test_layers_on_one_lot_cost_more_than_the_sum_the_original_code_takes(row):
    q, _, steps = row.groups[0]
    sigma = joint([Gaussian(noise_multiplier=sigma) for _, sigma, _ in row.groups]).noise_multiplier
    run = {"noise_multiplier": sigma, "sampling_probability": q, "steps": steps, "delta": float(row.delta)}
    assert float(api.epsilon(**run, accountant="rdp")) > row.number
    assert float(api.epsilon(**run, accountant="moments")) > row.number


@quick
@given(st.lists(st.floats(0.5, 20), min_size=2, max_size=6), st.floats(1e-4, 0.5))
def test_one_lot_never_costs_less_than_a_lot_for_every_layer(sigmas, q):
    accountant = RenyiAccountant()
    layers = [Gaussian(noise_multiplier=sigma) for sigma in sigmas]
    shared = PoissonSampled(gaussian=joint(layers), sampling_probability=q)
    apart = Composed(tuple(PoissonSampled(gaussian=part, sampling_probability=q) for part in layers))
    ours, summed = accountant.price(shared, ADD).alpha, accountant.price(apart, ADD).alpha
    assert (ours >= summed * (1 - 1e-9)).all()


@quick
@given(st.floats(0.5, 20), st.integers(1, 12))
def test_an_equal_split_over_layers_costs_what_one_layer_does(sigma, layers):
    parts = [Gaussian(noise_multiplier=sigma * layers**0.5)] * layers
    assert joint(parts).noise_multiplier == pytest.approx(sigma, rel=1e-12)
    assert joint(parts).replace_one_factor == pytest.approx(2, rel=1e-12)
