import torch
from hypothesis import given
from hypothesis import strategies as st

from dpexp.accounting import Relation
from dpexp.clipping import FlatClipping

NORMS = st.lists(st.floats(0, 1e30, allow_subnormal=False), min_size=1, max_size=20)


@given(NORMS, st.floats(1e-6, 1e6))
def test_clipped_norms_are_at_most_c_and_small_gradients_are_kept(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float32)
    factors = FlatClipping(clip_norm).factors(norms)
    assert (factors.double() * norms.double() <= clip_norm).all()
    assert (factors[norms < clip_norm * (1 - 1e-4)] == 1).all()


@given(NORMS, st.floats(1e-6, 1e6))
def test_large_gradients_are_scaled_to_c_and_not_below(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64)
    clipped = FlatClipping(clip_norm).factors(norms) * norms
    large = norms > clip_norm
    torch.testing.assert_close(clipped[large], torch.full_like(clipped[large], clip_norm))


def test_infinite_and_nan_norms_get_factor_zero_and_an_infinite_c_clips_nothing():
    norms = torch.tensor([torch.inf, torch.nan, 0.0, 5.0])
    assert FlatClipping(1.0).factors(norms).tolist()[:3] == [0.0, 0.0, 1.0]
    assert FlatClipping(torch.inf).factors(norms).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_replacing_an_example_moves_the_sum_twice_as_far():
    rule = FlatClipping(4.0)
    assert rule.sensitivity(Relation.ADD_OR_REMOVE_ONE) == rule.sensitivity(Relation.ZERO_OUT) == 4
    assert rule.sensitivity(Relation.REPLACE_ONE) == 8
