"""Texts as the word pieces of a published vocabulary, as BERT's uncased models take them."""

import functools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.data.package_files import PackageFiles

__all__ = ["WordPieces", "pieces", "words"]

_FILE = "vocab.txt"
_LONGEST_WORD = 100  # letters; a longer one is unknown
_ASCII_SYMBOLS = "$+<=>^`|~"  # BERT takes these for punctuation; Unicode does not


@final
@dataclass(frozen=True, kw_only=True)
class WordPieces:
    """Lower-cased words without accents, cut into the longest pieces there are, between [CLS] and [SEP].

    Devlin et al. (2019), arXiv 1810.04805; pieces after the first of a word begin with ##. The vocabulary is
    published: no text of the data set went into it.

    Attributes:
        dimensions: T, tokens of each text with the two at its ends; longer ones are cut, shorter ones padded.
        vocabulary: Token ids, 0 for padding.
        files: Where `vocab.txt` is found, a piece a line.
    """

    dimensions: int
    vocabulary: int
    files: PackageFiles

    def __post_init__(self) -> None:
        _validate.integer("data.encoding.dimensions", self.dimensions, at_least=3)
        _validate.integer("data.encoding.vocabulary", self.vocabulary, at_least=5)
        if not isinstance(self.files, PackageFiles):
            raise _validate.refuse("data.encoding.files", self.files, "files, made by a _target_")

    def encode(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """int64 of shape `(len(texts), dimensions)`.

        Raises:
            UserError: The vocabulary is found nowhere, or is another.
        """
        ids = self._ids()
        of_word = functools.cache(lambda word: [ids[piece] for piece in pieces(word, ids)])
        encoded = np.zeros((len(texts), self.dimensions), np.int64)
        for row, text in enumerate(texts):
            found: list[int] = []
            for word in words(text):
                found += of_word(word)
                if len(found) > self.dimensions - 2:
                    break
            tokens = [ids["[CLS]"], *found[: self.dimensions - 2], ids["[SEP]"]]
            encoded[row, : len(tokens)] = tokens
        return encoded

    def _ids(self) -> dict[str, int]:
        lines = self.files.read(_FILE).decode("utf-8").splitlines()
        if len(lines) != self.vocabulary:
            expected = f"{len(lines)}, the lines of {_FILE}"
            raise _validate.refuse("data.encoding.vocabulary", self.vocabulary, expected)
        return {piece: number for number, piece in enumerate(lines)}


def words(text: str) -> Iterator[str]:
    """Words in lower case without accents; each mark of punctuation and Chinese character is one."""
    for word in "".join(_spaced(text)).split():
        plain = unicodedata.normalize("NFD", word.lower())
        yield from _cut("".join(letter for letter in plain if unicodedata.category(letter) != "Mn"))


def pieces(word: str, known: Mapping[str, int]) -> list[str]:
    """The longest known piece at the start of the word, then of its rest, and so on; or [UNK]."""
    found: list[str] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in known), None)
        if end is None or len(word) > _LONGEST_WORD:
            return ["[UNK]"]
        found.append(prefix + word[start:end])
        start = end
    return found


def _spaced(text: str) -> Iterator[str]:
    """The letters, with controls left out and spaces around Chinese characters."""
    for letter in text:
        if letter in "\t\n\r" or unicodedata.category(letter) == "Zs":
            yield " "
        elif letter != "\ufffd" and unicodedata.category(letter) not in ("Cc", "Cf", "Co", "Cs"):
            yield f" {letter} " if _is_chinese(letter) else letter


def _cut(word: str) -> Iterator[str]:
    start = 0
    for place, letter in enumerate(word):
        if letter in _ASCII_SYMBOLS or unicodedata.category(letter).startswith("P"):
            if start < place:
                yield word[start:place]
            yield letter
            start = place + 1
    if start < len(word):
        yield word[start:]


def _is_chinese(letter: str) -> bool:
    """The blocks of CJK ideographs, as BERT has them."""
    code = ord(letter)
    blocks = (
        (0x4E00, 0x9FFF),
        (0x3400, 0x4DBF),
        (0x20000, 0x2A6DF),
        (0x2A700, 0x2CEAF),
        (0xF900, 0xFAFF),
        (0x2F800, 0x2FA1F),
    )
    return code >= 0x3400 and any(first <= code <= last for first, last in blocks)
