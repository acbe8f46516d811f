"""Memory that is freed and soon asked for again stays with the process."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # malloc.h
LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory; False where it is another library than glibc.

    An update of a model frees and allocates the same large tensors again and again. glibc gives
    those back to the system at once, and the system clears every page before it lends it again.
    What is kept is what the process has needed at its highest point, and no more.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    chosen = ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (TOP_PAD, 1 << 26))
    return all(mallopt(option, value) == 1 for option, value in chosen)
