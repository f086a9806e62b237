import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexp._validate import UserError
from dpexp.accounting import Composed, MomentsAccountant, PoissonSampled, Relation, RenyiAccountant
from dpexp.accounting.budget import total
from dpexp.schedules import Exponential, Linear, Step
from tests.plans import PCA, PER_LAYER, plain_plan, private_plan, settings


def epsilon(plan, steps):
    account = plan.guarantee.charged_account(plan.guarantee.accountant)
    return float(total(account, list(plan.phases(steps))))


def test_the_papers_worked_number_is_a_noise_std_of_16_and_16_over_600():
    [group] = private_plan(lot_size=600, clip_norm=4, noise_multiplier=4).step(0).groups
    assert group.noise_std == 16
    assert group.noise_std / group.divisor == 16 / 600


@pytest.mark.parametrize(
    ("sigma", "sigma_pca", "budget", "epochs"), [(8, 16, 0.5, 14), (4, 7, 2, 103), (2, 4, 8, 306)]
)
def test_the_papers_budgets_with_per_layer_clipping_allow(sigma, sigma_pca, budget, epochs):
    release = PCA.__class__("dp_pca", PCA.event.__class__(noise_multiplier=sigma_pca))
    plan = private_plan(noise_multiplier=sigma, epsilon=budget, layers=PER_LAYER, releases=(release,))
    assert math.floor(plan.steps / 100) == epochs
    assert epsilon(plan, plan.steps) <= budget < epsilon(plan, plan.steps + 1)


@given(
    sigma=st.floats(0.7, 20),
    lot_size=st.floats(1, 3000),
    budget=st.floats(6.5, 9),  # one lot of 3,000 at σ = 0.7/√2 takes 6.46
    layered=st.booleans(),
)
def test_the_budget_is_used_up_and_never_passed(sigma, lot_size, budget, layered):
    layers = PER_LAYER if layered else None
    plan = private_plan(
        noise_multiplier=sigma,
        lot_size=lot_size,
        epsilon=budget,
        layers=layers,
        steps=3000,
        accountant=RenyiAccountant(),
    )
    assert epsilon(plan, plan.steps) <= budget
    assert plan.steps == 3000 or epsilon(plan, plan.steps + 1) > budget


@given(target=st.floats(0.3, 8), steps=st.integers(1, 2000), lot_size=st.floats(10, 3000))
def test_the_solved_noise_meets_the_budget_from_below_and_closely(target, steps, lot_size):
    plan = private_plan(
        noise_multiplier=None, steps=steps, epsilon=target, lot_size=lot_size, accountant=RenyiAccountant()
    )
    assert plan.steps == steps
    assert target * (1 - 1e-3) <= epsilon(plan, steps) <= target


@pytest.mark.parametrize("target", [0.5, 1, 2.5, 7])
def test_the_solved_noise_is_the_number_that_is_printed(target):
    plan = private_plan(noise_multiplier=None, steps=1000, epsilon=target)
    sigma = plan.step(0).groups[0].noise_multiplier
    assert sigma == float(f"{sigma:.7g}")
    assert target * (1 - 1e-3) <= epsilon(plan, 1000) <= target


def test_a_target_in_a_gap_of_the_accountant_is_refused_with_another_accountant():
    keys = {"noise_multiplier": None, "steps": 1000, "epsilon": 0.3}
    with pytest.raises(
        UserError, match=r"privacy\.epsilon = 0\.3: expected at least 0\.36.*moments.*\n.*pld"
    ):
        private_plan(**keys)
    assert private_plan(**keys, accountant=RenyiAccountant()).step(0).groups[0].noise_multiplier < 20


def test_only_groups_without_their_own_noise_are_solved_for():
    layers = {
        "hidden": {"parameters": "hidden.*", "noise_multiplier": 5},
        "output": {"parameters": "output.*"},
    }
    plan = private_plan(noise_multiplier=None, steps=1000, epsilon=2, layers=layers)
    hidden, output = plan.step(0).groups
    assert hidden.noise_multiplier == 5
    assert output.noise_multiplier < 5
    assert epsilon(plan, 1000) <= 2


def test_groups_on_one_lot_are_one_gaussian_of_the_joint_multiplier():
    event = private_plan(layers=PER_LAYER).step(0).event
    assert isinstance(event, PoissonSampled)
    assert event.gaussian.noise_multiplier == pytest.approx(4 / math.sqrt(2))


