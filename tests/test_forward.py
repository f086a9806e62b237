"""Precision, views and checkpointing in the engine's pass, against a loop over single examples."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from dpexp._validate import UserError
from dpexp.clipping import FlatClipping
from dpexp.forward import LotPass
from dpexp.gradients import ClipGroup, Compiled, clipped_sum
from dpexp.models import MLP
from tests.plans import private_plan
from tests.test_module import lots_of, train
from tests.test_training import TINY, only_run, series, store  # noqa: F401

B, K, C = 6, 4, 0.4


def loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


def dense(dtype=torch.float32):
    torch.manual_seed(0)
    return MLP(5, [7], 3).to(dtype), (5,)


def convolutional(dtype=torch.float32):
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.Tanh(), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 16, 3)
    return nn.Sequential(*layers).to(dtype), (1, 6, 6)


def attentive(dtype=torch.float32):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(5 * 6, 3)).to(dtype), (5, 6)


MODELS = [dense, convolutional, attentive]


def group(model):
    return ClipGroup(tuple(name for name, _ in model.named_parameters()), FlatClipping(C))


def oracle(model, mean_loss, inputs, targets):
    """Σ_i clip(∇ mean_loss(x_i, y_i)), each by a backward pass of its own."""
    sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    norms = []
    for example, target in zip(inputs, targets, strict=True):
        gradients = torch.autograd.grad(mean_loss(example, target), list(sums_of(model)))
        norm = torch.sqrt(sum(g.square().sum() for g in gradients))
        norms.append(norm)
        for total, gradient in zip(sums.values(), gradients, strict=True):
            total += gradient * min(1.0, C / float(norm))
    return sums, torch.stack(norms)


def sums_of(model):
    return (p for _, p in model.named_parameters())


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("make", MODELS)
def test_the_gradient_of_an_example_is_the_mean_over_its_views(make, size):
    model, shape = make(torch.float64)
    views, targets = torch.randn(B, K, *shape, dtype=torch.float64), torch.randint(3, (B,))

    def mean_loss(example, target):
        return torch.stack([loss(model(view[None]), target[None])[0] for view in example]).mean()

    sums, norms = oracle(model, mean_loss, views, targets)
    found = LotPass(model, loss, views=K).clipped_sum(views, targets, [group(model)], size)
    assert found.sums.keys() == sums.keys()
    for name, expected in sums.items():
        torch.testing.assert_close(found.sums[name], expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.norms[0], norms, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make", MODELS)
def test_equal_views_are_no_views(make):
    model, shape = make()
    inputs, targets = torch.randn(B, *shape), torch.randint(3, (B,))
    plain = LotPass(model, loss).clipped_sum(inputs, targets, [group(model)], None)
    for count in (1, 3):
        views = inputs[:, None].expand(B, count, *shape)
        found = LotPass(model, loss, views=count).clipped_sum(views, targets, [group(model)], None)
        for name, expected in plain.sums.items():
            torch.testing.assert_close(found.sums[name], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", MODELS)
def test_no_example_of_many_views_moves_the_sum_by_more_than_c(make):
    model, shape = make()
    views, targets = 100 * torch.randn(B, K, *shape), torch.randint(3, (B,))
    whole = LotPass(model, loss, views=K)
    both = [
        whole.clipped_sum(views[rows], targets[rows], [group(model)], None)
        for rows in (slice(0, B), slice(1, B))
    ]
    squares = [(both[0].sums[n] - both[1].sums[n]).double().square().sum() for n in both[0].sums]
    assert float(sum(squares).sqrt()) <= C * (1 + 1e-5)


def test_the_check_passes_with_views_and_refuses_what_mixes_them_across_examples():
    model, shape = dense()
    views, targets = torch.rand(5, K, *shape), torch.randint(3, (5,))
    assert LotPass(model, loss, views=K).check(views, targets, [group(model)]).deviation < 1e-5
    mixing = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    with pytest.raises(UserError, match="mixes"):
        LotPass(mixing, loss, views=K).check(views, targets, [group(mixing)])


def test_a_mean_loss_is_refused_with_views_too():
    model, shape = dense()
    with pytest.raises(UserError, match="one value per example"):
        LotPass(model, cross_entropy, views=K).clipped_sum(
            torch.rand(B, K, *shape), torch.randint(3, (B,)), [group(model)], None
        )


@pytest.mark.parametrize("make", MODELS)
def test_in_bfloat16_norms_and_sums_are_float32_and_near_those_of_float32(make):
    model, shape = make()
    inputs, targets = torch.randn(B, *shape), torch.randint(3, (B,))
    exact = LotPass(model, loss).clipped_sum(inputs, targets, [group(model)], None)
    with torch.autocast("cpu", torch.bfloat16):  # as Lightning does around the whole step
        found = LotPass(model, loss, autocast=torch.bfloat16).clipped_sum(
            inputs, targets, [group(model)], None
        )
    assert {found.norms.dtype, found.losses.dtype, *(s.dtype for s in found.sums.values())} == {torch.float32}
    assert not torch.equal(found.norms, exact.norms)
    torch.testing.assert_close(found.norms, exact.norms, rtol=0.05, atol=0)
    for name, expected in exact.sums.items():
        scale = float(expected.abs().max())
        torch.testing.assert_close(found.sums[name], expected, rtol=0, atol=0.05 * scale)


def test_in_bfloat16_clipping_still_bounds_each_example_by_c_in_float32():
    model, shape = dense()
    inputs = 50 * torch.randn(1, *shape)
    targets = model(inputs).argmin(dim=1)  # wrong: a large gradient
    found = LotPass(model, loss, autocast=torch.bfloat16).clipped_sum(inputs, targets, [group(model)], None)
    norm = torch.sqrt(sum(s.double().square().sum() for s in found.sums.values()))
    assert C * (1 - 1e-4) < float(norm) <= C * (1 + 1e-6)


def compiled_whole():
    return torch.compile(dense()[0])


def compiled_in_part():
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].compile()
    return model


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, in dynamo
@pytest.mark.parametrize(("make", "part"), [(compiled_whole, "the model"), (compiled_in_part, "found 0 ")])
def test_a_compiled_model_is_refused_and_not_trained_another_way_in_silence(make, part):
    with pytest.raises(UserError, match=f"{part}.*compiled by torch.compile") as error:
        LotPass(make(), loss)
    assert "hides" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


class Checkpointed(nn.Module):
    def __init__(self, first, rest):
        super().__init__()
        self.first, self.rest = first, rest

    def forward(self, inputs):
        return self.rest(checkpoint(self.first, inputs, use_reentrant=False))


@pytest.mark.parametrize("size", [None, 4])
def test_gradient_checkpointing_gives_the_same_sums(size):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 6), nn.Tanh()).double()
    model = Checkpointed(first, nn.Linear(6, 3).double())
    inputs, targets = torch.randn(B, 5, dtype=torch.float64), torch.randint(3, (B,))
    sums, norms = oracle(model, lambda x, y: loss(model(x[None]), y[None])[0], inputs, targets)
    found = clipped_sum(model, loss, inputs, targets, clip_norm=C, physical_batch_size=size)
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-9)
    for name, expected in sums.items():
        torch.testing.assert_close(found.sums[name], expected, rtol=1e-6, atol=1e-9)


def test_the_optimizer_sees_float32_and_the_same_noise():
    plan = private_plan(num_examples=400, lot_size=40, steps=3, epsilon=None)
    lots, seen = lots_of(plan, torch.float32), set()

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            seen.update(p.grad.dtype for group in self.param_groups for p in group["params"])
            return super().step(closure)

    found, _ = train(plan, lots, autocast=torch.bfloat16, optimizer=Watched)
    exact, _ = train(plan, lots)
    assert seen == {torch.float32}
    for name, expected in exact.items():  # only the gradients are rounded differently
        torch.testing.assert_close(found[name], expected, rtol=0, atol=0.02)


def test_a_bf16_run_has_the_epsilon_of_a_float32_run(dpexp, store):  # noqa: F811
    assert dpexp(*TINY, "privacy.steps=10", "trainer.precision=bf16-mixed") == 0
    run = only_run(store)
    assert run.info.status == "FINISHED"
    from dpexp.accounting import RenyiAccountant
    from dpexp.ledger import Ledger

    plan = private_plan(
        num_examples=1438,
        lot_size=64,
        noise_multiplier=2,
        clip_norm=1,
        steps=10,
        epsilon=None,
        accountant=RenyiAccountant(),
    )
    ledger = Ledger(plan)
    for index in range(10):
        ledger.reserve(plan.step(index))
    assert series(store, run, "privacy/epsilon")[10] == pytest.approx(float(ledger.epsilon()), rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, in dynamo
def test_compiled_gradients_are_those_of_book_keeping_for_any_number_of_rows():
    model, shape = dense()
    plain, compiled = LotPass(model, loss), LotPass(model, loss, compiler="aot_eager")
    for rows, size in ((7, None), (7, 3), (0, None)):  # 7 at once, 3 and 1 and none
        inputs, targets = 3 * torch.randn(rows, *shape), torch.randint(3, (rows,))
        expected = plain.clipped_sum(inputs, targets, [group(model)], size)
        found = compiled.clipped_sum(inputs, targets, [group(model)], size)
        torch.testing.assert_close(found.sums, expected.sums)
        torch.testing.assert_close(found.norms, expected.norms)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, in dynamo
def test_lots_of_many_sizes_are_compiled_for_few():
    """Each Poisson lot has another size, and torch gives up after eight."""
    model, shape = dense()
    plain, compiled = LotPass(model, loss), LotPass(model, loss, compiler="eager")
    torch._dynamo.utils.counters.clear()
    for rows in [*range(40, 68, 2), 1, 3]:
        inputs, targets = 3 * torch.randn(rows, *shape), torch.randint(3, (rows,))
        expected = plain.clipped_sum(inputs, targets, [group(model)], None)
        found = compiled.clipped_sum(inputs, targets, [group(model)], None)
        torch.testing.assert_close(found.sums, expected.sums)
        torch.testing.assert_close(found.norms, expected.norms)
        torch.testing.assert_close(found.losses, expected.losses)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 7  # of 40, 48, 56, 64, 80, 1 and 3 rows


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, in dynamo
def test_what_a_compiler_does_not_take_is_refused_and_said():
    class Branching(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) * (2 if float(inputs.sum()) > 0 else 1)

    with pytest.raises(UserError, match="compile: torch's eager does not take the model"):
        LotPass(Branching(4, 3), loss, compiler="eager").clipped_sum(
            torch.randn(2, 4), torch.tensor([0, 1]), [group(nn.Linear(4, 3))], None
        )
    with pytest.raises(UserError, match="compile"):
        LotPass(nn.Linear(4, 3), loss, compiler="indcutor")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, in dynamo
def test_a_compiled_lot_for_which_memory_runs_out_is_begun_anew(monkeypatch):
    model, shape = dense()
    inputs, targets = torch.randn(6, *shape), torch.randint(3, (6,))
    expected = LotPass(model, loss).clipped_sum(inputs, targets, [group(model)], 2)
    whole = Compiled._gradients

    def short_of_memory(engine, model, loss):
        gradients = whole(engine, model, loss)

        def of_few(parameters, rows, labels):
            if len(rows) > 3:
                raise torch.OutOfMemoryError("no room")
            return gradients(parameters, rows, labels)

        return of_few

    monkeypatch.setattr(Compiled, "_gradients", short_of_memory)
    found = LotPass(model, loss, compiler="eager").clipped_sum(inputs, targets, [group(model)], None)
    torch.testing.assert_close(found.sums, expected.sums)
