"""Freed memory is kept: the system is not asked to clear the same pages again and again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from regard.translate.memory import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_pages_are_asked_for_once() -> None:
    faults = [
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(keep=keep)], text=True))
        for keep in (False, True)
    ]
    assert faults[1] < faults[0] / 4