def test_a_group_with_its_own_lot_is_a_release_of_its_own():
    layers = {
        "hidden": {"parameters": "hidden.*", "lot_size": 300},
        "output": {"parameters": "output.*", "lot_size": 600},
        "scale": {"parameters": "scale.*", "lot": "hidden"},
    }
    plan = private_plan(layers=layers, steps=5)
    step = plan.step(0)
    assert [lot.name for lot in step.lots] == ["hidden", "output"]
    assert isinstance(step.event, Composed)
    first, second = step.event.events
    assert first.sampling_probability == 300 / 60_000
    assert first.gaussian.noise_multiplier == pytest.approx(4 / math.sqrt(2))  # hidden and scale, jointly
    assert second.sampling_probability == 600 / 60_000
    assert [group.divisor for group in step.groups] == [300, 600, 300]


def test_equal_lot_sizes_never_mean_equal_lots():
    layers = {
        "hidden": {"parameters": "hidden.*", "lot_size": 600},
        "output": {"parameters": "output.*"},
    }
    plan = private_plan(layers=layers, steps=5)
    assert [lot.name for lot in plan.lots] == ["common", "hidden"]


@pytest.mark.parametrize(
    "schedule",
    [
        Linear(start=6, end=3, over=3, unit="epochs"),
        Exponential(start=6, factor=0.9, every=100),
        Step(start=6, factor=0.7, every=130),
        Step(start=8, factor=0.98, every=1.1),  # where k·1.1 and t/1.1 round apart
    ],
    ids=lambda schedule: schedule.in_words,
)
def test_phases_are_the_steps(schedule):
    plan = private_plan(noise_multiplier=schedule, clip_norm=Linear(start=4, end=1, over=50), steps=400)
    from_phases = [phase.event for phase in plan.phases(400) for _ in range(phase.lots)]
    assert from_phases == [plan.step(t).event for t in range(400)]


@given(order=st.lists(st.integers(0, 399), min_size=1, max_size=20))
def test_a_step_does_not_depend_on_what_was_asked_before(order):
    schedules = {
        "noise_multiplier": Step(start=6, factor=0.7, every=13),
        "clip_norm": Linear(start=4, end=1, over=50),
    }
    asked = private_plan(steps=400, epsilon=None, **schedules)
    assert [asked.step(t) for t in order] == [replace(asked).step(t) for t in order]


def test_noise_that_falls_over_time_costs_more_than_noise_that_stays():
    falling = Linear(start=4, end=2, over=1000)
    assert private_plan(noise_multiplier=falling).steps < private_plan(noise_multiplier=4).steps


def test_a_lot_size_that_varies_varies_q_and_the_divisor_together():
    plan = private_plan(lot_size=Step(start=600, factor=2, every=10), steps=20)
    for t, size in ((0, 600), (10, 1200)):
        step = plan.step(t)
        assert step.lots[0].sampling_probability == size / 60_000
        assert step.groups[0].divisor == size
        assert step.event.sampling_probability == size / 60_000


def test_steps_win_over_epochs():
    chosen = settings(steps=7, epochs=3)
    assert private_plan(steps=7, epochs=3).steps == 7
    assert chosen.ignored() == {"epochs": 3}


