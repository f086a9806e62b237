"""The search for a data set's files: what the user placed, then the cache, then the network."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from dpexp._validate import UserError
from dpexp.data.cache import Cache, Kept
from dpexp.data.source import Source, Unavailable

__all__ = ["find"]

logger = logging.getLogger(__name__)


def find(
    wanted: Mapping[str, str],
    *,
    placed: Sequence[Source],
    cache: Cache,
    remotes: Sequence[Source],
) -> dict[str, bytes]:
    """Finds all wanted files, asking each source only for those that the ones before it lack.

    Args:
        wanted: SHA-256 digest (of the uncompressed file) by file name.
        placed: Sources that need no cache, asked first.
        cache: Asked next, and filled by the remotes; it is not touched if nothing is missing by then.
        remotes: Sources over the network, asked last, while the cache is locked.

    Returns:
        Verified, uncompressed bytes by file name.

    Raises:
        UserError: If a file is found nowhere. It says why each source failed and how to place files.
    """
    found, reasons = _ask(placed, wanted)
    for reason in reasons:
        logger.warning("%s; the next source is asked", reason)
    missing = _missing(wanted, found)
    if missing:
        with cache.locked():
            kept = [Kept(source=source, cache=cache) for source in remotes]
            fetched, further = _ask([cache, *kept], missing)
        found |= fetched
        reasons += further
    if missing := _missing(wanted, found):
        raise _nowhere(missing, reasons, cache)
    return found


def _ask(sources: Iterable[Source], wanted: Mapping[str, str]) -> tuple[dict[str, bytes], list[str]]:
    """Returns the files that were found, and the reason of each source that failed."""
    found: dict[str, bytes] = {}
    reasons = []
    for source in sources:
        missing = _missing(wanted, found)
        if not missing:
            break
        try:
            for name, content in source.deliver(missing):
                found[name] = content
        except Unavailable as reason:
            logger.info("%s: %s", source, reason)
            reasons.append(f"{source}: {reason}")
    return found, reasons


def _missing(wanted: Mapping[str, str], found: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256 for name, sha256 in wanted.items() if name not in found}


def _nowhere(missing: Iterable[str], reasons: Iterable[str], cache: Cache) -> UserError:
    names = ", ".join(missing)
    tried = "\n".join(f"  - {reason}" for reason in reasons)
    return UserError(
        f"No source has {names}:\n{tried}\n"
        "To place them by hand, put files of these names (or with .gz) into a folder and set data.root, "
        f"or the environment variable DPEXP_DATA_DIR, to it; or put them uncompressed into {cache.folder}."
    )
