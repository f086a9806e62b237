"""Texts as numbers, by public hash functions: no vocabulary is learned from the texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate

__all__ = ["HashedNgrams", "HashedTokens", "TextEncoding"]

_WORD = re.compile(r"[a-z0-9']+")


class TextEncoding(Protocol):
    """How one text becomes numbers; it looks at no other text."""

    @property
    def dimensions(self) -> int:
        """Numbers per text."""
        ...

    @property
    def vocabulary(self) -> int | None:
        """Number of token ids where the numbers are such; None where they are values."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[Any]:
        """Shape `(len(texts), dimensions)`."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class HashedNgrams:
    """Counts of runs of words, hashed into buckets with a sign; rows have L2 norm 1 (or 0, if empty).

    The hash is MurmurHash3 with seed 0, as scikit-learn's `HashingVectorizer` has it (Weinberger et al.,
    2009, "Feature hashing for large scale multitask learning").

    Attributes:
        dimensions: Buckets.
        longest: Words in the longest run.
    """

    dimensions: int
    longest: int = 2

    def __post_init__(self) -> None:
        _validate.integer("data.encoding.dimensions", self.dimensions, at_least=1)
        _validate.integer("data.encoding.longest", self.longest, at_least=1)

    @property
    def vocabulary(self) -> None:
        """None: the numbers are values."""
        return

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 of shape `(len(texts), dimensions)`."""
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(
            n_features=self.dimensions, ngram_range=(1, self.longest), norm="l2", dtype=np.float32
        )
        dense: NDArray[np.float32] = vectorizer.transform(texts).toarray()
        return dense


@final
@dataclass(frozen=True, kw_only=True)
class HashedTokens:
    """The first words of a text as token ids: 0 pads, and words are hashed into 1 … buckets - 1.

    Attributes:
        dimensions: T, tokens of each text; longer ones are cut, shorter ones padded at the end.
        buckets: Token ids, with the padding.
    """

    dimensions: int
    buckets: int

    def __post_init__(self) -> None:
        _validate.integer("data.encoding.dimensions", self.dimensions, at_least=1)
        _validate.integer("data.encoding.buckets", self.buckets, at_least=2)

    @property
    def vocabulary(self) -> int:
        """The number of token ids."""
        return self.buckets

    def encode(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """int64 of shape `(len(texts), dimensions)`."""
        from sklearn.utils import murmurhash3_32

        ids: dict[str, int] = {}
        encoded = np.zeros((len(texts), self.dimensions), np.int64)
        for row, text in enumerate(texts):
            words = _WORD.findall(text.lower())[: self.dimensions]
            for word in words:
                if word not in ids:
                    ids[word] = 1 + murmurhash3_32(word, seed=0, positive=True) % (self.buckets - 1)
            encoded[row, : len(words)] = [ids[word] for word in words]
        return encoded
