import platform

from dpexp.allocator import keep_freed_memory


def test_glibc_takes_both_thresholds():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
