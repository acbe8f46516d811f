"""Settings of glibc's allocator: freed memory stays with the process.

By default glibc returns large blocks to the system as soon as they are freed, and the kernel zeroes
every page before it hands it out again. Tensors of the same sizes are allocated over and over, so
that is wasted work.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

import torch

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # malloc.h
LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """Make glibc keep all freed memory; False with another C library.

    The process then holds its peak memory: for regard's own programs, which train and translate.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    chosen = ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (TOP_PAD, 1 << 26))
    return all(mallopt(option, value) == 1 for option, value in chosen)


@cache
def keep_some_freed_memory() -> bool:
    """Make glibc keep up to 64 MiB of freed memory; False with another C library.

    glibc raises its thresholds to the largest block it has freed, up to 32 MiB. This frees one such
    block, which changes no setting of the process: for regard as a library.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    torch.empty(2**25 - 2**16, dtype=torch.uint8, device="cpu")
    return True
