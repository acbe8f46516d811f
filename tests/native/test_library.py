"""A real compiler, or none: in processes of their own, since what is built is kept."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import attend, native

needs_compiler = pytest.mark.skipif(not native.loaded(), reason="there is no compiler")

ASK = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
from regard.native import status
print(status())
"""


def asked(code: str = ASK, **environment: str) -> tuple[str, str]:
    """What a new process, in this environment, prints and logs."""
    here = {name: value for name, value in os.environ.items() if name != "REGARD_NATIVE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**here, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip(), done.stderr.strip()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def quick_compiler(folder: Path) -> str:
    """A compiler that does not optimise, for tests that run nothing of what it builds."""
    return script(folder / "quick", 'exec c++ "$@" -O0')


def cached(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "regard" / "native").iterdir())


@needs_compiler
def test_it_is_built_once_found_again_and_built_anew_if_damaged(tmp_path: Path) -> None:
    quick = quick_compiler(tmp_path)
    assert asked(XDG_CACHE_HOME=str(tmp_path), CXX=quick) == ("None", "")
    (name,) = cached(tmp_path)
    made = tmp_path / "regard" / "native" / name
    before = made.stat()
    assert asked(XDG_CACHE_HOME=str(tmp_path), CXX=quick) == ("None", "")
    assert cached(tmp_path) == [name]
    assert made.stat().st_mtime_ns == before.st_mtime_ns
    os.truncate(made, 1000)
    assert asked(XDG_CACHE_HOME=str(tmp_path), CXX=quick) == ("None", "")
    assert [(made.parent / one).stat().st_size for one in cached(tmp_path)] == [before.st_size]


