"""Freed memory is kept: the system is not asked to clear the same pages again and again."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from regard import memory
assert {keep}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    [torch.ones(1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_pages_are_asked_for_once() -> None:
    pages = 8 * (4 << 20) // resource.getpagesize()  # of one round of the twenty
    for keep in ("memory.keep_freed_memory()", "memory.keep_some_freed_memory()"):
        asked = subprocess.check_output([sys.executable, "-c", FAULTS.format(keep=keep)], text=True)
        assert int(asked) < 3 * pages  # the heap may be laid out anew once; without keeping: 20
