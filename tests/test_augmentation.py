"""Augmented views: whose randomness they are, what they leave alone, and whole runs with them."""

import math

import pytest
import torch

from dpexp._validate import UserError
from dpexp.augmentation import Identity, Shifts, Views
from dpexp.streams import Stream
from tests.test_training import TINY, artifact, only_run, series, store  # noqa: F401

STREAM = Stream.keyed_by(4)
SHIFTS = Shifts(shape=[8, 8], pixels=2)


def rows(count=5):
    torch.manual_seed(1)
    return torch.rand(count, 64)


def test_views_are_a_function_of_key_and_lot_and_differ_between_them():
    views, inputs = Views(count=6, transform=SHIFTS), rows()
    found = views.of(inputs, 3, STREAM)
    assert found.shape == (5, 6, 64)
    assert torch.equal(found, views.of(inputs, 3, STREAM))
    assert not torch.equal(found, views.of(inputs, 4, STREAM))
    assert not torch.equal(found, views.of(inputs, 3, Stream.keyed_by(5)))


def test_what_a_transform_draws_for_one_example_does_not_move_anothers_views():
    def greedy(example, count, generator):
        torch.rand(int(1 + 100 * float(example[0])), generator=generator)  # as a rejection sampler would
        return example + torch.rand(count, 64, generator=generator)

    inputs = rows()
    changed = inputs.clone()
    changed[0] = 0.5 * inputs[0]
    views = Views(count=2, transform=greedy)
    before, after = views.of(inputs, 0, STREAM), views.of(changed, 0, STREAM)
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


def test_an_empty_lot_has_no_views():
    assert Views(count=3, transform=SHIFTS).of(rows(0), 0, STREAM).shape == (0, 3, 64)


def test_shifts_move_pixels_and_keep_zeros_at_the_border():
    image = torch.zeros(8, 8)
    image[4, 4] = 1
    found = SHIFTS(image.flatten(), 400, torch.Generator().manual_seed(0)).view(400, 8, 8)
    assert (found.sum(dim=(1, 2)) == 1).all()
    places = {divmod(int(view.argmax()), 8) for view in found}
    assert places == {(i, j) for i in range(2, 7) for j in range(2, 7)}
    assert torch.equal(
        Shifts(shape=[8, 8], pixels=0)(image.flatten(), 2, None or torch.Generator())[1], image.flatten()
    )


@pytest.mark.parametrize(
    "transform",
    [
        lambda example, count, generator: example,
        lambda example, count, generator: example.expand(count + 1, 64),
        lambda example, count, generator: example.double().expand(count, 64),
    ],
)
def test_a_transform_of_another_result_is_refused(transform):
    with pytest.raises(UserError, match=r"views.transform: found a result of shape"):
        Views(count=2, transform=transform).of(rows(), 0, STREAM)


def run_of(dpexp, store, *keys):  # noqa: F811
    assert dpexp(*TINY, "privacy.steps=6", "privacy.deterministic=true", *keys) == 0
    run = only_run(store)
    model = torch.load(artifact(store, run, "model.pt"), weights_only=True)["model"]
    epsilon = series(store, run, "privacy/epsilon")[6]
    store.delete_run(run.info.run_id)
    return model, epsilon


def test_one_view_of_the_example_itself_is_a_run_without_views_and_none_costs_privacy(dpexp, store):  # noqa: F811
    plain, epsilon = run_of(dpexp, store)
    identity = "views={count: 1, transform: {_target_: dpexp.augmentation.Identity}}"
    same, epsilon_1 = run_of(dpexp, store, identity)
    for name, expected in plain.items():
        torch.testing.assert_close(same[name], expected, rtol=1e-6, atol=1e-6)
    shifts = "{_target_: dpexp.augmentation.Shifts, shape: [8, 8], pixels: 1}"
    moved, epsilon_4 = run_of(dpexp, store, f"views={{count: 4, transform: {shifts}}}")
    assert epsilon == epsilon_1 == epsilon_4 < math.inf
    assert any(not torch.equal(moved[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("3", ["views = 3", "count: K"]),
        ("{count: 0, transform: {_target_: dpexp.augmentation.Identity}}", ["views.count = 0"]),
        ("{count: 2}", ["views = ", "transform"]),
        ("{count: 2, transform: flip}", ["views.transform = 'flip'", "_target_"]),
        ("{count: 2, transform: {_target_: dpexp.augmentation.Nope}}", ["views.transform._target_", "Nope"]),
        (
            "{count: 2, transform: {_target_: dpexp.augmentation.Shifts, shape: [8, 8], pixel: 1}}",
            ["views.transform", "pixel"],
        ),
        (
            "{count: 2, transform: {_target_: dpexp.augmentation.Shifts, shape: [9, 9], pixels: 1}}",
            ["views.transform.shape = [9, 9]", "64 values"],
        ),
    ],
)
def test_mistakes_are_named(dpexp, outputs, capsys, value, parts):
    assert dpexp(*TINY, "privacy.steps=2", f"views={value}") == 1
    error = capsys.readouterr().err
    assert all(part in error for part in parts), error
    assert len(error.splitlines()) < 8


def test_identity_is_the_example():
    example = rows()[0]
    assert torch.equal(Identity()(example, 3, torch.Generator()), example.expand(3, 64))
