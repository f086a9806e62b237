"""Named random streams: lots and noise come from operating-system entropy, not from `seed`.

A draw is a function of (secret key, stream, position) and of nothing else, so that workers that read
ahead, microbatches and the order of calls cannot change it.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

__all__ = ["Keystream", "Stream"]


@final
class Keystream:
    """The ChaCha20 key stream of one draw, read in order (RFC 8439, June 2018, section 2.4).

    Args:
        key: 32 secret bytes.
        position: In [0, 2⁶⁴); together with the key it is used for one draw only.
    """

    def __init__(self, key: bytes, position: int) -> None:
        # Block counter from zero, then the position: no two positions share a block. The library refuses
        # to pass 2³² blocks of 64 bytes.
        nonce = bytes(8) + position.to_bytes(8, "little")
        self._encryptor = Cipher(ChaCha20(key, nonce), mode=None).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of 64 bits, little-endian, shape (count,)."""
        words = np.empty(count, dtype="<u8")
        self._encryptor.update_into(bytes(words.nbytes), words.view(np.uint8).data)
        return words


@final
class _State(np.random.bit_generator.ISeedSequence):
    """Hands a bit generator the words of its state."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[Any]:
        """The first `n_words` words of 64 bits, as SFC64 asks for them."""
        return np.frombuffer(self._words, dtype=dtype, count=n_words)


@final
@dataclass(frozen=True)
class Stream:
    """A family of generators under one 256-bit key. The key is secret and never printed or logged.

    Amplification by sampling needs secret lots just as the Gaussian mechanism needs secret noise.
    """

    key: bytes = field(repr=False)

    @classmethod
    def secret(cls) -> Self:
        """A stream keyed by the operating system's entropy, different at every call."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def keyed_by(cls, seed: int) -> Self:
        """A reproducible stream, for tests and debugging: a run that uses it guarantees nothing."""
        return cls(hashlib.sha256(f"dpexp.deterministic:{seed}".encode()).digest())

    def child(self, name: str) -> "Stream":
        """An independent stream, named by what it is for."""
        return Stream(hashlib.sha256(self.key + name.encode()).digest())

    def generator(self, position: int) -> np.random.Generator:
        """The fast generator of one draw (lot t, the noise of lot t); `position` >= 0. Not cryptographic."""
        # Keyed BLAKE2b (RFC 7693) of the position: 192 bits, all that SFC64's state keeps; torch's CPU
        # generator would keep 32. NumPy's own SeedSequence takes five times as long. SFC64 is the fastest of
        # NumPy's: docs/theory/noise.md.
        digest = hashlib.blake2b(
            position.to_bytes(8, "little"), key=self.key, digest_size=24, person=b"generator"
        )
        seed: Any = _State(digest.digest())  # NumPy's type hints know only its own
        return np.random.Generator(np.random.SFC64(seed))

    def integer(self) -> int:
        """A number in [0, 2⁶³), for generators that take nothing larger."""
        return int.from_bytes(self.key[:8], "big") >> 1

    def keystream(self, position: int) -> Keystream:
        """The cryptographic bits of one draw; independent of `generator(position)`."""
        return Keystream(self.child("chacha20").key, position)
