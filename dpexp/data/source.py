"""Where a data set's files may come from."""

import abc
from collections.abc import Iterator, Mapping

__all__ = ["Source", "Unavailable"]


class Unavailable(Exception):
    """A source cannot deliver; its text is the reason, which the user sees if all sources fail."""


class Source(abc.ABC):
    """One place that may hold the files: a folder, a mirror, a package.

    `str(source)` is what messages call it.
    """

    @abc.abstractmethod
    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yields name and verified, uncompressed bytes of the wanted files it has.

        Args:
            wanted: SHA-256 digest (of the uncompressed file) by file name.

        Raises:
            Unavailable: As soon as the source fails; what it yielded before stays good.
        """
