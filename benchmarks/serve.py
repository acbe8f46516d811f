"""A server under load: many clients at once, and requests that nobody should send.

    python benchmarks/serve.py --clients 32 --rounds 4
    python benchmarks/serve.py --model runs/en-de --source test.en
    python benchmarks/serve.py --flat 10000
    python benchmarks/serve.py --think 5 --rounds 8 --idle 200
    python benchmarks/serve.py --think 0 --rounds 8 --shared 10

Starts `regard serve` as a program of its own. First the clients do what a person does on the page,
each with sentences of its own: the words of a sentence, the view of one of them, the steps of two
cells, two cuts, a translation. Then come requests that are malformed or too large, all at once.
No request of the first kind may fail, each of the second is answered with a 4xx and a sentence, and
the server's memory stays where it is. With --flat, one client sends that many requests about ever
new sentences to a small untrained model, and the memory after each tenth of them is printed.

With --think, the clients are a class: each asks for the figure of a sentence, reads it for so many
seconds (exponentially distributed), and asks for the next. Every sentence is asked about once, or,
with --shared, all are drawn from so many. Beside them, --idle connections send nothing, or a byte
of a request every second.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from timing import machine

from regard.challenge import generate
from regard.text import read_lines

JSON = {"Content-Type": "application/json"}
TIMEOUT = 120


@dataclass
class Measured:
    """Seconds by kind of request, and what failed."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, seconds: float, status: int, said: str) -> None:
        with self.lock:
            self.seconds[kind].append(seconds)
            if status != 200:
                self.failed[f"{kind} {status} {said}"] += 1


