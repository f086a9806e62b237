"""Algorithm 1 against an independent version of it, and in its limits."""

import functools

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import SimpleProfiler
from torch import nn

from dpexp.datamodule import Lot
from dpexp.ledger import Ledger
from dpexp.lots import LotSource
from dpexp.models import MLP
from dpexp.module import DPModule, classification_loss
from dpexp.noise import GaussianNoise, NoNoise
from dpexp.schedules import Constant, Linear
from dpexp.streams import Stream
from dpexp.trainer import fit, make_trainer
from tests.plans import plain_plan, private_plan

N, D, K = 400, 5, 3
KEY = Stream.keyed_by(11)


class Loader:
    """Sized and iterable, and not a list, which Lightning takes for several loaders."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Source(pl.LightningDataModule):
    """Hands out given lots."""

    def __init__(self, lots):
        super().__init__()
        self.lots = lots

    def train_dataloader(self):
        return Loader(self.lots)

    def val_dataloader(self):
        zeros = torch.zeros(2, D, dtype=self.lots[0].inputs.dtype)
        return Loader([(zeros, torch.zeros(2, dtype=torch.int64))])


def data():
    rng = np.random.default_rng(5)
    inputs = 2 * rng.standard_normal((N, D))
    return inputs, (inputs @ rng.standard_normal((D, K))).argmax(axis=1)


def drawn_rows(plan):
    source = LotSource(plan.sampling, KEY.child("lots"), N)
    return [source.draw(t, plan.step(t).lots) for t in range(plan.steps)]


def lots_of(plan, dtype=torch.float64):
    inputs, targets = (torch.from_numpy(array) for array in data())
    return [
        Lot(
            d.index,
            inputs[d.rows].to(dtype),
            targets[d.rows],
            {name: torch.from_numpy(member) for name, member in d.members.items()},
        )
        for d in drawn_rows(plan)
    ]


CPU = functools.partial(pl.Trainer, accelerator="cpu", devices=1)


def train(
    plan,
    lots,
    *,
    model=None,
    noise=None,
    rate=0.5,
    size=None,
    optimizer=torch.optim.SGD,
    factory=CPU,
    **more,
):
    torch.manual_seed(0)
    module = DPModule(
        model=model or MLP(D, [], K).to(lots[0].inputs.dtype),
        plan=plan,
        ledger=Ledger(plan),
        noise=noise or GaussianNoise(KEY.child("noise")),
        optimizer=functools.partial(optimizer, lr=1.0),
        learning_rate=rate if isinstance(rate, Linear) else Constant(rate),
        physical_batch_size=size,
        **more,
    )
    trainer = make_trainer(factory, plan=plan, callbacks=[], folder=None)
    fit(trainer, module, Source(lots))
    assert trainer.global_step == module.ledger.lots == plan.steps
    return {name: p.detach().clone() for name, p in module.model.named_parameters()}, module


def algorithm_1(plan, rate):
    """Abadi et al. (2016), Algorithm 1, for softmax regression, in NumPy."""
    inputs, targets = data()
    torch.manual_seed(0)
    start = MLP(D, [], K).double()
    weight, bias = (p.detach().numpy().copy() for p in (start.output.weight, start.output.bias))
    for t, drawn in enumerate(drawn_rows(plan)):
        group = plan.step(t).groups[0]
        total_w, total_b = np.zeros_like(weight), np.zeros_like(bias)
        for x, y in zip(inputs[drawn.rows], targets[drawn.rows], strict=True):
            scores = np.exp(weight @ x + bias)
            residual = scores / scores.sum() - np.eye(K)[y]
            gradient_w, gradient_b = np.outer(residual, x), residual
            norm = np.sqrt((gradient_w**2).sum() + (gradient_b**2).sum())
            total_w += gradient_w / max(1, norm / group.clip_norm)
            total_b += gradient_b / max(1, norm / group.clip_norm)
        z = GaussianNoise(KEY.child("noise")).standard_normal(t, weight.size + bias.size)
        noise = group.noise_multiplier * group.clip_norm * z
        weight -= rate / group.divisor * (total_w + noise[: weight.size].reshape(weight.shape))
        bias -= rate / group.divisor * (total_b + noise[weight.size :])
    return {"output.weight": weight, "output.bias": bias}


def test_300_steps_equal_an_independent_algorithm_1_fed_the_same_lots_and_noise():
    plan = private_plan(
        num_examples=N, lot_size=40, noise_multiplier=1.5, clip_norm=0.8, steps=300, epsilon=None
    )
    found, _ = train(plan, lots_of(plan), rate=0.5)
    for name, expected in algorithm_1(plan, 0.5).items():
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=0, atol=1e-8)


def test_a_model_in_half_precision_trains_by_gradients_of_its_type():
    plan = private_plan(num_examples=N, lot_size=40, steps=3, epsilon=None)
    found, _ = train(plan, lots_of(plan, torch.bfloat16))  # torch refuses gradients of another type
    assert {value.dtype for value in found.values()} == {torch.bfloat16}


def test_without_a_profiler_lightning_does_nothing_at_its_hooks():
    for factory in (pl.Trainer, lambda **keys: pl.Trainer(profiler="simple", **keys)):
        trainer = make_trainer(factory, plan=private_plan(steps=5), callbacks=[], folder=None)
        assert isinstance(trainer.profiler, SimpleProfiler) == (factory is not pl.Trainer)
        with trainer.profiler.profile("one"), trainer.profiler.profile("other"):
            trainer.profiler.describe()


def test_a_profiler_of_the_users_sees_every_lot():
    plan = private_plan(num_examples=N, lot_size=40, steps=5, epsilon=None)
    profiler = SimpleProfiler()
    factory = functools.partial(pl.Trainer, accelerator="cpu", devices=1, profiler=profiler)
    train(plan, lots_of(plan), factory=factory)
    steps = [times for name, times in profiler.recorded_durations.items() if name.endswith("training_step")]
    assert [len(times) for times in steps] == [5]


def plain_sgd(plan, lots, rate, model):
    for lot in lots:
        model.zero_grad()
        (
            classification_loss(model(lot.inputs), lot.targets).sum() / plan.step(0).groups[0].divisor
        ).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate * parameter.grad
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    ("plan", "noise"),
    [
        (plain_plan(num_examples=N, lot_size=40, steps=20), None),
        (
            private_plan(num_examples=N, lot_size=40, clip_norm=1e6, steps=20, epsilon=None),
            NoNoise(),
        ),
    ],
    ids=["privacy=none", "sigma 0 and a large C"],
)
def test_without_noise_and_clipping_a_step_is_plain_sgd_on_the_same_lot(plan, noise):
    def model():
        torch.manual_seed(3)
        return MLP(D, [7], K)

    lots = lots_of(plan, torch.float32)
    found, _ = train(plan, lots, model=model(), noise=noise or NoNoise(), rate=0.3)
    for name, expected in plain_sgd(plan, lots, 0.3, model()).items():
        torch.testing.assert_close(found[name], expected.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_physical_batch_size_changes_nothing(size):
    plan = private_plan(num_examples=N, lot_size=40, steps=10, epsilon=None)
    whole, _ = train(plan, lots_of(plan, torch.float32))
    parts, _ = train(plan, lots_of(plan, torch.float32), size=size)
    for name, expected in whole.items():
        torch.testing.assert_close(parts[name], expected, rtol=1e-6, atol=1e-6)


def empty_lots(plan):
    return [Lot(t, torch.zeros(0, D), torch.zeros(0, dtype=torch.int64), {}) for t in range(plan.steps)]


def test_empty_lots_move_the_parameters_and_are_charged_like_any_other():
    plan = private_plan(num_examples=N, lot_size=4, steps=3, epsilon=None)
    start = _initial()
    moved, module = train(plan, empty_lots(plan))
    assert all((moved[name] != start[name]).all() for name in moved)
    _, full = train(plan, lots_of(plan, torch.float32))
    assert float(module.ledger.epsilon()) == float(full.ledger.epsilon()) > 0


def test_the_noise_of_zero_gradient_lots_has_std_sigma_c_over_l():
    plan = private_plan(
        num_examples=N, lot_size=0.02, noise_multiplier=3, clip_norm=2, steps=300, epsilon=None
    )
    start = _initial()
    found, _ = train(plan, empty_lots(plan), rate=1.0)
    walk = torch.cat([(found[name] - start[name]).flatten() for name in found]).double()
    std = 3 * 2 / 0.02 * plan.steps**0.5
    # A sum of squares of 18 independent Gaussians over std² is χ²: 99.99 % lie in this interval.
    low, high = 4.0, 48.0
    assert low < float((walk / std).square().sum()) < high


def _initial():
    torch.manual_seed(0)
    return {name: p.detach() for name, p in MLP(D, [], K).named_parameters()}


def test_groups_with_their_own_lots_sum_over_their_own_members():
    layers = {
        "weights": {"parameters": "output.weight", "lot_size": 60, "clip_norm": 1e6},
        "biases": {"parameters": "output.bias", "clip_norm": 1e6},
    }
    plan = private_plan(num_examples=N, lot_size=20, steps=5, epsilon=None, layers=layers)
    lots = lots_of(plan)
    found, _ = train(plan, lots, noise=NoNoise(), rate=0.3)
    torch.manual_seed(0)
    model = MLP(D, [], K).double()
    for lot in lots:
        gradients = {}
        for name, spec, divisor in (("weight", "weights", 60), ("bias", "common", 20)):
            member = lot.members[spec]
            losses = classification_loss(model(lot.inputs[member]), lot.targets[member])
            parameter = getattr(model.output, name)
            gradients[name] = torch.autograd.grad(losses.sum() / divisor, parameter)[0]
        with torch.no_grad():
            for name, gradient in gradients.items():
                getattr(model.output, name).sub_(0.3 * gradient)
    torch.testing.assert_close(found["output.weight"], model.output.weight.detach())
    torch.testing.assert_close(found["output.bias"], model.output.bias.detach())


def test_the_learning_rate_follows_its_schedule():
    plan = plain_plan(num_examples=N, lot_size=40, steps=20)
    rate = Linear(start=0.4, end=0.1, over=1, unit="epochs")
    seen = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(self.param_groups[0]["lr"])
            super().step(closure)

    train(plan, lots_of(plan), noise=NoNoise(), rate=rate, optimizer=Watched)
    assert seen == [rate.at(t, 10) for t in range(20)]


def test_momentum_and_adam_run_on_the_sanitized_gradient():
    plan = private_plan(num_examples=N, lot_size=40, steps=5, epsilon=None)
    plain, _ = train(plan, lots_of(plan))
    for optimizer in (functools.partial(torch.optim.SGD, momentum=0.9), torch.optim.Adam):
        found, _ = train(plan, lots_of(plan), optimizer=optimizer)
        for name, parameter in found.items():
            assert parameter.isfinite().all()
            assert not torch.equal(parameter, plain[name])
            assert not torch.equal(parameter, _initial()[name].double())


def test_a_model_without_a_rule_trains_all_the_same():
    plan = private_plan(num_examples=N, lot_size=40, steps=3, epsilon=None)
    model = nn.Sequential(nn.Linear(D, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, K)).double()
    found, _ = train(plan, lots_of(plan), model=model)
    assert all(parameter.isfinite().all() for parameter in found.values())
