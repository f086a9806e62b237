"""The average of the weights, against its recursion, and as what a run evaluates."""

import pytest
import torch
from torch import nn

from dpexp.averaging import WeightAverage
from tests.plans import private_plan
from tests.test_module import lots_of, train
from tests.test_training import TINY, artifact, only_run, series, store  # noqa: F401


def walk(steps):
    torch.manual_seed(0)
    return torch.randn(steps, 3, 2, dtype=torch.float64).cumsum(dim=0)


def averaged(path, decay):
    model = nn.Linear(2, 3, bias=False).double()
    average = WeightAverage(model, decay=decay)
    for weights in path:
        model.weight.data.copy_(weights)
        average.update_parameters(model)
    return average.module.weight.detach()


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_it_follows_its_recursion_from_the_first_released_parameters(decay):
    path = walk(40)
    expected = path[0]
    for t, weights in enumerate(path[1:], start=1):
        beta = min(decay, (1 + t) / (10 + t))
        expected = beta * expected + (1 - beta) * weights
    torch.testing.assert_close(averaged(path, decay), expected, rtol=0, atol=1e-12)


def test_without_decay_it_is_the_last_model():
    path = walk(5)
    torch.testing.assert_close(averaged(path, 0.0), path[-1], rtol=0, atol=1e-14)


def test_it_changes_nothing_of_what_trains():
    plan = private_plan(num_examples=400, lot_size=40, steps=10, epsilon=None)
    plain, without = train(plan, lots_of(plan))
    found, module = train(plan, lots_of(plan), ema=0.9)
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    assert float(module.ledger.epsilon()) == float(without.ledger.epsilon())
    averages = dict(module.average.module.named_parameters())
    assert all(not torch.equal(averages[name], found[name]) for name in found)
    assert not any(p.requires_grad for p in averages.values())


def test_a_run_evaluates_the_average_and_keeps_both(dpexp, store):  # noqa: F811
    assert dpexp(*TINY, "privacy.steps=20", "ema=0.9", "privacy.deterministic=true", "seed=1") == 0
    run = only_run(store)
    last = torch.load(artifact(store, run, "model.pt"), weights_only=True)["model"]
    average = torch.load(artifact(store, run, "model.pt"), weights_only=True)["average"]
    assert last.keys() == average.keys()
    from dpexp.data import Digits
    from dpexp.models import MLP

    model = MLP(64, [64], 10)
    model.load_state_dict(average)
    data = Digits(
        name="digits",
        num_examples=1438,
        num_classes=10,
        dimensions=64,
        validation=0,
        validation_split="private",
        test_split="public",
    ).load()
    with torch.no_grad():
        right = (model(torch.from_numpy(data.test.inputs)).argmax(1).numpy() == data.test.targets).mean()
    assert run.data.metrics["final/accuracy"] == pytest.approx(float(right), abs=1e-9)
    assert series(store, run, "val/accuracy")[20] == pytest.approx(float(right), abs=1e-9)
    with open(artifact(store, run, "privacy_statement.txt"), encoding="utf-8") as file:
        assert "average of the released weights (ema)" in " ".join(file.read().split())


@pytest.mark.parametrize("value", ["1", "-0.1", "often"])
def test_an_impossible_decay_is_refused(dpexp, outputs, capsys, value):
    assert dpexp(*TINY, f"ema={value}") == 1
    error = capsys.readouterr().err
    assert "ema = " in error
    assert ">= 0 and < 1" in error or "number" in error
    assert len(error.splitlines()) < 8
