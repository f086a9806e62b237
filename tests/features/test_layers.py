"""Fixed features as layers of torch: the same map as the one that was trained on, and nothing more."""

import numpy as np
import pytest
import torch

from dpexp.features import (
    DPPCA,
    Chain,
    GroupNormalization,
    NoFeatures,
    PrivateCentering,
    PrivateNormalization,
    PrivateWhitening,
    RandomProjection,
    Scattering,
)
from dpexp.noise import LATTICE, GaussianNoise
from dpexp.streams import Stream
from tests.features.test_pretrained import pretrained


def scattering(**changes):
    keys = {"inputs": 64, "shape": [8, 8], "scales": 1, "angles": 2, "dimensions": 48, "cache": False}
    return Scattering(**(keys | {"normalization": "none"} | changes))


STATISTICS = {"noise_multiplier": 4.0, "mean_bound": 1.0, "square_bound": 1.0, "num_examples": 50}
PCA = DPPCA(inputs=48, components=5, dimensions=5, noise_multiplier=4.0)
KINDS = {
    "none": NoFeatures(inputs=64, dimensions=64),
    "dp_pca": DPPCA(inputs=64, components=9, dimensions=9, noise_multiplier=4.0),
    "random_projection": RandomProjection(inputs=64, components=7, dimensions=7, key=3),
    "centering": PrivateCentering(inputs=64, dimensions=64, noise_multiplier=4.0, bound=8.0, num_examples=50),
    "whitening": PrivateWhitening(inputs=64, dimensions=64, noise_multiplier=1.0),
    "group_normalization": GroupNormalization(inputs=64, dimensions=64, channels=8, groups=4),
    "normalization": PrivateNormalization(inputs=64, dimensions=64, channels=8, **STATISTICS),
    "scattering": scattering(),
    "scattering_of_planes": scattering(shape=[4, 4, 4], dimensions=48),
    "scattering_by_group": scattering(normalization="group", groups=3),
    "scattering_by_data": scattering(normalization="data", **STATISTICS),
    "pretrained": pretrained(),
    "chain": Chain(
        inputs=64, dimensions=5, stages={"s": scattering(normalization="group", groups=3), "p": PCA}
    ),
}


def fitted(kind):
    rows = np.random.default_rng(0).random((50, 64)).astype(np.float32)
    return KINDS[kind].fit(rows, GaussianNoise(Stream.keyed_by(0)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_the_map_that_was_fitted(kind):
    found = fitted(kind)
    rows = np.random.default_rng(1).random((4099, 64)).astype(np.float32)  # more than one chunk of any
    expected = found.transform(rows)
    with torch.no_grad():
        features = found.as_layer()(torch.tensor(rows))
    assert features.dtype == torch.float32
    np.testing.assert_allclose(features.numpy(), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [kind for kind, features in KINDS.items() if features.releases])
def test_what_is_released_keeps_to_the_lattice_of_the_noise(kind):
    class Asked:
        """Zeros, that count how often somebody asks whether they are on a lattice."""

        draws = asked = 0

        @property
        def spacing(self):
            self.asked += 1
            return LATTICE

        def standard_normal(self, position, size):
            self.draws += 1
            return np.zeros(size)

    noise = Asked()
    KINDS[kind].fit(np.random.default_rng(0).random((50, 64)).astype(np.float32), noise)
    assert noise.asked >= noise.draws > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_holds_what_was_released_and_what_is_public(kind):
    found = fitted(kind)
    state = dict(found.as_layer().state_dict())
    private = {
        name for name in state if not any(word in name for word in ("spectrum", "averaging", "layers"))
    }
    if not KINDS[kind].releases:
        assert private <= {"directions"}  # of a random projection: public
        return
    released = {tuple(values.ravel()) for values in found.state.values()}
    for name in private:
        values = state[name].numpy()
        assert tuple(values.ravel()) in released or (values == 1).all(), name
    assert {name.rpartition(".")[2] for name in private} <= {"directions", "mean", "scales", "std"}
