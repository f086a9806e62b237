"""The C library's memory: what one lot frees is kept for the next."""

import ctypes
import platform

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_LARGEST_BLOCK = 32 * 2**20  # the most that glibc takes on 64-bit machines
_KEPT = 256 * 2**20  # what a lot of the benchmarks' networks frees, 60 to 210 MB, with room


def keep_freed_memory() -> bool:
    """Makes glibc keep up to 256 MiB of freed blocks of up to 32 MiB each, for the rest of the process.

    By default it gives them back, and the kernel clears their pages anew for every lot: a fifth of the
    processor time of a step of the paper's network. Elsewhere than on glibc nothing happens.

    Returns:
        Whether it does.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_TRIM_THRESHOLD, _KEPT) and library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK))
