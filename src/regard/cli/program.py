"""The program `regard`: its commands, and its exit on errors."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

from regard import __version__
from regard.cli.output import note
from regard.errors import RegardError

INTERRUPTED = 130
"""Exit status after Ctrl+C."""
VERBS = (
    "why", "explain", "embed", "compare", "steps", "train", "translate",
    "score", "judge", "export", "corpus", "serve", "vectors",
)  # fmt: skip
"""The commands, each in a module of its name."""
HELP = """\
regard: self-attention you can see through.

Start here
  regard why "The animal didn't cross the street because it was too tired."
  regard serve                        the same in the browser, with your own sentences
  regard translate "How are you?"     English to German

Look inside a model
  why        which links made the model write that word
  explain    what a word attends to, by four measures
  compare    one word in two sentences
  steps      self-attention in six steps, with every number
  judge      which explanation methods deserve trust
  embed      a vector for every text of a file
  serve      a page in the browser

Translate
  translate  a sentence, a file, or standard input
  train      a translation model from sentence pairs
  score      BLEU and chrF, or accuracy on a contrastive test set
  export     a model for CTranslate2

Data
  corpus     English and German sentences with known answers
  vectors    word vectors: train them, and query them

regard COMMAND --help lists its options; regard --version."""
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def program(verbs: Iterable[str]) -> typer.Typer:
    """The program with these commands, whose modules are imported."""
    app = typer.Typer(
        name="regard",
        help="Self-attention you can see through.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=HELP_OPTIONS,
    )
    app.callback(invoke_without_command=True)(_root)
    for verb in verbs:
        module = import_module(f"regard.cli.{verb}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            app.command(context_settings=HELP_OPTIONS)(getattr(module, verb))
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Self-attention you can see through."""
    if version:
        print(f"regard {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def prepared() -> typer.Typer:
    """The program with the command of `sys.argv`, or with all; repairs closed standard streams."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _occupy(number)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        return _help_only()
    asked = [verb for verb in VERBS if sys.argv[1:2] == [verb]]  # the others cost time to import
    if asked not in ([], ["corpus"]) and not {"-h", "--help"} & set(sys.argv):
        import_module("torch")  # which takes seconds, while Ctrl+C still ends the program at once
    return program(() if sys.argv[1:] == ["--version"] else asked or VERBS)


def _help_only() -> typer.Typer:
    """A program that prints the help without importing any command."""
    app = typer.Typer(add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(add_help_option=False, context_settings=anything)
    def show() -> None:
        print(HELP)

    return app


def run(app: typer.Typer) -> None:
    """Run the program; bad input ends in one line on standard error and a non-zero status."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # type: ignore[assignment]
        _run(app)


def _occupy(number: int) -> None:
    """Open a placeholder for a standard stream that was closed before the program began.

    Otherwise the next opened file would get its number. Writing to the placeholder of standard
    output fails; standard input stays None.
    """
    os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)
    if number:
        stream = io.TextIOWrapper(
            io.FileIO(number, "w", closefd=False), "utf-8", write_through=True
        )
        setattr(sys, "stdout" if number == 1 else "stderr", stream)


def _warn(message: Warning | str, *_: object) -> None:
    """Print a warning as one line, without the code that raised it."""
    note(str(message))


def _run(app: typer.Typer) -> None:
    try:
        status = app(prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        if status == INTERRUPTED:  # typer returns it, and raises nothing
            note("stopped")
            sys.exit(INTERRUPTED)
    except TyperException as error:
        asked = getattr(error, "ctx", None)
        hint = f" ({asked.command_path} --help)" if asked else ""
        note(error.format_message() + hint)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(INTERRUPTED)
    except RegardError as error:
        note(str(error))
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        note("there is not enough memory for this")
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.EBADF:
            note("standard output is closed")
        elif not isinstance(error, BrokenPipeError):
            note(error.strerror or str(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
