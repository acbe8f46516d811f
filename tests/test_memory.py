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
for round in range(20):
    if round == 4:  # aligned blocks find their final places in the heap within three rounds
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.ones(1 << 20) for _ in range({count})]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def asked_for(keep: str, count: int) -> int:
    """Pages that sixteen rounds of so many tensors of 4 MiB ask the system for."""
    script = FAULTS.format(keep=keep, count=count)
    return int(subprocess.check_output([sys.executable, "-c", script], text=True))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_pages_are_asked_for_once() -> None:
    tensor = (4 << 20) // resource.getpagesize()
    assert asked_for("memory.keep_some_freed_memory()", 8) < tensor
    assert asked_for("memory.keep_freed_memory()", 24) < tensor
