"""Memory that runs out in the middle of a lot: begun anew with less at once, and nothing counted twice."""

import logging

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.forward import LotPass
from dpexp.gradients import ClipGroup
from dpexp.memory import Halving, is_out_of_memory
from dpexp.models import MLP
from tests.plans import ADAPTIVE, private_plan
from tests.test_module import D, K, lots_of, train

ON_CPU = "[enforce fail at alloc_cpu.cpp:124] data. DefaultCPUAllocator: can't allocate memory: you tried"
ERRORS = [RuntimeError(ON_CPU), torch.OutOfMemoryError("CUDA out of memory."), MemoryError()]


class Cramped(nn.Module):
    """A network for which no more than so many rows fit; the first microbatches of a lot do."""

    def __init__(self, fits, error=ERRORS[0], after=0):
        super().__init__()
        torch.manual_seed(0)
        self.network = MLP(D, [4], K)
        self.fits, self.error, self.after = fits, error, after
        self.seen = []

    def forward(self, inputs):
        self.seen.append(len(inputs))
        if len(inputs) > self.fits and len(self.seen) > self.after:
            raise self.error
        return self.network(inputs)


def loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


def clipped(model, rows, size, lots=1):
    torch.manual_seed(1)
    inputs, targets = torch.randn(rows, D), torch.randint(K, (rows,))
    names = tuple(name for name, _ in model.named_parameters())
    walk = LotPass(model, loss)
    for _ in range(lots):
        found = walk.clipped_sum(inputs, targets, [ClipGroup(names, FlatClipping(0.5))], size)
    return found


@pytest.mark.parametrize(
    ("error", "size"),
    list(zip(ERRORS, (None, 33, 20), strict=True)),
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_the_lot_is_begun_anew_with_smaller_microbatches_and_its_sums_are_the_same(error, size):
    roomy = clipped(Cramped(fits=100), rows=40, size=5)
    model = Cramped(fits=5, error=error)
    found = clipped(model, rows=40, size=size)
    assert max(model.seen[-40 // 5 :]) <= 5
    assert found.norms.shape == (1, 40)
    torch.testing.assert_close(found.norms, roomy.norms)
    for name, expected in roomy.sums.items():
        torch.testing.assert_close(found.sums[name], expected)


def test_what_was_summed_before_memory_ran_out_is_discarded():
    whole = clipped(Cramped(fits=100), rows=40, size=10)
    late = clipped(Cramped(fits=5, after=3), rows=40, size=10)  # three microbatches had been added up
    for name, expected in whole.sums.items():
        torch.testing.assert_close(late.sums[name], expected)


def test_later_lots_keep_the_smaller_size_and_it_is_said_once(caplog):
    model = Cramped(fits=5)
    with caplog.at_level(logging.WARNING):
        clipped(model, rows=40, size=20, lots=3)
    assert [record.name for record in caplog.records] == ["dpexp.nonprivate"] * 2  # 20 → 10 → 5
    assert [size for size in model.seen if size > 5] == [20, 10]  # in the first lot only
    assert not any(
        "40" in record.getMessage() for record in caplog.records
    )  # not even here is the size of the lot of use


def test_a_single_example_that_does_not_fit_is_an_error():
    with pytest.raises(UserError, match="a single example does not fit"):
        clipped(Cramped(fits=0), rows=8, size=None)


def test_any_other_error_is_passed_on():
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        Halving().run(lambda size: torch.ones(2, 3) @ torch.ones(2, 3), size=None, rows=4)


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
def test_a_run_short_of_memory_releases_and_charges_what_a_roomy_one_does(clipping):
    plan = private_plan(
        num_examples=400,
        lot_size=40,
        steps=4,
        epsilon=None,
        clip_norm=0.3,
        clipping=clipping,
        adaptive=ADAPTIVE,
    )
    lots = lots_of(plan, torch.float32)
    expected, roomy = train(plan, lots, model=Cramped(fits=100), size=5)
    found, cramped = train(plan, lots, model=Cramped(fits=5, after=7), size=None)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
    assert cramped.ledger.lots == roomy.ledger.lots == 4
    assert cramped.sanitizer.state == pytest.approx(dict(roomy.sanitizer.state))
