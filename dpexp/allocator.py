"""The C library's memory: what one lot frees is kept for the next."""

import ctypes
import platform

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_LARGEST_BLOCK = 32 * 2**20  # the most that every glibc takes on 64-bit machines
_KEPT = 256 * 2**20  # more than most lots of the benchmarks' networks free


def keep_freed_memory() -> bool:
    """Makes glibc keep freed blocks of up to 32 MiB, for the rest of the process.

    Of what is free at the end of the heap, 256 MiB; below blocks in use, all of it, as always.

    By default it gives them back, and the kernel clears their pages anew for every lot: a fifth of the
    processor time of a step of the paper's network. Elsewhere than on glibc nothing happens.

    Returns:
        Whether it does.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_TRIM_THRESHOLD, _KEPT) and library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK))
