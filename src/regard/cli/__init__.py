"""The command line: one file per verb."""

from regard.cli.main import main

__all__ = ["main"]
