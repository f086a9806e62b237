"""What clipping rules cost, and where an adaptive clip norm goes."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import Relation, RenyiAccountant, gradient_multiplier_beside_fraction_query
from dpexp.accounting.budget import total
from dpexp.clip_rules import Adaptive, FractionQuery
from dpexp.planning import plan_as_json
from dpexp.privacy import NoPrivacy
from dpexp.schedules import Linear
from tests.plans import ADAPTIVE, PER_LAYER, private_plan, settings


def adaptive_plan(**changes):
    keys = {"clipping": "adaptive", "adaptive": ADAPTIVE, "steps": 500, "epsilon": None}
    return private_plan(**(keys | {"accountant": RenyiAccountant()} | changes))


def flat_plan(**changes):
    return private_plan(**({"steps": 500, "epsilon": None, "accountant": RenyiAccountant()} | changes))


def epsilon(plan):
    account = plan.guarantee.charged_account(plan.guarantee.accountant)
    return float(total(account, list(plan.phases(plan.steps))))


def gaussian(plan):
    return plan.step(0).event.gaussian


@given(sigma=st.floats(0.5, 20), noise_std=st.floats(1, 100))
def test_the_query_joins_the_gradients_on_the_same_lot(sigma, noise_std):
    plan = adaptive_plan(noise_multiplier=sigma, adaptive=ADAPTIVE | {"noise_std": noise_std})
    expected = (sigma**-2 + (2 * noise_std) ** -2) ** -0.5
    assert gaussian(plan).noise_multiplier == pytest.approx(expected, rel=1e-12)
    assert gaussian(plan).replace_one_factor == pytest.approx(2, rel=1e-12)


@given(z=st.floats(0.5, 20), noise_std=st.floats(11, 100))
def test_gradients_noised_as_the_paper_says_cost_what_flat_clipping_does(z, noise_std):
    sigma = gradient_multiplier_beside_fraction_query(z, noise_std)
    plan = adaptive_plan(noise_multiplier=sigma, adaptive=ADAPTIVE | {"noise_std": noise_std})
    assert gaussian(plan).noise_multiplier == pytest.approx(z, rel=1e-12)


def test_every_group_asks_and_pays_for_a_query_of_its_own():
    plan = adaptive_plan(layers=PER_LAYER)
    expected = (2 * 4**-2 + 2 * 60**-2) ** -0.5  # σ_b = L/20 = 30, so 2σ_b = 60
    assert gaussian(plan).noise_multiplier == pytest.approx(expected, rel=1e-12)


def test_a_group_with_its_own_lot_asks_that_lot():
    layers = {"hidden": {"parameters": "hidden.*", "lot_size": 60}, "output": {"parameters": "output.*"}}
    common, hidden = adaptive_plan(layers=layers).step(0).event.events
    assert common.gaussian.noise_multiplier == pytest.approx((4**-2 + 60**-2) ** -0.5)
    assert hidden.gaussian.noise_multiplier == pytest.approx((4**-2 + 6**-2) ** -0.5)


@pytest.mark.parametrize("relation", list(Relation))
def test_adapting_costs_more_than_a_fixed_c_at_the_same_sigma(relation):
    changes = {"relation": str(relation), "noise_multiplier": 2}
    costs = [epsilon(flat_plan(**changes))]
    costs += [epsilon(adaptive_plan(adaptive=ADAPTIVE | {"noise_std": s}, **changes)) for s in (None, 3, 1)]
    assert costs == sorted(set(costs))


def test_auto_s_costs_what_flat_clipping_does():
    assert flat_plan(clipping="automatic").step(0).event == flat_plan().step(0).event


def test_noise_is_solved_with_the_query_in_the_budget():
    changes = {"noise_multiplier": None, "epsilon": 2}
    plan = adaptive_plan(adaptive=ADAPTIVE | {"noise_std": 3}, **changes)
    assert 2 * (1 - 1e-3) <= epsilon(plan) <= 2
    flat = flat_plan(**changes).step(0).groups[0].noise_multiplier
    assert plan.step(0).groups[0].noise_multiplier > flat


@dataclass(frozen=True)
class TwiceAsFar:
    """A rule under which one example moves the sum by 2C, or 3C where it is replaced."""

    name = "twice"
    in_words = "twice as far"

    def sensitivity(self, relation):
        return 3.0 if relation is Relation.REPLACE_ONE else 2.0

    def query(self, lot_size):
        return None


def test_the_plan_prices_the_sensitivity_that_the_rule_states():
    plan = flat_plan()
    [group] = plan.groups
    priced = gaussian(replace(plan, groups=(replace(group, clipping=TwiceAsFar()),)))
    assert (priced.noise_multiplier, priced.replace_one_factor) == (4 / 2, 3 / 2)


def test_a_lot_size_that_varies_varies_the_price_of_the_query():
    plan = adaptive_plan(lot_size=Linear(start=600, end=300, over=50), steps=60)
    from_phases = [phase.event for phase in plan.phases(60) for _ in range(phase.lots)]
    assert from_phases == [plan.step(t).event for t in range(60)]
    assert from_phases[50].gaussian.noise_multiplier == pytest.approx((4**-2 + 30**-2) ** -0.5)


QUERY = FractionQuery(quantile=0.7, learning_rate=0.3, noise_std=5, lot_size=100)


@given(clip_norm=st.floats(1e-2, 1e2), within=st.floats(-50, 50))
def test_one_update_is_that_of_the_paper(clip_norm, within):
    expected = clip_norm * math.exp(-0.3 * (within / 100 + 0.5 - 0.7))
    assert QUERY.next_clip_norm(clip_norm, within, 1.0) == pytest.approx(expected, rel=1e-12)


@given(clip_norm=st.floats(1e-6, 1e6), noisy=st.floats(-1e300, 1e300))
def test_no_noise_drives_c_to_zero_or_infinity(clip_norm, noisy):
    assert 0.999e-6 <= QUERY.next_clip_norm(clip_norm, noisy, 1.0) <= 1.001e6


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_c_comes_to_the_quantile_of_a_known_distribution(quantile):
    rng = np.random.default_rng(1)
    query = FractionQuery(quantile=quantile, learning_rate=0.2, noise_std=30, lot_size=600)
    clip_norm, late = 0.1, []
    for t in range(1500):
        norms = rng.lognormal(mean=1, sigma=0.5, size=rng.binomial(60_000, 0.01))
        within = (norms <= clip_norm).sum() - norms.size / 2 + rng.normal(0, query.noise_std)
        clip_norm = query.next_clip_norm(clip_norm, within, 0.1)
        late += [math.log(clip_norm)] if t >= 500 else []
    # log C is autoregressive with noise 0.2·√(30² + 150)/600 = 0.011 a step and rate 0.2·density >= 0.07, so
    # the mean of 1000 steps has std 0.011/(0.07·√1000) = 0.005 about a quantile; four of them are allowed.
    z = {0.2: -0.8416, 0.5: 0.0, 0.9: 1.2816}[quantile]
    assert np.mean(late) == pytest.approx(1 + 0.5 * z, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clipping": "adaptve"}, "Did you mean adaptive"),
        ({"clipping": "auto"}, "one of flat, automatic, adaptive"),
        ({"adaptive": None}, "privacy.adaptive = None: expected a mapping with quantile"),
        ({"adaptive": 3}, "privacy.adaptive = 3"),
        ({"adaptive": ADAPTIVE | {"quantil": 1}}, "Did you mean quantile"),
        ({"clipping": "flat", "adaptive": ADAPTIVE | {"quantil": 1}}, "Did you mean quantile"),
        ({"adaptive": {"quantile": 0.5}}, "privacy.adaptive.learning_rate = None"),
        ({"adaptive": ADAPTIVE | {"quantile": 0}}, "privacy.adaptive.quantile = 0"),
        ({"adaptive": ADAPTIVE | {"quantile": 1}}, "privacy.adaptive.quantile = 1"),
        ({"adaptive": ADAPTIVE | {"learning_rate": -1}}, "privacy.adaptive.learning_rate = -1"),
        ({"adaptive": ADAPTIVE | {"noise_std": 0}}, "null means L/20"),
        ({"adaptive": ADAPTIVE | {"noise_std": math.inf}}, "privacy.adaptive.noise_std"),
        ({"clip_norm": Linear(start=4, end=1, over=9)}, "a number to start from"),
        ({"clip_norm": math.inf}, "privacy.clip_norm"),
        ({"clipping": "automatic", "clip_norm": math.inf}, "privacy.clip_norm"),
        ({"noise_multiplier": None, "epsilon": 0.01}, "raise privacy.adaptive.noise_std"),
    ],
)
def test_impossible_clipping_is_refused_with_its_key_on_one_screen(changes, message):
    with pytest.raises(UserError) as error:
        adaptive_plan(**changes)
    assert message in str(error.value)
    assert str(error.value).count("\n") <= 3


def test_an_adaptive_rule_says_what_it_does_in_plan_and_words():
    [group] = plan_as_json(adaptive_plan())["groups"]
    assert group["clipping"] == "adaptive"
    assert "0.5 quantile" in group["clipping_in_words"]
    assert "L/20" in group["clipping_in_words"]
    assert "std 7 " in Adaptive(**(ADAPTIVE | {"noise_std": 7})).in_words


def test_without_privacy_the_keys_are_taken_and_listed_as_ignored():
    unset = dict.fromkeys(ADAPTIVE)
    assert NoPrivacy(lot_size=6, steps=1, epochs=None, adaptive=unset).ignored() == {}
    chosen = NoPrivacy(lot_size=6, steps=1, epochs=None, clipping="adaptive", adaptive=ADAPTIVE)
    assert chosen.ignored() == {"clipping": "adaptive", "adaptive": ADAPTIVE}
    assert settings(clipping="adaptive", adaptive=ADAPTIVE).ignored() == {}
