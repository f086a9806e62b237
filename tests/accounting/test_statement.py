"""The guarantee in words."""

import math

import pytest

from dpexp._validate import UserError
from dpexp.accounting import api
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Release,
    Repeated,
)
from dpexp.accounting.statement import KEYED, NOT_COVERED, ONE_LOT_AN_EPOCH, Statement, without_amplification

ADD = Relation.ADD_OR_REMOVE_ONE
STEP = Gaussian(noise_multiplier=4)
EPOCHS = BallsAndBins(gaussian=STEP, lots=100, epochs=100)
LOTS = Repeated(PoissonSampled(gaussian=STEP, sampling_probability=0.01), 10_000)


def guarantee(**changes):
    facts = {
        "epsilon": api.epsilon(noise_multiplier=4, sampling_probability=0.01, steps=10_000, delta=1e-5),
        "sampler": "every row enters every lot independently with probability 0.01",
        "releases": (Release("the gradients of 10000 lots", LOTS), Release("the PCA of the rows", STEP)),
        "steps": 10_000,
        "num_examples": 60_000,
        "if_sampling_fails": without_amplification(EPOCHS, delta=1e-5, relation=ADD),
        "failed_sampling": ONE_LOT_AN_EPOCH,
    }
    return Statement(**{**facts, **changes})


def figure(value, kind=Kind.ESTIMATE, **attributes):
    attributes = {"delta": 1e-5, "relation": ADD, **attributes}
    return PrivacyBound(value, kind=kind, accountant="exact", **attributes)


def test_the_statement_says_everything_it_must():
    text = str(guarantee(not_covered=("the learning curve on the dashboard",)))
    for part in (
        "ε = 1.2586 at δ = 1e-05",  # rounded up
        "adding or removing one example",
        "certified",
        "accountant moments",
        "one row",
        "the PCA of the rows",
        "10000 lots charged",
        "independently with probability 0.01",
        "ε = 13.21 at the same δ",
        "the learning curve on the dashboard",
        *NOT_COVERED,
    ):
        assert part in text


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.CERTIFIED])
def test_only_a_certified_figure_is_quoted(kind):
    with pytest.raises(UserError, match=f"certified figure; this one is {kind}"):
        guarantee(epsilon=figure(1.0, kind))
    with pytest.raises(UserError, match="if_sampling_fails"):
        guarantee(if_sampling_fails=figure(1.0, kind))


def test_a_delta_or_a_noise_multiplier_is_not_quoted_as_an_epsilon():
    for wrong in (
        figure(1e-6, Kind.CERTIFIED, delta=None),
        figure(4, Kind.CERTIFIED, quantity=Quantity.NOISE_MULTIPLIER),
        figure(4, Kind.CERTIFIED, quantity=Quantity.REALIZED_LOSS),  # an odometer's
    ):
        with pytest.raises(UserError, match="an ε at some δ"):
            guarantee(epsilon=wrong)


def test_an_estimate_may_stand_beside_within_one_percent_only():
    certified = figure(1.0, Kind.CERTIFIED)
    assert "estimates 0.995" in str(guarantee(epsilon=certified, estimate=figure(0.995)))
    for value, kind in ((0.98, Kind.ESTIMATE), (1.02, Kind.ESTIMATE), (0.995, Kind.ASYMPTOTIC)):
        with pytest.raises(UserError, match="within 1 %"):
            guarantee(epsilon=certified, estimate=figure(value, kind))


def test_the_tight_bound_and_the_exact_estimate_stand_together():
    run = {"noise_multiplier": 4, "sampling_probability": 0.01, "steps": 10_000, "delta": 1e-5}
    tight, exact = (api.epsilon(**run, accountant=name) for name in ("pld", "exact"))
    text = str(guarantee(epsilon=tight, estimate=exact))
    assert "ε = 0.947 at δ = 1e-05" in text
    assert "accountant exact estimates 0.9469" in text


def test_figures_for_another_delta_or_relation_are_refused():
    with pytest.raises(UserError, match="same δ and relation"):
        guarantee(if_sampling_fails=without_amplification(STEP, delta=1e-6, relation=ADD))
    other = without_amplification(STEP, delta=1e-5, relation=Relation.REPLACE_ONE)
    with pytest.raises(UserError, match="same δ and relation"):
        guarantee(if_sampling_fails=other)


def test_randomness_keyed_by_the_seed_is_no_guarantee():
    text = str(guarantee(randomness=KEYED))
    assert text.startswith("THIS IS ARITHMETIC, NOT A GUARANTEE")
    with pytest.raises(UserError, match="randomness"):
        guarantee(randomness="public")


def test_a_large_delta_is_warned_of_in_the_statement():
    assert "1/N" not in str(guarantee())
    assert "1/N" in str(guarantee(num_examples=200_000))


def test_without_amplification_is_the_partition_bound_or_full_composition():
    # E = 100 epochs at σ = 4: golden rows partition_upper
    once_an_epoch = without_amplification(EPOCHS, delta=1e-5, relation=ADD)
    assert float(once_an_epoch) == pytest.approx(13.206712240451987, rel=1e-9)
    shuffled = Partitioned(gaussian=STEP, epochs=100)
    replaced = without_amplification(shuffled, delta=1e-5, relation=Relation.REPLACE_ONE)
    assert float(replaced) == pytest.approx(33.103732335922465, rel=1e-9)
    any_lot = without_amplification(LOTS, delta=1e-5, relation=ADD)
    all_rows = without_amplification(Repeated(STEP, 10_000), delta=1e-5, relation=ADD)
    assert any_lot == all_rows > once_an_epoch
    assert without_amplification(Composed(()), delta=1e-5, relation=ADD) == 0
    assert math.isinf(without_amplification(Gaussian(noise_multiplier=0), delta=1e-5, relation=ADD))


def test_lots_that_need_not_be_secret_are_said_not_to():
    text = str(guarantee(if_sampling_fails=None, sampler="every lot is all rows"))
    assert "Lots: every lot is all rows. It is not assumed that lots are secret." in text


def test_the_statement_says_what_is_left_when_lots_are_known():
    known = str(guarantee())
    assert guarantee().epsilon <= guarantee().if_sampling_fails
    assert (
        "If that fails, and every row was in one lot of every epoch, whatever the other rows, what" in known
    )
    with pytest.raises(UnsupportedEventError, match="shuffle under add_or_remove_one"):
        without_amplification(Partitioned(gaussian=STEP, epochs=100), delta=1e-5, relation=ADD)
