"""The cache of public features: content decides, whole or absent, private, and never for what is fitted."""

import logging
import stat

import numpy as np
import pytest

from dpexp.features import DPPCA, Chain, FeatureCache, Scattering
from dpexp.noise import GaussianNoise
from dpexp.streams import Stream


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(folder=tmp_path / "features")


def rows(n=30, d=64, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(np.float32)


class Doubled:
    """Twice the rows, and how often that was computed."""

    def __init__(self):
        self.times = 0

    def __call__(self, inputs):
        self.times += 1
        return 2 * inputs


def get(cache, compute, identity="twice", inputs=None):
    inputs = rows() if inputs is None else inputs
    return cache.get(identity, inputs, inputs.shape, compute)


def test_the_second_time_is_read_and_is_the_same(cache):
    compute = Doubled()
    first, second = get(cache, compute), get(cache, compute)
    np.testing.assert_array_equal(first, second)
    assert first.dtype == second.dtype == np.float32
    assert compute.times == 1


def test_other_rows_another_order_or_another_identity_are_computed_anew(cache):
    compute = Doubled()
    get(cache, compute)
    changed = rows()
    changed[3, 5] = np.nextafter(changed[3, 5], 2)
    for inputs in (changed, rows()[::-1], rows()[:29], rows().reshape(60, 32)):
        np.testing.assert_array_equal(get(cache, compute, inputs=inputs), 2 * inputs)
    get(cache, compute, identity="thrice")
    assert compute.times == 6


def files(cache):
    return sorted(cache.folder.glob("*.npy"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "shape"])
def test_a_damaged_file_is_reported_and_computed_again(cache, caplog, damage):
    compute = Doubled()
    get(cache, compute)
    [path] = files(cache)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(
        {"flip": bytes(content), "cut": bytes(content[:-7]), "empty": b""}.get(damage, b"x" * 99)
    )
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(get(cache, compute), 2 * rows())
    assert compute.times == 2
    assert str(path) in caplog.text
    assert "corrupt" in caplog.text
    get(cache, compute)
    assert compute.times == 2


def test_a_file_under_another_folders_key_is_not_taken(cache, tmp_path, caplog):
    other = FeatureCache(folder=tmp_path / "other")
    get(cache, Doubled())
    get(other, Doubled())
    [path], [others] = files(cache), files(other)
    assert path.name != others.name  # a name confirms nothing about the rows
    path.write_bytes(others.read_bytes())
    compute = Doubled()
    get(cache, compute)
    assert compute.times == 1


def test_folder_key_and_files_are_private_to_the_user(cache):
    get(cache, Doubled())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    for path in cache.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_interrupted_while_writing_nothing_is_left(cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpexp.features.cache.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(cache, Doubled())
    assert files(cache) == []
    assert list(cache.folder.glob(".*.tmp")) == []


def test_a_folder_that_cannot_be_made_costs_a_warning_not_the_run(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(
            get(FeatureCache(folder=tmp_path / "file" / "x"), Doubled()), 2 * rows()
        )
    assert "not kept" in caplog.text


def scattering(**changes):
    keys = {"inputs": 64, "shape": [8, 8], "scales": 1, "angles": 2, "dimensions": 48}
    return Scattering(**(keys | {"normalization": "group", "groups": 3, "cache": True} | changes))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPEXP_FEATURES_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_scattering_is_kept_by_settings_and_rows(folder):
    noise = GaussianNoise(Stream.keyed_by(0))
    first = scattering().fit(rows(), noise).transform(rows())
    again = scattering().fit(rows(), noise).transform(rows())
    np.testing.assert_array_equal(first, again)
    assert len(list(folder.glob("*.npy"))) == 1
    scattering(groups=1).fit(rows(), noise).transform(rows())
    scattering().fit(rows(), noise).transform(rows(seed=1))
    assert len(list(folder.glob("*.npy"))) == 3
    scattering(cache=False).fit(rows(), noise).transform(rows(seed=2))
    assert len(list(folder.glob("*.npy"))) == 3


def test_what_is_fitted_to_private_rows_is_never_kept(folder):
    pca = DPPCA(inputs=48, components=2, dimensions=2, noise_multiplier=4.0)
    both = Chain(inputs=64, dimensions=2, stages={"scattering": scattering(), "pca": pca})
    fits = [both.fit(rows(), GaussianNoise(Stream.secret())) for _ in range(2)]
    found = [fitted.transform(rows()) for fitted in fits]
    assert not np.allclose(found[0], found[1])  # each run draws its own noise and pays for it
    [kept] = folder.glob("*.npy")
    assert np.load(kept).shape == (30, 48)  # the scattering transform, which is public
