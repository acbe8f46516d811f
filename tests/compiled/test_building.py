"""A real compiler, or none: in processes of their own, since what is built is kept."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from regard.compiled import building
from regard.compiled.building import library

# The file alone, which needs nothing else of regard.
ASK = "import runpy, sys; print(runpy.run_path(sys.argv[1])['library']() is not None)"
needs_compiler = pytest.mark.skipif(library() is None, reason="nothing is compiled here")


PRODUCT = """
import torch
from regard import compiled
torch.manual_seed(0)
x, w = torch.randn(13, 64), torch.randn(64, 48)
y = compiled.affine_by_panels(x, compiled.panels(w, torch.bfloat16), None, torch.empty(13, 48))
wanted = x.bfloat16().double() @ w.bfloat16().double()
print(bool((y - wanted).abs().max() < 1e-4))
"""


def has_loops(**environment: str) -> bool:
    """Whether a new process, in this environment, has compiled loops."""
    here = {name: value for name, value in os.environ.items() if name != "REGARD_COMPILED"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, building.__file__],
        env={**here, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stderr == ""
    return done.stdout == "True\n"


@needs_compiler
def test_it_is_built_once_and_found_again(tmp_path: Path) -> None:
    assert has_loops(XDG_CACHE_HOME=str(tmp_path))
    (made,) = (tmp_path / "regard" / "compiled").iterdir()
    before = made.stat()
    assert has_loops(XDG_CACHE_HOME=str(tmp_path))
    assert [made] == list(made.parent.iterdir())
    assert made.stat().st_mtime_ns == before.st_mtime_ns


@needs_compiler
def test_without_a_folder_to_keep_it_it_is_built_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert has_loops(XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_a_compiler_there_is_none(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-compiler")
    assert not has_loops(XDG_CACHE_HOME=str(tmp_path), CXX=missing)
    assert list((tmp_path / "regard" / "compiled").iterdir()) == []


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not has_loops(XDG_CACHE_HOME=str(tmp_path), CXX="false")
    assert list((tmp_path / "regard" / "compiled").iterdir()) == []


@needs_compiler
def test_what_is_damaged_is_built_again(tmp_path: Path) -> None:
    assert has_loops(XDG_CACHE_HOME=str(tmp_path))
    (made,) = (tmp_path / "regard" / "compiled").iterdir()
    whole = made.stat().st_size
    os.truncate(made, 1000)
    assert has_loops(XDG_CACHE_HOME=str(tmp_path))
    assert made.stat().st_size == whole


@needs_compiler
def test_what_others_could_have_changed_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "regard" / "compiled"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert has_loops(XDG_CACHE_HOME=str(tmp_path))
    assert list(folder.iterdir()) == []


@needs_compiler
def test_a_process_may_fork_while_another_thread_builds() -> None:
    code = """
import os, runpy, sys
building = runpy.run_path(sys.argv[1])
building["_Known"].lock.acquire()
child = os.fork()
if child == 0:
    os._exit(0 if building["library"]() is not None else 1)
print(os.waitpid(child, 0)[1] == 0)
"""
    command = [sys.executable, "-c", code, building.__file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout == "True\n", done.stderr


@needs_compiler
def test_threads_that_cannot_be_linked_are_done_without(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *-fopenmp*) set -- "$@" -lno_such_library ;; esac\nexec c++ "$@"\n'
    )
    compiler.chmod(0o700)
    assert has_loops(XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler))


@needs_compiler
def test_a_library_without_the_functions_is_none(tmp_path: Path) -> None:
    assert not has_loops(XDG_CACHE_HOME=str(tmp_path), CXX="c++ -fvisibility=hidden")


def test_a_compiler_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/pid\nwait\n")
    compiler.chmod(0o700)
    code = """
import runpy, sys
building = runpy.run_path(sys.argv[1])
building["_run"].__globals__["PATIENCE"] = 3
print(building["library"]())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, building.__file__],
        env={**os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout == "None\n", done.stderr
    started = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/cmdline")
    assert not started.exists() or b"sleep" not in started.read_bytes()


@pytest.mark.parametrize("wrong", ['g++ "', ""])
def test_a_compiler_that_cannot_be_understood_is_none(wrong: str, tmp_path: Path) -> None:
    assert not has_loops(XDG_CACHE_HOME=str(tmp_path), CXX=wrong)


def test_they_can_be_declined() -> None:
    assert not has_loops(REGARD_COMPILED="0")


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no such instruction here")
def test_without_an_instruction_for_bfloat16_it_is_the_same(tmp_path: Path) -> None:
    here = {name: value for name, value in os.environ.items() if name != "REGARD_COMPILED"}
    compiler = f"{os.environ.get('CXX', 'c++')} -mno-avx512bf16"
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT],
        env={**here, "XDG_CACHE_HOME": str(tmp_path), "CXX": compiler},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout == "True\n"
    assert len(list((tmp_path / "regard" / "compiled").iterdir())) == 1  # it was made anew
