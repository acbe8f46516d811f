"""``regard export``: a trained model in the format of another program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import OptionError
from regard.translate.export import export_ctranslate2
from regard.translate.translator import Translator


def export(
    model: Annotated[str, typer.Option(help="The folder that `train` wrote, or a bundled model.")],
    output: Annotated[Path, typer.Option("--out", "--output", help="A new folder to write.")],
    to: Annotated[str, typer.Option(help="The format: ctranslate2.")] = "ctranslate2",
    quantization: Annotated[
        str, typer.Option(help="How weights are stored: float32, int8, float16, …")
    ] = "float32",
) -> None:
    """Write a model for CTranslate2, which serves the same translations at volume."""
    if to != "ctranslate2":
        raise OptionError(f"export: --to {to} is unknown, expected ctranslate2")
    export_ctranslate2(Translator.load(model), output, quantization=quantization)
    print(f"regard: wrote {output}; its README.md says how to use it", file=sys.stderr)