@contextmanager
def serving(
    model: str, workers: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """The program, its host and port; ended in the end, and its status looked at."""
    command = [sys.executable, "-m", "regard", "serve", "--model", model, "--port", "0"]
    if workers is not None:
        command += ["--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+/", line)
        if found is None:
            sys.exit("the server did not start")
        address = urlsplit(found[0])
        yield process, address.hostname or "", address.port or 0
        process.terminate()
        if process.wait(30) != 0:
            sys.exit(f"the server ended with status {process.returncode}")
    finally:
        process.kill()


class Client:
    """A connection that stays open."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)

    def send(
        self, path: str, body: bytes, headers: dict[str, str] = JSON, method: str = "POST"
    ) -> tuple[int, bytes]:
        """Status and body of the reply."""
        self._connection.request(method, path, body, headers)
        reply = self._connection.getresponse()
        return reply.status, reply.read()

    def asked(
        self, measured: Measured, kind: str, question: dict[str, object]
    ) -> dict[str, object]:
        """The reply to a question, whose time is taken."""
        began = time.perf_counter()
        status, reply = self.send(f"/api/{kind}", json.dumps(question).encode())
        measured.add(
            kind, time.perf_counter() - began, status, reply[:200].decode(errors="replace")
        )
        found: dict[str, object] = json.loads(reply)
        return found

    def close(self) -> None:
        self._connection.close()


def visit(host: str, port: int, sentences: list[str], measured: Measured, seed: int) -> None:
    """What a person does with some sentences."""
    draw = random.Random(seed)
    client = Client(host, port)
    for text in sentences:
        words = client.asked(measured, "words", {"text": text})["words"]
        assert isinstance(words, list)
        word = draw.randrange(len(words))
        found = client.asked(measured, "figure", {"text": text})
        written = found["findings"][0]["output"]  # type: ignore[index]
        other = draw.randrange(len(written))
        client.asked(measured, "figure", {"text": text, "word": other})
        client.asked(measured, "attention", {"text": text})
        client.asked(measured, "measures", {"text": text, "word": other})
        for _ in range(2):
            links = [[word, draw.randrange(len(words))]]
            client.asked(measured, "cut", {"text": text, "links": links})
        client.asked(measured, "translate", {"text": text})
    client.close()


def study(
    host: str, port: int, texts: list[str], measured: Measured, seed: int, think: float
) -> None:
    """What one of a class does: figures of sentences, each read for a while."""
    draw = random.Random(seed)
    for text in texts:
        if think:
            time.sleep(draw.expovariate(1 / think))
        client = Client(host, port)
        client.asked(measured, "figure", {"text": text})
        client.close()


@contextmanager
def idle(host: str, port: int, number: int) -> Iterator[None]:
    """So many connections that send nothing, or a request of which a byte comes now and then."""
    over = threading.Event()

    def hold(i: int) -> None:
        while not over.is_set():
            with socket.create_connection((host, port)) as held, suppress(OSError):
                for byte in b"POST /api/figure HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000:
                    if i % 2:
                        held.send(bytes([byte]))
                    if over.wait(1):
                        return

    with ThreadPoolExecutor(max(1, number)) as many:
        for i in range(number):
            many.submit(hold, i)
        try:
            yield
        finally:
            over.set()


def rows(measured: Measured) -> list[str]:
    """A row for each kind of request, and one for all."""
    every = [one for many in measured.seconds.values() for one in many]
    lines = ["| request | number | p50, ms | p99, ms | slowest, ms |", "|---|---|---|---|---|"]
    for kind, seconds in [*measured.seconds.items(), ("all", every)]:
        shares = statistics.quantiles(seconds, n=100, method="inclusive")
        told = (len(seconds), *(f"{1000 * x:.0f}" for x in (shares[49], shares[98], max(seconds))))
        lines.append(f"| {kind} | " + " | ".join(map(str, told)) + " |")
    return lines


def bad_requests(number: int) -> list[tuple[str, str, bytes, dict[str, str]]]:
    """Requests (method, path, body, headers) of which none is right."""
    text = b'{"text": "a cat sleeps", "word": 0}'
    kinds: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("POST", "/api/explain", b"", JSON),
        ("POST", "/api/explain", b'{"text": "a ca', JSON),
        ("POST", "/api/explain", b"\xff\xfe\x00", JSON),
        ("POST", "/api/explain", b"[" * 60_000, JSON),
        ("POST", "/api/explain", b'{"text": ' + b"9" * 9_000 + b"}", JSON),
        ("POST", "/api/explain", b'{"text": 5, "word": 0}', JSON),
        ("POST", "/api/explain", b'{"text": "a cat", "word": "dog"}', JSON),
        ("POST", "/api/explain", b'{"text": "a cat", "word": 99}', JSON),
        ("POST", "/api/explain", b'{"text": "\\ud800", "word": 0}', JSON),
        ("POST", "/api/explain", b'{"text": "' + b"a " * 1_500 + b'", "word": 0}', JSON),
        ("POST", "/api/explain", b'{"text": "' + b"a" * 70_000 + b'"}', JSON),
        ("POST", "/api/explain", b" " * 4_000_000, JSON),
        ("POST", "/api/cut", b'{"text": "a cat", "links": [[0]]}', JSON),
        ("POST", "/api/cut", b'{"text": "a cat", "links": [[0, 77]]}', JSON),
        ("POST", "/api/steps", b'{"text": "a cat", "query": "a", "key": "a", "layer": -1}', JSON),
        ("POST", "/api/explain", text, {"Content-Type": "text/plain"}),
        ("POST", "/api/explain", text, {**JSON, "Host": "evil.example"}),
        ("POST", "/api/nothing", text, JSON),
        ("PUT", "/api/explain", text, JSON),
        ("GET", "/serve/static/../../application.py", b"", {}),
    ]
    return [kinds[i % len(kinds)] for i in range(number)]


def refused(host: str, port: int, number: int, clients: int) -> Counter[int]:
    """How many requests got which status; one without a sentence counts as 0."""

    def ask(request: tuple[str, str, bytes, dict[str, str]]) -> int:
        method, path, body, headers = request
        client = Client(host, port)
        try:
            status, reply = client.send(path, body, headers, method)
            return status if json.loads(reply)["error"] else 0
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return 0
        finally:
            client.close()

    with ThreadPoolExecutor(clients) as many:
        return Counter(many.map(ask, bad_requests(number)))


def sentences(source: Path | None, number: int) -> list[str]:
    """So many different sentences, of up to 12 words; those that the model was trained for."""
    if source is None:
        return [pair.source for pair in generate("reference", "test", number)]
    found = [line for line in dict.fromkeys(read_lines(source)) if 4 <= len(line.split()) <= 12]
    if len(found) < number:
        sys.exit(f"{source} has only {len(found)} short sentences, but {number} are needed")
    return found[:number]


def resident(process: subprocess.Popen[str]) -> float:
    """Megabytes of memory that the program and its workers hold, what they share counted once."""
    own = Path(f"/proc/{process.pid}")
    children = (own / "task" / own.name / "children").read_text(encoding="utf-8").split()
    total = 0
    for number in (own.name, *children):
        held = Path(f"/proc/{number}/smaps_rollup").read_text(encoding="utf-8")
        total += int(re.findall(r"^Pss:\s+(\d+) kB", held, re.MULTILINE)[0])
    return total / 1024


def small_model(folder: Path) -> str:
    """The folder of an untrained model that answers in milliseconds."""
    import torch

    from regard.nn import Transformer, TransformerConfig
    from regard.text import Tokenizer
    from regard.translate.model_files import save_model

    lines = [
        side for one in generate("reference", "train", 300) for side in (one.source, one.target)
    ]
    tokenizer = Tokenizer.train(lines, 400)
    torch.manual_seed(0)
    shape = {"width": 32, "heads": 2, "feed_forward": 64, "encoder_depth": 2, "decoder_depth": 1}
    save_model(
        folder, Transformer(TransformerConfig(vocabulary=tokenizer.size, **shape)), longest=100
    )
    tokenizer.save(folder / "tokenizer.json")
    return str(folder)


def flat(number: int, workers: int | None) -> None:
    """Print the server's memory after each tenth of so many requests, which must not grow."""
    words = sorted(
        {word for one in generate("reference", "train", 500) for word in one.source.split()}
    )
    draw, measured, memory = random.Random(0), Measured(), []
    with TemporaryDirectory() as folder, serving(small_model(Path(folder)), workers) as found:
        process, host, port = found
        began, done = time.perf_counter(), 0
        while done < number:
            text = " ".join(draw.choices(words, k=draw.randint(2, 6)))
            visit(host, port, [text], measured, done)
            done = sum(map(len, measured.seconds.values()))
            if done * 10 // number > len(memory):
                memory.append(resident(process))
                took = time.perf_counter() - began
                print(f"{done:6,} requests, {took:5.0f} s: {memory[-1]:.0f} MB", flush=True)
    print(f"failed: {sum(measured.failed.values())}", *measured.failed.items(), sep="\n  ")
    if measured.failed or max(memory[3:]) > 1.05 * memory[2]:
        sys.exit("the server did not stay as it was")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pocket-en-de")
    parser.add_argument("--source", type=Path, help="sentences; built-in ones, if not given")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4, help="sentences of each client")
    parser.add_argument("--bad", type=int, default=200, help="requests that are not right")
    parser.add_argument("--workers", type=int, help="processes; regard's own choice if not given")
    parser.add_argument("--think", type=float, help="a class: seconds between two figures")
    parser.add_argument("--shared", type=int, help="so many sentences are asked about by all")
    parser.add_argument("--idle", type=int, default=0, help="connections that are idle or slow")
    parser.add_argument("--flat", type=int, help="requests of one client to a small model")
    options = parser.parse_args()
    if options.flat:
        print(machine())
        flat(options.flat, options.workers)
        return
    print(f"{machine()}; {options.clients} clients, {options.rounds} sentences each\n")
    texts = sentences(options.source, options.shared or options.clients * options.rounds)
    if options.shared:
        texts = random.Random(0).choices(texts, k=options.clients * options.rounds)
    measured = Measured()
    with serving(options.model, options.workers) as (process, host, port):
        for i in range(8):  # what is loaded only once, by each worker
            visit(host, port, [f"a cat sleeps {i} ."], Measured(), 0)
        began = time.perf_counter()
        with idle(host, port, options.idle), ThreadPoolExecutor(options.clients) as many:
            visits = []
            for i in range(options.clients):
                own = (host, port, texts[i :: options.clients], measured, i)
                if options.think is None:
                    visits.append(many.submit(visit, *own))
                else:
                    visits.append(many.submit(study, *own, options.think))
            for one in visits:
                one.result()
            took = time.perf_counter() - began
        done = sum(map(len, measured.seconds.values()))
        print("\n".join(rows(measured)))
        print(f"\n{done} requests in {took:.1f} s: {done / took:.1f} a second")
        print(f"failed: {sum(measured.failed.values())}", *measured.failed.items(), sep="\n  ")
        before = resident(process)
        statuses = refused(host, port, options.bad, 8)
        middle = resident(process)
        statuses += refused(host, port, options.bad, 8)
        after = resident(process)
        told = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))
        print(f"\n2 × {options.bad} requests that are not right: {told}")
        print(f"memory: {before:.0f} MB before, {middle:.0f} MB between, {after:.0f} MB after")
        status, reply = Client(host, port).send("/api/health", b"", {}, "GET")
        alive = status == 200 and json.loads(reply)["status"] == "ok"
        print(f"alive: {alive}")
    if measured.failed or any(not 400 <= status < 500 for status in statuses):
        sys.exit("some requests were not answered as they should be")
    if not alive or after > 1.05 * middle:
        sys.exit("the server did not stay as it was")


if __name__ == "__main__":
    main()
