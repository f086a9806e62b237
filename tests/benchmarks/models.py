"""The four models of the benchmark, from layers that every peer supports."""

import torch
from torch import nn
from torch.nn import functional

from dpexp.models import MLP

__all__ = ["MODELS"]


def mlp():
    """The paper's network after PCA, 60-1000-10, and a lot of 600 (Abadi et al., 2016, section 5.2)."""
    return MLP(60, [1000], 10), torch.rand(600, 60), torch.randint(10, (600,))


def cnn():
    """The tanh network for MNIST of Papernot et al. (2021, arXiv 2007.14191, table 1), lot of 600."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )
    return model, torch.rand(600, 1, 28, 28), torch.randint(10, (600,))


class Block(nn.Module):
    """Two convolutions with GroupNorm and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(8, outputs) for _ in range(2))
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images):
        hidden = functional.relu(self.norms[0](self.first(images)))
        return functional.relu(self.norms[1](self.second(hidden)) + self.shortcut(images))


def resnet():
    """ResNet-8 (He et al., 2016, section 4.2, n = 1) with GroupNorm on 32×32 images, lot of 256."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.GroupNorm(8, 16),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return model, torch.rand(256, 3, 32, 32), torch.randint(10, (256,))


class Layer(nn.Module):
    """A pre-norm encoder layer: attention with 4 heads, and two linear layers."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens):
        hidden = self.norms[0](tokens)
        heads = [self._heads(layer(hidden)) for layer in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(mixed)
        return tokens + self.down(functional.gelu(self.up(self.norms[1](tokens))))

    def _heads(self, tokens):
        return tokens.unflatten(2, (4, -1)).transpose(1, 2)


class Encoder(nn.Module):
    """Four layers over 128 tokens of a vocabulary of 1000, then a mean and a linear layer."""

    def __init__(self, width=256):
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(4))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, tokens):
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.output(self.norm(hidden).mean(dim=1))


def transformer():
    """An encoder of 4 layers, d = 256, T = 128, lot of 32."""
    return Encoder(), torch.randint(1000, (32, 128)), torch.randint(10, (32,))


MODELS = {model.__name__: model for model in (mlp, cnn, resnet, transformer)}
