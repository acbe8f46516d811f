"""``regard serve`` as a program: it starts, ends cleanly, and says in one line why it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.model_files import save_model
from tests.cli.result import Run

TEXT = "The animal didn't cross the street."
WAIT = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([TEXT] * 2, size=26)
    tiny = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=1, decoder_depth=1
    )
    save_model(folder, Transformer(tiny).eval())
    tokenizer.save(folder / "tokenizer.json")
    return folder


Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(model: Path) -> Iterator[Start]:
    """Starts the program; gives the process, and the address that it prints."""
    started: list[subprocess.Popen[str]] = []

    def run(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "regard", "serve", "--model", str(model), "--port", "0"]
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )  # fmt: skip
        started.append(process)
        line = _out(process).readline()
        found = re.fullmatch(r"regard: (http://\S+:\d+/)  \(Ctrl\+C to quit\)\n", line)
        assert found, (line, process.stderr and process.stderr.read())
        return process, found[1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def ask(address: str, question: object, **headers: str) -> tuple[int, Any]:
    body = json.dumps(question).encode()
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_serves_and_ends_when_told_to(start: Start, model: Path) -> None:
    process, address = start()
    with urllib.request.urlopen(f"{address}api/health", timeout=WAIT) as reply:
        assert json.load(reply)["model"] == model.name
        assert "server" not in reply.headers
    status, found = ask(f"{address}api/explain", {"text": TEXT, "word": "animal"})
    assert (status, found["position"]) == (200, 1)
    assert ask(f"{address}api/explain", {"text": TEXT, "word": "dog"})[0] == 422
    assert ask(f"{address}api/figure", {"text": "x" * 1_000_000})[0] == 413
    assert ask(f"{address}api/heads", {"text": TEXT}, Host="evil.example")[0] == 421
    process.terminate()
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_log_names_requests_and_texts_only_if_asked(start: Start) -> None:
    """Ctrl-C ends the server as SIGTERM does."""
    process, address = start("--log-texts", "--longest", "50")
    ask(f"{address}api/words?secret", {"text": "zebra"})
    assert ask(f"{address}api/words", {"text": "x" * 51})[1] == {
        "error": "text has 51 characters, but the limit is 50"
    }
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out) == (0, "")
    lines = [line.split(" ", 1)[1] for line in err.splitlines()]
    assert len(lines) == 3
    assert lines[0] == '/api/words {"text": "zebra"}'
    assert re.fullmatch(r"POST /api/words 200, \d+ ms", lines[1])
    assert re.fullmatch(r"POST /api/words 413, \d+ ms", lines[2])
    assert "secret" not in err


Fail = Callable[..., str]


@pytest.fixture
def failing(program: Run) -> Fail:
    """``regard serve …`` that cannot start: the one line with which it fails."""

    def run(*options: str) -> str:
        status, out, err = program("serve", *options)
        assert (status, out) == (1, "")
        assert err.count("\n") == 1
        return err

    return run


def test_a_port_in_use(failing: Fail, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = failing("--model", str(model), "--port", str(port))
    assert said == (
        f"regard: serve: port {port} of 127.0.0.1 is in use; choose another with --port, or 0 for "
        "a free one\n"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "70000"], "serve: --port 70000, expected 0 to 65535"),
        (["--host", "203.0.113.7"], "serve: --host 203.0.113.7 is not an address of this machine; "
         "127.0.0.1 accepts local connections only"),
        (["--host", "no such host"], "serve: --host no such host is not an address of this "
         "machine; 127.0.0.1 accepts local connections only"),
        (["--threads", "0"], "serve: --threads 0, expected 1 or more"),
        (["--workers", "0"], "serve: --workers 0, expected 1 or more"),
        (["--workers", "8421"], "serve: --workers 8421, expected 256 or fewer"),
        (["--workers", "2", "--threads", "2"], "serve: --workers 2 and --threads 2, but with "
         "several workers each has one thread; give only one of the two"),
        (["--longest", "0"], "serve: --longest 0, expected 1 or more"),
        (["--seconds", "nan"], "Limits: seconds expected above 0, got nan"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(failing: Fail, options: list[str], sentence: str) -> None:
    said = failing("--model", "nowhere", "--port", "0", *options)
    assert said == f"regard: {sentence}\n"


def test_a_model_that_is_not_there(failing: Fail) -> None:
    said = failing("--model", "nowhere", "--port", "0")
    assert said.startswith("regard: nowhere: no such folder; expected what `regard train` writes")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra(failing: Fail, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name.startswith("regard.serve"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    said = failing("--port", "0")
    assert said == f"regard: serve: {missing} is not installed; pip install 'regard[serve]'\n"
