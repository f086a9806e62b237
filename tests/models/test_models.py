"""Every model of `conf/model`: it is built, keeps examples apart, and its clipped sum is the loop's."""

import math

import pytest
import torch
from hydra.utils import instantiate
from torch.nn import functional

from dpexp._validate import UserError
from dpexp.cli import conf_dir
from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, check_model, grouped_clipped_sum
from dpexp.gradients.loop import loop
from dpexp.models import (
    CifarCNN,
    ResNet,
    StandardizedConv2d,
    TemperedCNN,
    TemperedSigmoid,
    TextBag,
    TextTransformer,
    WideResNet,
)
from dpexp.models.images import image_shape
from tests.gradients.models import assert_equal, trainable
from tests.test_conf import composed

ROWS = 5
SMALL = {
    "mlp": (["model.hidden_units=[8]"], 16),
    "mlp_small": ([], 16),
    "mlp_cifar": ([], 16),
    "linear": ([], 16),
    "cnn_tanh": ([], 14 * 14),
    "cnn_cifar": (["model.crop=6", "model.hidden_units=8"], 3 * 8 * 8),
    "resnet": (["model.depth=8", "model.width=4", "model.groups=2"], 3 * 8 * 8),
    "wide_resnet": (["model.depth=10", "model.widening=1", "model.groups=4"], 3 * 8 * 8),
    "text_bag": (["model.vocabulary=11", "model.width=4"], 7),
    "text_transformer": (["model.vocabulary=11", "model.width=8", "model.heads=2"], 7),
}


def built(name, seed=0):
    changes, dimensions = SMALL[name]
    config = composed("privacy.steps=1", f"model={name}", f"data.dimensions={dimensions}", *changes)
    torch.manual_seed(seed)
    return instantiate(config.model)


def rows(name, count=ROWS):
    dimensions = SMALL[name][1]
    if not name.startswith("text"):
        return torch.rand(count, dimensions), torch.arange(count) % 10
    ids = torch.randint(1, 11, (count, dimensions))
    ids[0, 3:] = 0
    ids[1] = 0  # an empty text
    return ids, torch.arange(count) % 10


