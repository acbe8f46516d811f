"""Random command lines: each ends with a status and, if it fails, a sentence, never a traceback."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import small

SECONDS = 60
"""How long a command may take."""
STATUSES = (0, 1, 2)
NUMBERS = ("0", "1", "-1", "2", "0.5", "nan", "inf", "-0", "1e9", "10" * 20, "1_0", "٣", "")
TEXTS = (
    "one two",
    "",
    " ",
    "\u0301" * 40,
    "it",
    "The animal didn't cross the street.",
    "=",
    "--",
    "\\",
    "猫",
)


@cache
def verbs() -> dict[str, list[Any]]:
    """The verbs, each with the parameters that it has."""
    from typer.main import get_command

    from regard.cli.program import VERBS, program

    found: dict[str, list[Any]] = {}
    for name, command in get_command(program(VERBS)).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command.params
        else:
            found.update({f"{name} {sub}": one.params for sub, one in inner.items()})
    return found


@cache
def files() -> list[str]:
    """Files and folders that a command may be given, good and bad."""
    place = small.folder()
    (place / "empty").write_bytes(b"")
    (place / "binary").write_bytes(random.Random(0).randbytes(3000))
    (place / "latin").write_bytes("schläft\nTür\n".encode("latin-1"))
    (place / "matrix.json").write_text("[[1, 2], [3, 4]]")
    (place / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n")
    (place / "lines.json").write_text('{"source": "one", "targets": ["eins", "zwei"]}\n')
    made = [
        place / name
        for name in ("empty", "binary", "latin", "matrix.json", "pairs.tsv", "lines.json")
    ]
    made += [
        *small.corpus(),
        small.model(),
        small.vectors() / "glove.txt",
        place,
        place / "missing",
    ]
    return [*map(str, made), "/dev/null", "-", ""]


def one(seed: int) -> list[str]:
    """Try the command line of this seed; which verb it was, and the status it ended with."""
    rng = random.Random(seed)
    verb, arguments = _line(rng)
    given = rng.choice(
        (b"", b"one two\n", b"one\n\xff\n", b"\n\n", b"x" * 5000, "猫 it\n".encode())
    )
    status, said = _run([*verb.split(), *arguments], given)
    shown = " ".join(map(repr, arguments))
    if status not in STATUSES:
        raise AssertionError(f"{verb} {shown}: status {status}; {said[-300:]}")
    if "Traceback" in said or (status and not said.strip()):
        raise AssertionError(f"{verb} {shown}: {said[-500:] or 'fails without a word'}")
    return [verb, f"status {status}"]


def _line(rng: random.Random) -> tuple[str, list[str]]:
    verb = rng.choice(sorted(name for name in verbs() if name != "serve"))
    arguments: list[str] = []
    for parameter in verbs()[verb]:
        wanted = parameter.required or rng.random() < 0.25
        if not wanted and parameter.name not in ("model", "out", "max_steps"):
            continue
        value = _value(rng, parameter)
        if parameter.param_type_name == "argument":
            arguments.append(value)
        elif parameter.is_flag:
            arguments.append(parameter.opts[0])
        else:
            arguments += [parameter.opts[0], value]
    if rng.random() < 0.1:
        arguments.insert(
            rng.randrange(len(arguments) + 1), rng.choice(("--no-such", "-x", "extra"))
        )
    return verb, arguments


def _value(rng: random.Random, parameter: Any) -> str:
    """A value for an option, one that makes sense more often than not."""
    name = parameter.name
    if name == "out" or name == "output":
        return str(
            small.folder() / f"out-{rng.randrange(3)}{rng.choice(('', '.html', '.json', '.svg'))}"
        )
    if name == "max_steps":
        return rng.choice(("1", "2", "0", "x"))
    if name == "model" and rng.random() < 0.7:
        return str(small.model())
    if name in ("source", "valid_source") and rng.random() < 0.6:
        return str(small.corpus()[0])
    if name in ("target", "valid_target") and rng.random() < 0.6:
        return str(small.corpus()[1])
    if parameter.bare_type in (int, float):
        return rng.choice(NUMBERS)
    if rng.random() < 0.5:
        return rng.choice(files())
    return rng.choice(TEXTS + NUMBERS)


def _run(arguments: list[str], given: bytes) -> tuple[int, str]:
    """The status of the program, and what it wrote to standard error, in a forked process."""
    place = small.folder()
    for name in ("stdin", "stdout", "stderr"):
        (place / name).write_bytes(given if name == "stdin" else b"")
    child = os.fork()
    if child == 0:
        _child(place, arguments)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code, (place / "stderr").read_text(encoding="utf-8", errors="replace")
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL, f"not done after {SECONDS} s"


def _child(place: Path, arguments: list[str]) -> None:
    """What the forked process does: the program, with files for its streams."""
    try:
        os.chdir(place)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_TRUNC
            os.dup2(os.open(place / name, flags), number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["regard", *arguments]
        from regard.cli import main

        main()
        sys.stdout.flush()
        os._exit(0)
    except SystemExit as end:
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(99)
