"""Models with every habit that has broken a per-example engine."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from dpexp.models import MLP


class Reused(nn.Module):
    """One layer called twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(self.layer(self.layer(inputs).tanh()).tanh())


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.output(self.second(self.first(inputs).tanh()).tanh())


class Penalized(nn.Module):
    """A weight that is used outside the call of its layer too."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = self.layer(inputs).tanh()
        return self.output(hidden) * (
            1 + nn.functional.linear(hidden, self.layer.weight).mean(1, keepdim=True)
        )


class InPlace(nn.Module):
    """Activations that overwrite what the hook saw."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.output(self.layer(inputs).relu_())


class Sequences(nn.Module):
    """A linear layer over positions."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.output(self.layer(inputs.view(-1, 3, 2)).tanh().mean(dim=1))


class Scaled(nn.Module):
    """A bare parameter."""

    def __init__(self):
        super().__init__()
        self.scale, self.output = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs * self.scale)


class Tempered(nn.Module):
    """A parameter without dimensions."""

    def __init__(self):
        super().__init__()
        self.temperature, self.output = nn.Parameter(torch.tensor(1.5)), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs) * self.temperature


class Unused(nn.Module):
    """A layer that no example reaches."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.output(inputs)


class Doubled(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


class Pruned(nn.Module):
    """A weight under a constant mask."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("mask", torch.ones(6, 6).triu())

    def forward(self, inputs):
        return self.output(functional.linear(inputs, self.layer.weight * self.mask, self.layer.bias).tanh())


class Matrices(nn.Module):
    """Bare parameters in matrix products, sums, products and a function without a rule."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5, 3))
        self.shift, self.scale = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(1, 5))
        self.slope, self.weight = nn.Parameter(torch.rand(1)), nn.Parameter(torch.rand(3, 3, 5))

    def forward(self, inputs):
        hidden = functional.prelu((inputs @ self.first) * self.scale + self.shift, self.slope)
        return hidden @ self.second + torch.einsum("bi,oji,bj->bo", hidden, self.weight, hidden[:, :3])


class Adapted(nn.Module):
    """LoRA: a frozen weight and two small trained ones."""

    def __init__(self):
        super().__init__()
        self.body, self.output = nn.Linear(6, 6), nn.Linear(6, 3)
        self.requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, inputs):
        return self.output((self.body(inputs) + 0.5 * self.up(self.down(inputs))).tanh())


class Overwritten(nn.Module):
    """In-place activations over the view that a linear layer over positions returns, and a sum in place."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.output = nn.Linear(2, 4), nn.LayerNorm(4), nn.Linear(4, 3)
        self.shift = nn.Parameter(torch.randn(3, 4))

    def forward(self, inputs):
        hidden = functional.relu_(self.layer(inputs.view(-1, 3, 2)))
        hidden = self.norm(hidden)
        hidden += self.shift
        return self.output(hidden.tanh_().mean(dim=1))


class Structured(nn.Module):
    """Modules that take keywords and return dicts and tuples."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, *, inputs):
            return {"pair": (self.left(inputs), [self.right(inputs)])}

    def __init__(self):
        super().__init__()
        self.pair = self.Pair()

    def forward(self, inputs):
        left, (right,) = self.pair(inputs=inputs)["pair"]
        return left * right.tanh()


class Checkpointed(nn.Module):
    """Activations that are computed again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.body, self.output = MLP(6, [5], 4), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.output(checkpoint(self.body, inputs, use_reentrant=False).tanh())


class Folded(nn.Module):
    """Positions folded into the batch, in both orders, and positions as many as examples."""

    def __init__(self):
        super().__init__()
        self.outer, self.inner, self.norm = nn.Linear(2, 4), nn.Linear(2, 4), nn.LayerNorm(4)
        self.shift, self.kernel, self.output = (
            nn.Parameter(torch.randn(4)),
            nn.Conv1d(1, 2, 2),
            nn.Linear(10, 3),
        )

    def forward(self, inputs):
        rows = inputs.view(-1, 3, 2)
        outer = self.outer(rows.reshape(-1, 2)).view(-1, 3, 4)
        inner = self.norm(self.inner(rows.transpose(0, 1).reshape(-1, 2)) + self.shift)
        frames = self.kernel(rows.reshape(-1, 1, 2)).view(-1, 3, 2)
        joined = torch.cat([outer, inner.view(3, -1, 4).transpose(0, 1), frames], dim=2)
        return self.output(joined.tanh().sum(dim=1))


class TimeFirst(nn.Module):
    """Tensors in (T, B, d) order with as many positions as the test has examples."""

    def __init__(self):
        super().__init__()
        self.inputs, self.layer, self.output = nn.Linear(6, 14), nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        rows = self.inputs(inputs).view(-1, 7, 2).transpose(0, 1).contiguous()
        return self.output(self.layer(rows).tanh().mean(dim=0))


class Branching(nn.Module):
    """Control flow that depends on the data: torch.func cannot follow it."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = self.layer(inputs)
        return self.output(hidden.tanh() if bool(hidden.isfinite().all()) else hidden)


class Branched(nn.Module):
    """The same, with another path for rows of zeros."""

    def __init__(self):
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = self.layer(inputs)
        return self.output(hidden.tanh() if bool(inputs.any()) else hidden)


def frozen_first():
    model = MLP(6, [5], 3)
    model.hidden.requires_grad_(False)
    return model


def only_biases():
    model = MLP(6, [5, 4], 3)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def no_bias():
    return nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False))


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)
    )


def parametrized():
    model = MLP(6, [5], 3)
    parametrizations.weight_norm(model.hidden[0])
    return model


MODELS = {
    "mlp": lambda: MLP(6, [5, 4], 3),
    "linear": lambda: MLP(6, [], 3),
    "no_bias": no_bias,
    "frozen": frozen_first,
    "in_place": InPlace,
    "reused": Reused,
    "tied": Tied,
    "penalized": Penalized,
    "sequences": Sequences,
    "scaled": Scaled,
    "tempered": Tempered,
    "unused": Unused,
    "convolutional": convolutional,
    "parametrized": parametrized,
    "spectral": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3).eval())).eval(),
    "pruned": Pruned,
    "matrices": Matrices,
    "lora": Adapted,
    "bitfit": only_biases,
    "overwritten": Overwritten,
    "structured": Structured,
    "checkpointed": Checkpointed,
    "folded": Folded,
    "time_first": TimeFirst,
    "branching": Branching,
    "branched": Branched,
    "subclass": lambda: nn.Sequential(Doubled(6, 4), nn.Tanh(), nn.Linear(4, 3)),
}


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def batch(size=7, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = 3 * torch.randn(size, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (size,), generator=generator)


def loss(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def trainable(model):
    return tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)


def assert_equal(found, expected, tolerance=1e-9):
    for one, other in ((found.sums, expected.sums), ({0: found.norms}, {0: expected.norms})):
        torch.testing.assert_close(dict(one), dict(other), rtol=tolerance, atol=tolerance / 10)
    torch.testing.assert_close(found.losses, expected.losses, rtol=tolerance, atol=tolerance / 10)
