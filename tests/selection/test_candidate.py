"""What may be selected among: private, alone, comparable, scored by public rows."""

from dataclasses import replace

import pytest

from dpexp._validate import UserError
from dpexp.budgets import FilterBudget
from dpexp.data import Digits
from dpexp.privacy import NoPrivacy
from dpexp.selection import Candidate, NegativeBinomial, Poisson, Score, Selection, Space
from tests.selection.conftest import SPACE


def with_privacy(experiment, **changes):
    return replace(experiment, privacy=replace(experiment.privacy, **changes))


def without_privacy(experiment):
    fields = {name: getattr(experiment.privacy, name) for name in experiment.privacy.__dataclass_fields__}
    return replace(experiment, privacy=NoPrivacy(**fields))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without_privacy, "privacy = 'none'"),
        (lambda experiment: with_privacy(experiment, deterministic=True), "privacy.deterministic = True"),
        (lambda experiment: with_privacy(experiment, steps=None), "privacy.steps"),
        (lambda experiment: replace(experiment, budget=FilterBudget()), "budget = 'FilterBudget'"),
        (lambda experiment: with_privacy(experiment, epsilon=1e-3), "privacy.epsilon"),
    ],
    ids=["none", "deterministic", "no T", "filter", "too dear"],
)
def test_a_point_that_cannot_be_a_trial_is_refused_by_its_name(experiments, change, named):
    with pytest.raises(UserError, match=named) as refused:
        Candidate.of(["optimizer.lr=0.1"], change(experiments[0]))
    assert "At the point optimizer.lr=0.1" in str(refused.value)


def test_every_point_is_planned_before_anything_is_drawn(experiments):
    impossible = [*experiments[:3], with_privacy(experiments[3], epsilon=1e-3)]
    laws = [NegativeBinomial(mean_trials=10)]
    with pytest.raises(UserError, match=r"optimizer.lr=0.5 privacy.noise_multiplier=3"):
        Selection.of(SPACE, impossible, laws=laws, score=Score("val/accuracy"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda experiment: with_privacy(experiment, delta=1e-6), "privacy.delta"),
        (lambda experiment: with_privacy(experiment, relation="zero_out"), "privacy.relation"),
        (lambda e: replace(e, config={**e.config, "data": {"name": "other"}}), "data"),
        (lambda e: replace(e, config={**e.config, "tracking": {"outputs": "other"}}), "tracking"),
        (lambda experiment: replace(experiment, name="other"), "experiment"),
    ],
)
def test_points_that_do_not_share_what_the_guarantee_is_about_are_refused(experiments, change, named):
    points = [*experiments[:3], change(experiments[3])]
    with pytest.raises(UserError, match=named):
        Selection.of(SPACE, points, laws=[Poisson(mean_trials=2)], score=Score("val/accuracy"))


@pytest.mark.parametrize(
    ("splits", "metric", "named"),
    [
        ({"test_split": "private"}, "test/loss", "data.test_split"),
        ({"test_split": "private"}, "val/accuracy", "data.test_split"),  # which validates, too
        ({"validation": 200, "num_examples": 1238}, "val/accuracy", "data.validation_split"),
    ],
)
def test_a_score_of_private_rows_is_refused(experiments, splits, metric, named):
    data = experiments[0].data
    changed = replace(data, **splits)
    assert isinstance(changed, Digits)
    Score("test/accuracy").check_public(replace(experiments[0], data=data))
    with pytest.raises(UserError, match=f"{named} = 'private'"):
        Score(metric).check_public(replace(experiments[0], data=changed))


def test_a_score_is_more_where_it_is_better_and_none_where_it_is_no_number():
    assert Score("val/loss").of({"val/loss": 0.5}) > Score("val/loss").of({"val/loss": 0.6})
    assert Score("test/accuracy").of({"test/accuracy": 0.6}) == 0.6
    assert Score("val/loss").of({"val/loss": float("nan")}) is None
    assert Score("val/loss").of({}) is None
    with pytest.raises(UserError, match="one of val/accuracy"):
        Score("train/loss")


def test_a_space_is_finite_and_names_each_value_once():
    with pytest.raises(UserError, match="at least one key"):
        Space({})
    with pytest.raises(UserError, match="different values"):
        Space({"optimizer.lr": ["0.1", "0.1"]})
    assert SPACE.points[1] == ("optimizer.lr=0.1", "privacy.noise_multiplier=3")
    assert len(SPACE.points) == 4


def test_the_cheapest_law_is_chosen_before_anything_is_drawn(experiments, declared):
    laws = (NegativeBinomial(mean_trials=10), Poisson(mean_trials=10))
    both = replace(declared, laws=laws)
    prices = [float(law.price(both.trial).epsilon(both.delta)) for law in laws]
    assert float(both.cost.whole) == min(prices)
    assert both.law in laws