@needs_compiler
def test_a_path_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "shared" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    quick = quick_compiler(tmp_path)
    said, logged = asked(XDG_CACHE_HOME=str(cache), TMPDIR=str(tmp_path), CXX=quick)
    assert said == "None"
    assert f"compiled anew in every process: others can write to {tmp_path}/shared" in logged
    assert cached(cache) == []
    (tmp_path / "shared").chmod(0o755)
    (cache / "regard" / "native").chmod(0o777)
    _, logged = asked(f"{FAIL}{ASK}", XDG_CACHE_HOME=str(cache))
    assert "is not a folder that only you can write to" in logged
    (tmp_path / "file").touch()
    _, logged = asked(f"{FAIL}{ASK}", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert "compiled anew in every process" in logged


FAIL = "import os; os.environ['CXX'] = 'false'\n"


def test_without_a_compiler_it_is_said_once_in_the_log(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-compiler")
    said, logged = asked(XDG_CACHE_HOME=str(tmp_path), CXX=missing)
    assert said == "there is no C++ compiler"
    assert logged.count("native operators need a C++ compiler") == 1


def test_a_compiler_that_fails_is_not_tried_again_the_next_time(tmp_path: Path) -> None:
    count = tmp_path / "count"
    broken = script(tmp_path / "cc", f"echo x >> {count}\necho 'error: no luck' >&2\nexit 3")
    for _ in range(2):
        said, logged = asked(XDG_CACHE_HOME=str(tmp_path), CXX=broken)
        assert said == f"they could not be built: {broken} failed with status 3"
        assert "error: no luck" in logged
        assert logged.count("native operators could not be built") == 1
    assert count.read_text() == "x\n"
    assert "to try again" in logged
    (note,) = cached(tmp_path)
    (tmp_path / "regard" / "native" / note).unlink()
    asked(XDG_CACHE_HOME=str(tmp_path), CXX=broken)
    assert count.read_text() == "x\nx\n"


@pytest.mark.parametrize(
    "text", [": >", "echo rubbish >"], ids=["nothing is written", "rubbish is written"]
)
def test_a_broken_library_is_removed(text: str, tmp_path: Path) -> None:
    find = 'while [ "$1" != -o ]; do shift; done\n'
    broken = script(tmp_path / "cc", f'{find}{text} "$2"')
    for _ in range(2):
        said, logged = asked(XDG_CACHE_HOME=str(tmp_path), CXX=broken)
        assert said.startswith("they could not be built")
        assert logged.count("WARNING") == 1
        assert [name.split("-")[0] for name in cached(tmp_path)] == ["failed"]


@needs_compiler
def test_a_process_may_fork_while_another_thread_builds() -> None:
    code = """
import os
from regard.native import library
library._State.lock.acquire()
child = os.fork()
if child == 0:
    os._exit(0 if library.loaded() else 1)
print(os.waitpid(child, 0)[1] == 0)
"""
    assert asked(code)[0] == "True"


def test_a_compiler_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    slow = script(tmp_path / "cc", f"sleep 1000 &\necho $! > {tmp_path}/pid\nwait")
    code = f"from regard.native import library\nlibrary.PATIENCE = 2\n{ASK}"
    said, _ = asked(code, CXX=slow, XDG_CACHE_HOME=str(tmp_path))
    assert "timed out" in said
    started = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/cmdline")
    assert not started.exists() or b"sleep" not in started.read_bytes()


@pytest.mark.parametrize("wrong", ['g++ "', ""])
def test_a_compiler_that_cannot_be_understood_is_none(wrong: str, tmp_path: Path) -> None:
    assert asked(XDG_CACHE_HOME=str(tmp_path), CXX=wrong)[0] != "None"


def test_they_can_be_turned_off() -> None:
    said, logged = asked(REGARD_NATIVE="0")
    assert said == "they are turned off by REGARD_NATIVE=0"
    assert logged == "INFO native operators are turned off by REGARD_NATIVE=0"


RIGHT = """
import torch
from regard import attend, causal, native
assert native.loaded()
torch.manual_seed(0)
x, w = torch.randn(13, 64), torch.randn(64, 48)
y = torch.ops.regard.affine_panels(x, native.panels(w, torch.bfloat16), None, 48)
wanted = x.bfloat16().double() @ w.bfloat16().double()
worst = (y - wanted).abs().max()
m, s = native.Int8Matrix.quantise(w, 1), x.abs().amax(1, keepdim=True) / 127
y = native.Int8Product.apply(x, m, None)
wanted = (x / s).round().double() @ m.whole.double() * (s * m.scales)
worst = max(worst, (y - wanted).abs().max())
for n in (3, 20, 300):
    q, k, v = (torch.randn(2, 3, n, 40, requires_grad=True) for _ in range(3))
    above, found = torch.randn(2, 3, n, 40), []
    for kernel in ("native", "reference"):
        output = attend(q, k, v, mask=causal, kernel=kernel)
        found.append([output, *torch.autograd.grad(output, (q, k, v), above)])
    worst = max(worst, *((one - other).abs().max() for one, other in zip(*found)))
print(bool(worst < 1e-4))
"""


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are options for x86-64")
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx512f -mno-avx -mno-fma"])
def test_without_wide_vectors_it_is_the_same(without: str, tmp_path: Path) -> None:
    compiler = script(tmp_path / "cc", f'exec c++ "$@" {without} -O1')
    assert asked(RIGHT, XDG_CACHE_HOME=str(tmp_path), CXX=compiler)[0] == "True"


@pytest.mark.skipif(not native.loaded(), reason="there are no native operators")
def test_more_keys_than_there_is_memory_for() -> None:
    many = torch.zeros(16).expand(1, 1, 2**40, 16)
    with pytest.raises(MemoryError, match=r"attend: no memory for \d+ bytes of packed keys"):
        attend(torch.zeros(1, 1, 4, 16), many, many, kernel="native")


CALCULATE = """
import torch
from regard import attend, causal
from regard.native import Int8Matrix, Int8Product, status
assert status() is None
torch.manual_seed(0)
given = [torch.randn(2, 3, 37, 24, requires_grad=True) for _ in range(3)]
outputs = [attend(*given, mask=causal, kernel=kernel) for kernel in ("native", "reference")]
torch.testing.assert_close(*outputs)
gradients = [torch.autograd.grad(one.square().sum(), given) for one in outputs]
torch.testing.assert_close(*gradients)
x, w, bias = torch.randn(13, 40), torch.randn(40, 80), torch.randn(80)
torch.testing.assert_close(torch.ops.regard.affine(x, w, bias), x @ w + bias)
small, most = Int8Matrix.quantise(w, 1), x.abs().amax(1, keepdim=True)
exact = (x * (127 / most)).round() * (most / 127) @ small.values()
torch.testing.assert_close(Int8Product.apply(x, small, None), exact, rtol=1e-5, atol=1e-5)
print("the same")
"""


@needs_compiler
@pytest.mark.skipif("AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="no AVX-512")
def test_operators_for_processors_with_avx2_alone(tmp_path: Path) -> None:
    compiler = script(tmp_path / "haswell", 'exec c++ "$@" -march=haswell')
    assert asked(CALCULATE, XDG_CACHE_HOME=str(tmp_path), CXX=compiler) == ("the same", "")
