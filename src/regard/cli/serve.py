"""``regard serve``: a model in the browser."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Model
from regard.errors import OptionError
from regard.models import POCKET

if TYPE_CHECKING:
    from regard.lens import Lens

PORT = 8421
SMALL = 20_000_000
"""Parameters below which one thread is about as fast as two."""
MOST_WORKERS = 256
"""Each is a process; a port given as --workers by mistake would fill the memory."""
FORKS = sys.platform == "linux"
"""Whether a process that has loaded PyTorch can fork."""


def serve(
    model: Model = POCKET,
    port: Annotated[int, typer.Option(help="Port; 0 is any free one.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 127.0.0.1 is this machine only.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another accepted host name; repeatable.")
    ] = None,
    longest: Annotated[int, typer.Option(help="Maximum characters of a text.")] = 2_000,
    tokens: Annotated[int, typer.Option(help="Maximum tokens of a text.")] = 512,
    seconds: Annotated[float, typer.Option(help="Time limit of a request.")] = 60.0,
    waiting: Annotated[int, typer.Option(help="Maximum waiting requests.")] = 64,
    workers: Annotated[
        int | None,
        typer.Option(help="Worker processes. [one per core for a small model, else 1]"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of the only worker. [1 for a small model, else one per core]"),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page, if run from a terminal.")] = True,
    log: Annotated[bool, typer.Option("--log", help="Log every request.")] = False,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Also log the texts of requests.")
    ] = False,
) -> None:
    """A page in the browser: type a sentence, see what the model attends to, and cut links."""
    try:
        from regard.serve import Limits, make
        from regard.serve.running import bound, run
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise OptionError(
            f"serve: {missing} is not installed; pip install 'regard[serve]'"
        ) from None
    counts = {"--longest": longest, "--tokens": tokens, "--waiting": waiting}
    for option, value in {**counts, "--threads": threads, "--workers": workers}.items():
        if value is not None and value < 1:
            raise OptionError(f"serve: {option} {value}, expected 1 or more")
    if workers is not None and workers > MOST_WORKERS:
        raise OptionError(f"serve: --workers {workers}, expected {MOST_WORKERS} or fewer")
    if workers is not None and workers > 1 and threads is not None and threads > 1:
        raise OptionError(
            f"serve: --workers {workers} and --threads {threads}, but with several workers each "
            "has one thread; give only one of the two"
        )
    import torch

    from regard.lens import Lens

    limits = Limits(
        text=longest,
        tokens=tokens,
        body=max(65_536, 16 * longest),
        seconds=seconds,
        waiting=waiting,
    )
    listening = bound(host, port)
    with listening:
        lens = Lens.open(model)
        workers, threads = _workers_and_threads(lens, workers, threads)
        torch.set_num_threads(threads)
        _log(log or log_texts)
        names = [host, *(allow_host or ())]
        name = Path(model).name or model
        app = make(
            lens, name=name, limits=limits, hosts=names, log_texts=log_texts, workers=workers
        )
        run(app, listening, started=_started, browse=browser and _has_browser(), longest=longest)


def _workers_and_threads(lens: Lens, workers: int | None, threads: int | None) -> tuple[int, int]:
    """Worker processes, and threads of each: a second thread hardly helps a small model."""
    import torch

    cores = torch.get_num_threads()
    small = sum(p.numel() for p in lens.model.parameters()) < SMALL
    if workers is None:
        workers = cores if small and threads is None and FORKS else 1
    if workers > 1 and not FORKS:
        raise OptionError(f"serve: --workers {workers}, but this system cannot fork; leave it out")
    return workers, threads or (1 if small or workers > 1 else cores)


def _has_browser() -> bool:
    """Whether a page that opens would be seen: run from a terminal, with a display."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _started(address: str) -> None:
    print(f"regard: {address}  (Ctrl+C to quit)", flush=True)


def _log(every: bool) -> None:
    """Log failures to standard error, or every request."""
    logger = logging.getLogger("regard.serve")
    logger.setLevel(logging.INFO if every else logging.ERROR)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.handlers = [handler]
    logger.propagate = False
