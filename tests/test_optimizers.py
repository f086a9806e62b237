"""DP-AdamBC against torch's Adam, against its paper in NumPy, and inside a private run."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from dpexp.optimizers import DPAdamBC
from tests.plans import private_plan
from tests.test_module import lots_of, train


def trajectory(optimizer, gradients, **keys):
    parameter = nn.Parameter(torch.linspace(-1, 1, gradients.shape[1], dtype=gradients.dtype))
    stepper = optimizer([parameter], **keys)
    seen = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        stepper.step()
        seen.append(parameter.detach().clone())
    return torch.stack(seen)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_noise_it_is_adam_to_the_last_bit(decay, dtype):
    torch.manual_seed(0)
    gradients = torch.randn(50, 7, dtype=dtype)
    gradients[:, 0] = 0
    keys = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": decay}
    expected = trajectory(torch.optim.Adam, gradients, foreach=False, **keys)
    assert torch.equal(trajectory(DPAdamBC, gradients, **keys), expected)


def algorithm_1(gradients, *, lr, beta1, beta2, floor, noise_variances):
    """Tang et al. (2023), with sums written out in place of recursions."""
    theta = np.linspace(-1, 1, gradients.shape[1])
    seen = []
    for t in range(1, len(gradients) + 1):
        past = np.arange(t - 1, -1, -1)[:, None]
        first = ((1 - beta1) * beta1**past * gradients[:t]).sum(0) / (1 - beta1**t)
        second = ((1 - beta2) * beta2**past * gradients[:t] ** 2).sum(0) / (1 - beta2**t)
        noise = ((1 - beta2) * beta2 ** past[:, 0] * noise_variances[:t]).sum() / (1 - beta2**t)
        theta = theta - lr * first / np.sqrt(np.maximum(second - noise, floor))
        seen.append(theta)
    return np.stack(seen)


def test_it_is_the_papers_algorithm(rng):
    gradients = rng.standard_normal((60, 9))
    keys = {"lr": 0.01, "floor": 0.05}
    expected = algorithm_1(gradients, beta1=0.9, beta2=0.99, noise_variances=np.full(60, 0.8), **keys)
    found = trajectory(DPAdamBC, torch.from_numpy(gradients), betas=(0.9, 0.99), noise_variance=0.8, **keys)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


def test_a_variance_that_changes_is_weighted_like_the_gradients_it_came_with(rng):
    gradients, variances = rng.standard_normal((40, 5)), np.linspace(0.2, 1.5, 40)
    parameter = nn.Parameter(torch.linspace(-1, 1, 5, dtype=torch.float64))
    optimizer = DPAdamBC([parameter], lr=0.01, floor=0.05)
    for gradient, variance in zip(gradients, variances, strict=True):
        optimizer.param_groups[0]["noise_variance"] = variance
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    expected = algorithm_1(gradients, lr=0.01, beta1=0.9, beta2=0.999, floor=0.05, noise_variances=variances)[
        -1
    ]
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=0, atol=1e-12)


def test_the_step_is_the_sign_of_the_signal_where_adams_is_drowned_by_noise(rng):
    signal, variance = np.tile([1.0, -1.0, 0.5, -0.5], 20), 25.0  # twenty of each, to average over
    noisy = torch.from_numpy(signal + variance**0.5 * rng.standard_normal((6_000, 80)))
    keys = {"lr": 1.0, "betas": (0.9998, 0.9998)}
    start = torch.linspace(-1, 1, 80, dtype=torch.float64)

    def mean_steps(optimizer, **more):
        path = torch.cat([start[None], trajectory(optimizer, noisy, **keys, **more)])
        return (path[5_001:] - path[5_000:-1]).mean(dim=0).view(20, 4).mean(dim=0).numpy()

    # |m̂| ≈ |s|: Adam divides by √(s² + Φ), the correction by √(s² + its error).
    signal, adam = signal[:4], mean_steps(torch.optim.Adam)
    corrected = mean_steps(DPAdamBC, noise_variance=variance, floor=1e-4)
    np.testing.assert_allclose(adam, -signal / np.sqrt(signal**2 + variance), rtol=0.3)
    assert (np.sign(corrected) == -np.sign(signal)).all()
    assert (np.abs(corrected) > 4 * np.abs(adam)).all()


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"lr": -1}, "learning rate"),
        ({"betas": (1.0, 0.9)}, "betas"),
        ({"eps": -1}, "eps"),
        ({"floor": 0}, "floor"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"noise_variance": -1}, "noise_variance"),
    ],
)
def test_impossible_arguments_are_refused_by_name(keys, name):
    with pytest.raises(ValueError, match=f"Invalid {name}"):
        DPAdamBC([nn.Parameter(torch.zeros(1))], **keys)


def test_the_plan_tells_each_group_the_variance_of_its_own_noise():
    layers = {
        "weights": {"parameters": "output.weight", "lot_size": 60, "clip_norm": 2.0},
        "biases": {"parameters": "output.bias", "clip_norm": 0.5},
    }
    plan = private_plan(
        num_examples=400, lot_size=20, noise_multiplier=3, steps=3, epsilon=None, layers=layers
    )
    seen = []

    class Watched(DPAdamBC):
        def step(self, closure=None):
            seen.append([group["noise_variance"] for group in self.param_groups])
            return super().step(closure)

    train(plan, lots_of(plan), optimizer=Watched)
    assert seen == [[(3 * 2.0 / 60) ** 2, (3 * 0.5 / 20) ** 2]] * 3


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.AdamW, DPAdamBC, functools.partial(torch.optim.SGD, momentum=0.9), torch.optim.RMSprop],
)
def test_any_optimizer_runs_on_the_sanitized_gradient(optimizer):
    plan = private_plan(num_examples=400, lot_size=40, steps=5, epsilon=None)
    found, _ = train(plan, lots_of(plan), optimizer=optimizer, rate=0.01)
    plain, _ = train(plan, lots_of(plan), rate=0.01)
    for name, parameter in found.items():
        assert parameter.isfinite().all()
        assert not torch.equal(parameter, plain[name])


def test_a_run_from_the_command_line(dpexp, outputs):
    overrides = ["optimizer=dp_adam_bc", "optimizer.lr=0.01", "privacy.steps=5", "trainer=cpu"]
    assert dpexp("+experiment=smoke", *overrides, "trainer.val_check_interval=5") == 0
