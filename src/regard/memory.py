"""Memory that is freed and soon asked for again stays with the process.

glibc gives large blocks back to the system as soon as they are freed, and the system clears every
page before it lends it again. For tensors of the same sizes, again and again, that is a waste.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

import torch

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # malloc.h
LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory; False where it is another library than glibc.

    What is kept is what the process has needed at its highest point, and no more: for programs of
    one's own, which train and translate.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    chosen = ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (TOP_PAD, 1 << 26))
    return all(mallopt(option, value) == 1 for option, value in chosen)


@cache
def keep_some_freed_memory() -> bool:
    """Have glibc keep up to 64 MiB of freed memory; False where it is another library.

    It learns how much to keep from the largest block that it has ever got back, up to 32 MiB. This
    gives it such a block, as any array of that size would: for a library in somebody else's
    process, where settings are not ours.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    torch.empty(2**25 - 2**16, dtype=torch.uint8, device="cpu")
    return True
