"""The program `regard`: its verbs, and how it ends when something is wrong."""

from __future__ import annotations

import io
import os
import sys

import typer
from typer.exceptions import TyperException

from regard.cli.compare import compare
from regard.cli.corpus import corpus
from regard.cli.explain import explain
from regard.cli.export import export
from regard.cli.score import score
from regard.cli.serve import serve
from regard.cli.steps import steps
from regard.cli.train import train
from regard.cli.translate import translate
from regard.cli.vectors import app as vectors
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Self-attention you can see through.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Self-attention you can see through."""
    if context.invoked_subcommand is None:
        print(context.get_help())


for verb in (explain, compare, steps, train, translate, score, export, corpus, serve):
    app.command()(verb)
app.add_typer(vectors, name="vectors")


def main() -> None:
    """Run the program; bad input ends in one line on standard error and a non-zero status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="regard", standalone_mode=False)
    except TyperException as error:
        print(f"regard: {error.format_message()}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            print(f"regard: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
