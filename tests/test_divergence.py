"""Numbers that are not finite: of one row, all rows, from some lot on, and in the parameters themselves."""

import pytest
import torch
from torch import nn

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup
from dpexp.gradients.engine import grouped_clipped_sum
from dpexp.gradients.functional import functional
from dpexp.gradients.loop import loop
from dpexp.models import MLP
from tests.plans import ADAPTIVE, private_plan
from tests.test_module import D, K, lots_of, train
from tests.test_training import TINY, only_run, series, store  # noqa: F401

ENGINES = [grouped_clipped_sum, functional, loop]
BAD = [torch.nan, torch.inf]


def losses_with(bad, row_is_bad):
    """Cross entropy, but not finite for some rows, with a gradient that is finite all the same."""

    def loss(outputs, targets):
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses + torch.where(row_is_bad(targets), bad, 0.0)

    return loss


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", BAD)
def test_an_example_whose_loss_is_not_finite_contributes_nothing_and_is_seen(engine, bad):
    torch.manual_seed(0)
    model = MLP(D, [4], K)
    inputs, targets = torch.randn(9, D), torch.arange(9) % K
    groups = [ClipGroup(tuple(name for name, _ in model.named_parameters()), FlatClipping(0.5))]
    found = engine(model, losses_with(bad, lambda t: t == 1), inputs, targets, groups)
    good = targets != 1
    expected = engine(model, losses_with(bad, lambda t: t == 9), inputs[good], targets[good], groups)
    assert found.norms.isfinite().tolist() == [good.tolist()]
    for name, value in expected.sums.items():
        torch.testing.assert_close(found.sums[name], value)


def plan(clipping="flat"):
    settings = {"num_examples": 400, "lot_size": 40, "steps": 6, "epsilon": None}
    return private_plan(**settings, clip_norm=0.3, clipping=clipping, adaptive=ADAPTIVE)


def spoiled(lots, value, *, rows, since=0):
    for lot in lots[since:]:
        lot.inputs[rows] = value
    return lots


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("rows", [slice(0, 1), slice(None)], ids=["one row", "all rows"])
@pytest.mark.parametrize("since", [0, 3])
def test_bad_rows_train_like_a_lot_without_them(clipping, bad, rows, since):
    lots = spoiled(lots_of(plan(clipping)), bad, rows=rows, since=since)
    found, module = train(plan(clipping), lots)
    without = lots_of(plan(clipping))
    for index in range(since, len(without)):
        kept = torch.ones(len(without[index].targets), dtype=torch.bool)
        kept[rows] = False
        lot = without[index]
        without[index] = type(lot)(lot.index, lot.inputs[kept], lot.targets[kept], {})
    expected, other = train(plan(clipping), without)
    for name, value in expected.items():
        assert found[name].isfinite().all()
        torch.testing.assert_close(found[name], value)
    assert dict(module.sanitizer.state) == pytest.approx(dict(other.sanitizer.state))
    assert module.ledger.lots == 6  # whatever the rows were: each lot is charged


def test_a_run_whose_parameters_diverge_stops_and_says_what_it_spent(dpexp, store, capsys):  # noqa: F811
    assert (
        dpexp(
            *TINY,
            "optimizer.lr=3e38",
            "privacy.noise_multiplier=200",
            "privacy.steps=30",
            "accountant=moments",
        )
        == 1
    )
    errors = capsys.readouterr().err
    assert "is not finite after lot" in errors
    assert "optimizer.lr" in errors
    assert "was spent" in errors
    assert "Traceback" not in errors
    run = only_run(store)
    assert run.info.status == "FAILED"
    spent = series(store, run, "privacy/epsilon")
    assert 1 <= max(spent) < 30
    assert f"after lot {max(spent)} of 30" in errors


def test_finite_parameters_whose_sum_overflows_do_not_stop_a_run():
    from dpexp.divergence import _not_finite

    model = nn.Linear(2, 1)
    nn.init.constant_(model.weight, 3e38)
    assert _not_finite(model) is None
    model.weight.data[0, 0] = torch.nan
    assert _not_finite(model) == "weight"
