"""Sentence embeddings of a network that was trained on public texts."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.data import PackageFiles
from dpexp.features.cache import FeatureCache
from dpexp.features.features import Inputs, check_dimensions
from dpexp.features.public_map import PublicMap
from dpexp.noise import Noise

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MiniLM"]

_FILE = "model.safetensors"
_WIDTH, _VOCABULARY, _MOST_TOKENS = 384, 30522, 512


@final
@dataclass(frozen=True, kw_only=True)
class MiniLM:
    """Embeddings of texts by all-MiniLM-L6-v2 with published weights, applied to one text at a time.

    *Formal guarantees.* The network is fixed and nothing about the private rows goes into it: nothing is
    released. That the texts it was trained on are public is the user's word.

    Attributes:
        inputs: Token ids per text, as `dpexp.data.WordPieces` makes them; at most 512.
        dimensions: Values per text that come out: 384.
        weights: The files of the weights.
        cache: Whether to keep the embeddings in the user's cache.
    """

    inputs: int
    dimensions: int
    weights: PackageFiles
    cache: bool = True

    def __post_init__(self) -> None:
        if _validate.integer("features.inputs", self.inputs, at_least=1) > _MOST_TOKENS:
            raise _validate.refuse("features.inputs", self.inputs, f"at most {_MOST_TOKENS} tokens of a text")
        check_dimensions(self.dimensions, _WIDTH, f"{_WIDTH}, what comes out of the network")
        if not isinstance(self.weights, PackageFiles):
            raise _validate.refuse("features.weights", self.weights, "files, made by a _target_")

    @property
    def vocabulary(self) -> int:
        """Number of token ids that it knows."""
        return _VOCABULARY

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    @property
    def declared_public(self) -> tuple[str, ...]:
        """What it was trained on."""
        return ("MiniLM-L6 trained on public texts",)

    def fit(self, inputs: Inputs, noise: Noise) -> PublicMap:
        """Finds the weights. Private rows are not looked at."""
        content = self.weights.read(_FILE)

        def make() -> "nn.Module":
            from dpexp.features.safetensors import tensors_of  # imports torch
            from dpexp.features.sentence_encoder import MINILM, SentenceEncoder

            return SentenceEncoder(MINILM).load(tensors_of(content))

        return PublicMap(
            name="sentence embeddings",
            identity=f"minilm {hashlib.sha256(content).hexdigest()}",
            dimensions=self.dimensions,
            make=make,
            cache=FeatureCache.of_user() if self.cache else None,
        )

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}