def loss(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def test_every_model_is_here():
    assert set(SMALL) == {path.stem for path in (conf_dir() / "model").glob("*.yaml")}


@pytest.mark.parametrize("name", SMALL)
def test_a_model_gives_logits_and_its_clipped_sum_is_that_of_a_loop(name):
    model = built(name).double()
    inputs, targets = rows(name)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    assert model(inputs).shape == (ROWS, 10)
    assert model(inputs).isfinite().all()
    groups = [ClipGroup(trainable(model), FlatClipping(0.5))]
    assert_equal(
        grouped_clipped_sum(model, loss, inputs, targets, groups), loop(model, loss, inputs, targets, groups)
    )


@pytest.mark.parametrize("name", SMALL)
def test_no_model_mixes_examples(name):
    model = built(name)
    groups = [ClipGroup(trainable(model), FlatClipping(0.5))]
    checked = check_model(model, loss, *rows(name), groups)
    assert checked.deviation < 1e-4


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_where_a_model_starts(name):
    one, two, other = (dict(built(name, seed).named_parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith("text")])
def test_padding_changes_nothing_and_ids_may_come_as_floats(name):
    model = built(name).eval()
    inputs, _ = rows(name)
    changed = inputs.clone()
    torch.testing.assert_close(model(inputs.float()), model(inputs))
    changed[0, 3:] = 0
    changed[0, :3] = inputs[0, :3]
    torch.testing.assert_close(model(changed)[0], model(inputs)[0])
    alone = model(inputs[:1])
    torch.testing.assert_close(alone[0], model(inputs)[0])


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_networks_are_those_of_the_papers():
    assert count(TemperedCNN(784, 10)) == 26_010  # Papernot et al. (2021)
    assert count(ResNet(3 * 32 * 32, 10, depth=20)) == pytest.approx(0.27e6, rel=0.02)  # He et al. (2016)
    wide = WideResNet(3 * 32 * 32, 10)
    assert count(wide) == pytest.approx(2.75e6, rel=0.01)  # Zagoruyko and Komodakis (2016), table 4
    [first] = [
        layer for layer in CifarCNN(3072, 10).hidden.modules() if getattr(layer, "in_features", 0) > 384
    ]
    assert (first.in_features, first.out_features) == (64 * 6 * 6, 384)


def test_the_paper_looks_at_the_middle_of_an_image():
    model = CifarCNN(3 * 32 * 32, 10)
    images = torch.rand(2, 3, 32, 32)
    border = images.clone()
    border[:, :, :4] = 0
    border[:, :, :, 28:] = 1
    torch.testing.assert_close(model(images), model(border))
    border[:, :, 4, 4] = 9
    assert not torch.equal(model(images), model(border))


def test_tanh_is_a_tempered_sigmoid_and_the_ends_are_where_they_should_be():
    values = torch.linspace(-5, 5, 101, dtype=torch.float64)
    torch.testing.assert_close(TemperedSigmoid()(values), values.tanh())
    torch.testing.assert_close(TemperedSigmoid(1, 1, 0)(values), values.sigmoid())
    ends = TemperedSigmoid(3, 0.5, 1)(torch.tensor([-1e4, 1e4]))
    torch.testing.assert_close(ends, torch.tensor([-1.0, 2.0]))


def test_standardized_weights_have_mean_zero_and_unit_gain():
    torch.manual_seed(0)
    layer = StandardizedConv2d(4, 8, 3, padding=1)
    with torch.no_grad():
        layer.weight.mul_(7).add_(3)
    unit = torch.zeros(36, 4, 3, 3)
    unit.view(36, 36).fill_diagonal_(1)
    seen = (layer(unit) - layer.bias[:, None, None])[:, :, 1, 1]  # each weight by itself
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(8), atol=1e-6, rtol=0)
    torch.testing.assert_close((seen**2).sum(dim=0), torch.ones(8), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("values", "shape"), [(784, (1, 28, 28)), (3072, (3, 32, 32)), (1, (1, 1, 1))])
def test_a_shape_is_found_where_it_is_square(values, shape):
    assert image_shape(None, values) == shape


def test_no_number_is_both_one_square_and_three():
    assert not {n * n for n in range(1, 2000)} & {3 * n * n for n in range(1, 2000)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: image_shape(None, 60), "model.shape"),
        (lambda: image_shape([1, 2], 2), "model.shape"),
        (lambda: image_shape([1, 8, 9], 64), "product in_features = 64"),
        (lambda: image_shape([1, -8, -8], 64), "model.shape"),
        (lambda: TemperedCNN(64, 10), "at least 14"),
        (lambda: ResNet(64, 10, depth=9), "6n + 2"),
        (lambda: ResNet(64, 10, width=12), "a multiple of model.groups = 8"),
        (lambda: WideResNet(64, 10, depth=20), "6n + 4"),
        (lambda: WideResNet(64, 10, groups=3), "a divisor of 16"),
        (lambda: TextBag(None, 4, 10), "declares its vocabulary"),
        (lambda: TextTransformer(7, 11, 10, width=9), "a multiple of model.heads"),
        (lambda: TemperedSigmoid(scale=0), "model.scale"),
        (lambda: TemperedSigmoid(inverse_temperature=math.inf), "model.inverse_temperature"),
    ],
)
def test_impossible_networks_are_refused_with_their_key(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)


def test_a_convolutional_network_trains_on_rows_from_the_command_line(dpexp, outputs):
    model = ["model=resnet", "model.depth=8", "model.width=8", "privacy.lot_size=16", "privacy.steps=2"]
    assert dpexp("data=digits", "trainer=cpu", *model) == 0