def test_epochs_are_counted_in_expected_passes():
    assert private_plan(epochs=2.5, epsilon=None).steps == 250


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": -1}, "privacy.noise_multiplier = -1.0: expected a number > 0"),
        ({"noise_multiplier": 0}, "privacy=none"),
        ({"noise_multiplier": math.nan}, "privacy.noise_multiplier"),
        ({"noise_multiplier": "4"}, "a number or a schedule"),
        ({"noise_multiplier": None}, "privacy.steps"),
        ({"noise_multiplier": None, "steps": 5, "epsilon": None}, "privacy.epsilon"),
        ({"clip_norm": 0}, "privacy.clip_norm"),
        ({"clip_norm": math.inf}, "privacy.clip_norm"),
        ({"lot_size": 60_001}, "q = L/N must be at most 1"),
        ({"lot_size": 0, "steps": 1}, "privacy.lot_size"),
        ({"lot_size": Linear(start=1, end=9, over=5), "epochs": 1}, "privacy.epochs"),
        ({"lot_size": Linear(start=1, end=9, over=5, unit="epochs")}, "privacy.lot_size.unit"),
        ({"steps": 0}, "privacy.steps"),
        ({"steps": 1.5}, "privacy.steps"),
        ({"epochs": 0}, "privacy.epochs"),
        ({"epsilon": 0}, "privacy.epsilon"),
        ({"epsilon": None}, "privacy.steps"),
        ({"epsilon": 0.01}, "what one lot cost"),
        ({"epsilon": 0.5, "releases": (PCA,)}, "dp_pca alone costs"),
        ({"delta": 1}, "privacy.delta"),
        ({"delta": 0}, "privacy.delta"),
        ({"relation": "add-or-remove-one"}, "Did you mean add_or_remove_one"),
        ({"clipping": "flt"}, "Did you mean flat"),
        ({"noise": "sekure"}, "privacy.noise"),
        ({"deterministic": "yes"}, "true or false"),
        ({"layers": {}}, "null, or entries"),
        ({"layers": {"a b": {"parameters": "*"}}}, "identifier"),
        ({"layers": {"common": {"parameters": "*"}}}, "identifier"),
        ({"layers": {"a": {}}}, "parameters"),
        ({"layers": {"a": {"parameters": "*", "clip": 1}}}, "Did you mean clip_norm"),
        ({"layers": {"a": {"parameters": "*", "clip_norm": "x"}}}, "privacy.layers.a.clip_norm"),
        ({"layers": {"a": {"parameters": "*", "lot": "b"}}}, "privacy.layers.a.lot"),
        ({"layers": {"a": {"parameters": "*", "lot_size": 6, "lot": "a"}}}, "either lot_size"),
    ],
)
def test_impossible_settings_are_refused_with_their_key(changes, message):
    with pytest.raises(UserError) as error:
        private_plan(**changes)
    assert message in str(error.value)


def test_a_schedule_that_epsilon_alone_never_ends_is_refused(monkeypatch):
    monkeypatch.setattr("dpexp.plan.plan.LONGEST_SCHEDULE", 1000)  # of 50,000, to be priced one by one
    with pytest.raises(UserError, match=r"privacy\.steps = None: .*over 1,000 lots"):
        private_plan(noise_multiplier=Exponential(start=4, factor=1.001, every=1))


def test_a_schedule_that_reaches_an_impossible_value_is_refused_before_training():
    with pytest.raises(UserError, match="at step 595"):
        private_plan(lot_size=Linear(start=600, end=600_000, over=6000), steps=5000, epsilon=None)


def test_the_pair_of_zero_out_is_priced_like_add_or_remove():
    assert private_plan(relation="zero_out").steps == private_plan().steps
    assert private_plan(relation="zero_out").guarantee.relation is Relation.ZERO_OUT


def test_replacing_an_example_costs_more_than_adding_one():
    assert private_plan(relation="replace_one").steps < private_plan().steps


def test_an_accountant_of_estimates_cannot_be_configured():
    accountant = MomentsAccountant()
    object.__setattr__(accountant, "kind", "estimate")
    with pytest.raises(UserError, match="certified"):
        private_plan(accountant=accountant)


NAMES = ["hidden.0.weight", "hidden.0.bias", "output.weight", "output.bias"]


def test_one_group_takes_every_parameter_by_default():
    assert private_plan().assign(NAMES) == {"all": tuple(NAMES)}


def test_patterns_assign_every_parameter_to_one_group():
    layers = {
        "bias": {"parameters": "*.bias"},
        "weight": {"parameters": ["hidden.*.weight", "output.weight"]},
    }
    assigned = private_plan(layers=layers).assign(NAMES)
    assert assigned == {"bias": (NAMES[1], NAMES[3]), "weight": (NAMES[0], NAMES[2])}


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            {"a": {"parameters": "hiden.*"}, "b": {"parameters": "*"}},
            "privacy.layers.a.parameters = 'hiden.*'",
        ),
        ({"a": {"parameters": "hidden.*"}, "b": {"parameters": "*"}}, "matched by a and b"),
        ({"a": {"parameters": "hidden.*"}}, "output.weight is matched by no group"),
    ],
)
def test_a_parameter_in_no_group_or_in_two_is_refused(layers, message):
    with pytest.raises(UserError) as error:
        private_plan(layers=layers).assign(NAMES)
    assert message in str(error.value)


def test_without_privacy_nothing_is_clipped_noised_or_priced():
    plan = plain_plan(epochs=2, steps=None)
    step = plan.step(0)
    assert plan.steps == 200
    assert plan.guarantee is None
    assert step.event is None
    assert [(g.clip_norm, g.noise_std, g.divisor) for g in step.groups] == [(math.inf, 0.0, 600.0)]


def test_without_privacy_something_must_end_training():
    with pytest.raises(UserError, match=r"privacy.steps"):
        plain_plan(steps=None)
