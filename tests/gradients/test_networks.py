"""Whole networks, against the loop."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, explain, grouped_clipped_sum
from dpexp.gradients.loop import loop
from tests.gradients.models import assert_equal, loss, trainable


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.block, self.down = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.Conv2d(8, 10, 1, stride=2)
        self.relu, self.output = nn.ReLU(inplace=True), nn.Linear(10, 3)

    def forward(self, images):
        hidden = self.relu(self.norm(self.stem(images)))
        hidden = hidden + self.relu(self.norm(self.block(hidden)))  # the norm is used twice
        return self.output(self.down(hidden).mean(dim=(2, 3)))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, stride=2)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.output = nn.Linear(8, 3)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.places
        return self.output(self.body(tokens)[:, 0])


class GRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.cells, self.output = (
            nn.Embedding(9, 5),
            nn.GRU(5, 6, batch_first=True),
            nn.Linear(6, 3),
        )

    def forward(self, tokens):
        return self.output(self.cells(self.tokens(tokens))[1][-1])


class Bert(nn.Module):
    """Predicts tokens with the table that embeds them; places and kinds are the same for all examples."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.kinds = (
            nn.Embedding(n, 8, i) for n, i in ((9, 0), (6, None), (2, None))
        )
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(8, 9)
        self.decoder.weight = self.tokens.weight
        self.register_buffer("order", torch.arange(6)[None])

    def forward(self, tokens):
        length = tokens.shape[1]
        hidden = self.tokens(tokens) + self.places(self.order[:, :length])
        hidden = hidden + self.kinds(torch.zeros_like(tokens))
        return self.decoder(self.body(hidden, src_key_padding_mask=tokens == 0))


def masked_loss(logits, targets):
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=-100)
    return losses.sum(dim=1) / 6


def images(size):
    return torch.randn(size, 3, 4, 4, dtype=torch.float64), torch.arange(size) % 3


def sentences(size):
    return torch.randint(1, 9, (size, 6)), torch.arange(size) % 3


def masked(size):
    tokens = torch.randint(1, 9, (size, 6))
    tokens[0, 4:] = 0
    return tokens, torch.where(torch.rand(size, 6) < 0.5, tokens, -100)


NETWORKS = {
    "resnet": (ResNet, images, loss),
    "vit": (ViT, images, loss),
    "gru": (GRU, sentences, loss),
    "bert": (Bert, masked, masked_loss),
}


def prepared(name, size=8):
    torch.manual_seed(0)
    model, data, its_loss = NETWORKS[name]
    return model().double(), *data(size), its_loss


@pytest.mark.parametrize("microbatches", [1, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_clipped_sum_of_a_network_is_that_of_a_loop(name, microbatches):
    model, inputs, targets, its_loss = prepared(name)
    names = trainable(model)
    groups = [
        ClipGroup(tuple(n for n in names if n.endswith("bias")), FlatClipping(0.1)),
        ClipGroup(tuple(n for n in names if not n.endswith("bias")), FlatClipping(1.0)),
    ]
    found = grouped_clipped_sum(model, its_loss, inputs, targets, groups, len(inputs) // microbatches)
    assert_equal(found, loop(model, its_loss, inputs, targets, groups))


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_agrees_to_five_digits(name):
    model, inputs, targets, its_loss = prepared(name)
    model, inputs = model.float(), inputs.float() if inputs.is_floating_point() else inputs
    groups = [ClipGroup(trainable(model), FlatClipping(1.0))]
    found = grouped_clipped_sum(model, its_loss, inputs, targets, groups)
    expected = loop(
        model.double(), its_loss, inputs.double() if inputs.is_floating_point() else inputs, targets, groups
    )
    torch.testing.assert_close(found.norms.double(), expected.norms, rtol=1e-5, atol=1e-5)
    for name, total in expected.sums.items():
        torch.testing.assert_close(found.sums[name].double(), total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet", "vit", "bert", "gru"])
def test_networks_need_no_torch_func(name):
    model, inputs, _, _ = prepared(name)
    assert not any("torch.func" in rule for rule in explain(model, inputs).values())


def test_the_plan_names_the_rule_of_each_parameter():
    model, inputs, _, _ = prepared("bert")
    rules = explain(model, inputs)
    assert rules["tokens.weight"] == "embedding + linear"
    assert rules["places.weight"] == "embedding of parameters + add"
    assert explain(*prepared("gru")[:2])["cells.weight_hh_l0"] == "linear"


def test_the_batch_is_found_when_every_dimension_has_its_size():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(6, 2, 6, dropout=0.0).double()
    wrapped = nn.Sequential(_Swapped(), model, _Swapped(), nn.Flatten(), nn.Linear(36, 3).double())
    inputs, targets = torch.randn(6, 6, 6, dtype=torch.float64), torch.arange(6) % 3
    groups = [ClipGroup(trainable(wrapped), FlatClipping(0.5))]
    found = grouped_clipped_sum(wrapped, loss, inputs, targets, groups)
    assert_equal(found, loop(wrapped, loss, inputs, targets, groups))


class _Swapped(nn.Module):
    def forward(self, inputs):
        return inputs.transpose(0, 1)
