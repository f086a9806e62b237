"""Features of rows kept on disk: by content, under a local secret, for public transforms only."""

import contextlib
import hashlib
import logging
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

import numpy as np
from filelock import FileLock

from dpexp.features.features import Inputs

__all__ = ["Corrupt", "FeatureCache"]

_log = logging.getLogger(__name__)
_DIGEST_BYTES = 32
_BLOCK = 1 << 22


class Corrupt(Exception):
    """A file is not what was written."""


@final
@dataclass(frozen=True, kw_only=True)
class FeatureCache:
    """A folder of `.npy` files, each followed by a keyed digest of it; readable by their owner only.

    A file's name is a keyed digest of the transform's identity and of the very rows, so that splits and
    settings cannot be mixed up, and that a name confirms nothing about the rows to whoever lacks the folder's
    key. Nothing that was fitted to private rows may be kept here: runs that did not pay for it would use it.

    Attributes:
        folder: Made when it is first written to.
    """

    folder: Path

    @classmethod
    def of_user(cls) -> "FeatureCache":
        """`DPEXP_FEATURES_DIR`, or `dpexp/features` in the user's cache folder."""
        import pooch

        named = os.environ.get("DPEXP_FEATURES_DIR")
        return cls(folder=Path(named).expanduser() if named else Path(pooch.os_cache("dpexp")) / "features")

    def get(
        self, identity: str, inputs: Inputs, shape: tuple[int, int], compute: Callable[[Inputs], Inputs]
    ) -> Inputs:
        """The features of `inputs`, from disk where they are there and whole, else computed and kept.

        Args:
            identity: All that decides what comes out beside the rows.
            inputs: Rows (N, *shape).
            shape: (N, d) of what comes out.
            compute: Computes them.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = self._key()
        except OSError as error:
            _log.warning("Features are not kept: the cache %s cannot be written to: %s", self.folder, error)
            return compute(inputs)
        path = self.folder / f"{_name(key, identity, inputs)}.npy"
        with FileLock(path.with_suffix(".lock"), mode=0o600):  # runs side by side compute it once
            found = _read(path, key, shape)
            if found is None:
                found = compute(inputs)
                self._keep(path, key, found)
        return found

    def _key(self) -> bytes:
        """The folder's secret; made once."""
        path = self.folder / ".key"
        with FileLock(self.folder / ".key.lock", mode=0o600):
            if not path.exists():
                descriptor, temporary = tempfile.mkstemp(dir=self.folder)  # 0600
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(32))
                os.replace(temporary, path)
            return path.read_bytes()

    def _keep(self, path: Path, key: bytes, features: Inputs) -> None:
        descriptor, temporary = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".tmp")  # 0600
        try:
            with os.fdopen(descriptor, "w+b") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(features), allow_pickle=False)
                length = file.tell()
                file.seek(0)
                digest = _digest(key, file, length)
                file.seek(length)
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            _log.warning("Features are not kept: %s cannot be written: %s", path, error)
        finally:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)


def _name(key: bytes, identity: str, inputs: Inputs) -> str:
    digest = hashlib.blake2b(key=key, digest_size=20)
    digest.update(f"{identity}\0{inputs.dtype}\0{inputs.shape}\0".encode())
    digest.update(np.ascontiguousarray(inputs).data)
    return digest.hexdigest()


def _read(path: Path, key: bytes, shape: tuple[int, int]) -> Inputs | None:
    try:
        return _verified(path, key, shape)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, Corrupt) as error:
        _log.warning("The cached features %s are corrupt and are computed again: %s", path, error)
        return None


def _verified(path: Path, key: bytes, shape: tuple[int, int]) -> Inputs:
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
        if length <= 0 or _digest(key, file, length) != file.read(_DIGEST_BYTES):
            raise Corrupt("its digest is not that of its content")
        file.seek(0)
        found = np.lib.format.read_array(file, allow_pickle=False)
    if found.shape != shape or found.dtype != np.float32:
        raise Corrupt(f"it holds {found.dtype} of shape {found.shape}")
    return found


def _digest(key: bytes, file: BinaryIO, length: int) -> bytes:
    digest = hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES)
    left = length
    while left and (block := file.read(min(_BLOCK, left))):
        digest.update(block)
        left -= len(block)
    return digest.digest()
