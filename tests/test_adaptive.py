"""Adaptive clipping inside the sanitizer and the training loop."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpexp.gradients import grouped_clipped_sum
from dpexp.models import MLP
from dpexp.module import classification_loss
from dpexp.noise import GaussianNoise, NoNoise, SecureGaussianNoise
from dpexp.sanitizer import Sanitizer
from dpexp.streams import Stream
from tests.plans import ADAPTIVE, PER_LAYER, private_plan
from tests.test_module import N, empty_lots, lots_of, train
from tests.test_sanitizer import ALPHA, GROUPS, ZEROS

NO_ROWS = torch.zeros(2, 0)


def plan(**changes):
    keys = {"clipping": "adaptive", "adaptive": ADAPTIVE, "layers": PER_LAYER, "lot_size": 60}
    return private_plan(**(keys | {"steps": 3000, "epsilon": None} | changes))


def small_plan(**changes):
    keys = {"num_examples": N, "lot_size": 40, "steps": 30, "layers": None}
    return plan(**(keys | changes))


def sanitizer(noise=None):
    return Sanitizer(GROUPS, noise or GaussianNoise(Stream.keyed_by(0)))


def test_only_finite_members_of_the_groups_lot_are_counted():
    layers = {"hidden": {"parameters": "hidden.*", "lot_size": 30}, "output": {"parameters": "output.*"}}
    step = plan(layers=layers).step(0)  # C = 4
    norms = torch.tensor([[1.0, 4.0, 5.0, 1.0, 9.0], [5.0, 5.0, 5.0, torch.nan, 1.0]])
    members = {
        "hidden": torch.tensor([True, True, True, True, False]),
        "common": torch.tensor([False, True, True, True, True]),
    }
    assert sanitizer().within(norms, step, members) == {"hidden": 2 - 3 / 2, "output": 1 - 3 / 2}


def test_one_example_moves_the_count_by_half_and_its_replacement_by_one():
    step = plan().step(0)
    lot = torch.rand(2, 9) * 8
    alone = sanitizer().within(lot, step, {})
    for norm in (0.0, 4.0, 4.1, math.inf):
        joined = sanitizer().within(torch.cat([lot, torch.full((2, 1), norm)], dim=1), step, {})
        assert all(abs(joined[name] - alone[name]) <= 0.5 for name in alone)


def released_in_units_of_noise(chosen, inputs, targets):
    """All that one lot releases, before noise of std 1 is added: sums ÷ σC, counts ÷ σ_b."""
    step = chosen.step(0)
    torch.manual_seed(0)
    model = MLP(4, [3], 3).double()
    under_test = Sanitizer(chosen.assign(name for name, _ in model.named_parameters()), NoNoise())
    found = grouped_clipped_sum(model, classification_loss, inputs, targets, under_test.clips(step, {}), None)
    sums = [
        found.sums[name].flatten() / group.noise_std
        for group in step.groups
        for name in chosen.assign(found.sums)[group.name]
    ]
    within = under_test.within(found.norms, step, {})
    counts = [within[g.name] / g.query.noise_std for g in step.groups if g.query is not None]
    return torch.cat([*sums, torch.tensor(counts, dtype=torch.float64)])


@pytest.mark.parametrize("clipping", ["flat", "automatic", "adaptive"])
def test_what_a_lot_releases_moves_between_neighbors_by_no_more_than_the_plan_prices(clipping):
    chosen = plan(clipping=clipping, clip_norm=0.3, noise_multiplier=2)
    priced = chosen.step(0).event.gaussian
    generator = torch.Generator().manual_seed(3)
    farthest = 0.0
    for _ in range(25):
        inputs = 5 * torch.randn(6, 4, dtype=torch.float64, generator=generator)
        targets = torch.randint(3, (6,), generator=generator)
        whole, without, replaced = (
            released_in_units_of_noise(chosen, inputs[rows], targets[rows])
            for rows in ([0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 3, 5])
        )
        added = float((whole - without).norm()) * priced.noise_multiplier
        changed = float((whole - replaced).norm()) * priced.noise_multiplier
        assert added <= 1 + 1e-9
        assert changed <= priced.replace_one_factor * (1 + 1e-9)
        farthest = max(farthest, added)
    assert farthest > 0.98  # and it comes close: the price is not loose


def test_c_moves_by_the_noisy_fraction_and_the_noise_with_it():
    chosen = plan(noise_multiplier=3)
    under_test = sanitizer(NoNoise())
    norms = torch.tensor([[1.0] * 60, [9.0] * 60])
    under_test.release(ZEROS, chosen.step(0), under_test.within(norms, chosen.step(0), {}))
    assert under_test.state == pytest.approx({"hidden": 4 * math.exp(-0.1), "output": 4 * math.exp(0.1)})
    in_force = under_test.in_force(chosen.step(1)).groups
    assert [group.noise_std for group in in_force] == [3 * c for c in under_test.state.values()]
    clips = under_test.clips(chosen.step(1), {})
    assert [clip.clipping.clip_norm for clip in clips] == list(under_test.state.values())


def test_the_noise_that_is_drawn_is_sigma_times_the_c_in_force():
    step, noise = plan().step(0), {}
    for clip_norm in (4.0, 8.0):
        under_test = sanitizer()
        under_test.restore({"hidden": clip_norm, "output": 4.0})
        noise[clip_norm] = under_test.release(ZEROS, step, {"hidden": 0.0, "output": 0.0})
    torch.testing.assert_close(noise[8.0]["hidden.weight"], 2 * noise[4.0]["hidden.weight"])
    assert torch.equal(noise[8.0]["output.weight"], noise[4.0]["output.weight"])


@pytest.mark.parametrize("kind", [GaussianNoise, SecureGaussianNoise])
def test_empty_lots_move_c_by_noise_of_the_stated_std_alone(kind):
    chosen = plan(adaptive=ADAPTIVE | {"noise_std": 7})
    under_test = sanitizer(kind(Stream.keyed_by(0)))
    path = []
    for t in range(1500):
        under_test.restore({"hidden": 4.0, "output": 4.0})
        under_test.release(ZEROS, chosen.step(t), under_test.within(NO_ROWS, chosen.step(t), {}))
        path.append(list(under_test.state.values()))
    draws = np.log(np.array(path) / 4) / -0.2 * 60 / 7  # b̃ - γ = noise/L on an empty lot
    for group in draws.T:
        assert stats.kstest(group, "norm").pvalue > ALPHA
    assert abs(np.corrcoef(draws.T)[0, 1]) < stats.norm.isf(ALPHA / 2) / math.sqrt(len(draws))


def test_the_counts_noise_is_none_of_the_gradients():
    chosen, under_test = plan(), sanitizer()
    gradients, counts = [], []
    for t in range(1500):
        under_test.restore({"hidden": 4.0, "output": 4.0})
        found = under_test.release(ZEROS, chosen.step(t), {"hidden": 0.0, "output": 0.0})
        gradients.append(torch.cat([g.flatten() for g in found.values()]).double().numpy())
        counts.append(math.log(under_test.state["output"]))
    bound = stats.norm.isf(ALPHA / 2 / 15) / math.sqrt(len(counts))
    for coordinate in np.array(gradients).T:
        assert abs(np.corrcoef(coordinate, counts)[0, 1]) < bound


@pytest.mark.parametrize("mode", [GaussianNoise, SecureGaussianNoise])
def test_no_position_of_the_noise_is_drawn_twice(mode):
    """Two draws of one position share what they are made of, even where they are not correlated."""

    class Recorded:
        spacing, noise, drawn = mode.spacing, mode(Stream.keyed_by(0)), []

        def standard_normal(self, position, size):
            self.drawn.append(position)
            return self.noise.standard_normal(position, size)

    recorded, chosen = Recorded(), plan()
    under_test = sanitizer(recorded)
    for t in range(20):
        under_test.release(ZEROS, chosen.step(t), {"hidden": 0.0, "output": 0.0})
    assert len(recorded.drawn) == 40  # gradients and counts of each lot
    assert len(set(recorded.drawn)) == 40


def test_a_release_without_its_counts_is_refused():
    with pytest.raises(ValueError, match="hidden"):
        sanitizer().release(ZEROS, plan().step(0))
    with pytest.raises(ValueError, match="found"):
        sanitizer().release(ZEROS, plan(clipping="flat").step(0), {"hidden": 0.0})


@pytest.mark.parametrize("mode", [GaussianNoise, SecureGaussianNoise])
def test_a_learning_rate_of_zero_is_flat_clipping_with_the_same_noise(mode):
    frozen = small_plan(adaptive=ADAPTIVE | {"learning_rate": 0}, clip_norm=0.5)
    flat = small_plan(clipping="flat", clip_norm=0.5)
    found, module = train(frozen, lots_of(frozen), noise=mode(Stream.keyed_by(3)))
    expected, fixed = train(flat, lots_of(flat), noise=mode(Stream.keyed_by(3)))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert module.sanitizer.state == {"all": 0.5}
    assert fixed.sanitizer.state == {}
    assert float(module.ledger.epsilon()) > float(fixed.ledger.epsilon())


def test_a_run_repeats_and_c_leaves_its_start_for_the_norms():
    chosen = small_plan(clip_norm=0.01, steps=60, adaptive=ADAPTIVE | {"learning_rate": 0.5})
    first, module = train(chosen, lots_of(chosen))
    again, other = train(chosen, lots_of(chosen), size=7)
    assert module.sanitizer.state == other.sanitizer.state
    for name, expected in first.items():
        torch.testing.assert_close(again[name], expected, rtol=1e-9, atol=1e-9)
    assert module.sanitizer.state["all"] > 0.2
    # What is shown of the last lot is the C that it was clipped to.
    assert module.observation.step.groups[0].clip_norm > 0.1


def test_empty_lots_adapt_and_are_charged_like_any_other():
    chosen = small_plan(lot_size=4)
    _, empty = train(chosen, empty_lots(chosen))
    _, full = train(chosen, lots_of(chosen, torch.float32))
    assert empty.sanitizer.state["all"] != 4
    assert float(empty.ledger.epsilon()) == float(full.ledger.epsilon()) > 0


def test_a_restored_sanitizer_goes_on_where_the_other_was():
    chosen, one = plan(), sanitizer()
    for t in range(5):
        one.release(ZEROS, chosen.step(t), {"hidden": 3.0, "output": -3.0})
    other = sanitizer()
    other.restore(one.state)
    for each in (one, other):
        each.release(ZEROS, chosen.step(5), {"hidden": 1.0, "output": 1.0})
    assert one.state == other.state
    with pytest.raises(ValueError, match="clip norm of hidden"):
        other.restore({"hidden": math.nan})


def test_auto_s_trains_and_its_c_only_scales_the_step():
    noiseless = {"noise": NoNoise()}
    one = small_plan(clipping="automatic", clip_norm=1)
    four = small_plan(clipping="automatic", clip_norm=4)
    slow, _ = train(four, lots_of(four), rate=0.1, **noiseless)
    fast, _ = train(one, lots_of(one), rate=0.4, **noiseless)
    for name, expected in slow.items():
        torch.testing.assert_close(fast[name], expected, rtol=1e-9, atol=1e-9)
