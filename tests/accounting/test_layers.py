"""Several noised sums over one lot are one release; accounting them apart reports too little."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexp.accounting import api
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.events import Composed, Gaussian, PoissonSampled, Relation, joint

ADD = Relation.ADD_OR_REMOVE_ONE
quick = settings(max_examples=25, deadline=None, derandomize=True)


def wrong_sums():
    path = Path(__file__).parents[1] / "golden" / "accounting.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["accountant"] == "WRONG_sum_over_layers"]
    for row in rows:
        sigmas = [float(sigma) for sigma in row["sigma"].split(";")]
        yield sigmas, int(row["steps"].split(";")[0]), float(row["delta"]), float(row["value"])


@pytest.mark.parametrize(("sigmas", "steps", "delta", "wrong"), list(wrong_sums()))
def test_layers_on_one_lot_cost_more_than_the_sum_the_original_code_takes(sigmas, steps, delta, wrong):
    together = joint([Gaussian(noise_multiplier=sigma) for sigma in sigmas]).noise_multiplier
    run = {"noise_multiplier": together, "sampling_probability": 0.01, "steps": steps, "delta": delta}
    assert float(api.epsilon(**run, accountant="rdp")) > wrong
    assert float(api.epsilon(**run, accountant="moments")) > wrong


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
