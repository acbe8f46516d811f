"""The program `regard`: its verbs, and how it ends when something is wrong."""

from __future__ import annotations

import os
import sys

import click
import typer

from regard.cli.steps import steps
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Self-attention you can see through.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Self-attention you can see through."""


app.command()(steps)


def main() -> None:
    """Run the program; bad input ends in one line on standard error and a non-zero status."""
    try:
        app(standalone_mode=False)
    except click.ClickException as error:
        print(f"regard: {error.format_message()}", file=sys.stderr)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
