"""Named random streams: lots and noise come from operating-system entropy, not from `seed`.

A draw is a function of (secret key, stream, position) and of nothing else, so that workers that read
ahead, microbatches and the order of calls cannot change it.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np

__all__ = ["Stream"]


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
        """The generator of one draw (lot t, the noise of lot t); `position` >= 0."""
        # A pool of 8 words keeps all 256 bits of the key; torch's CPU generator would keep 32 of them.
        entropy = int.from_bytes(self.key, "big")
        seed = np.random.SeedSequence(entropy=entropy, spawn_key=(position,), pool_size=8)
        return np.random.Generator(np.random.SFC64(seed))

    def integer(self) -> int:
        """A number in [0, 2⁶³), for generators that take nothing larger."""
        return int.from_bytes(self.key[:8], "big") >> 1
