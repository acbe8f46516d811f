"""``regard export``: a trained model in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.output import note
from regard.errors import FileError, OptionError

FORMATS = ("ctranslate2", "regard-int8")


def export(
    model: Annotated[str, typer.Option(help="The folder that `train` wrote, or a bundled model.")],
    output: Annotated[Path, typer.Option("--out", "--output", help="A new folder to write.")],
    to: Annotated[str, typer.Option(help=f"The format: {', '.join(FORMATS)}.")] = "ctranslate2",
    quantization: Annotated[
        str | None, typer.Option(help="For ctranslate2: float32, int8, float16, … [float32]")
    ] = None,
) -> None:
    """Write a model for CTranslate2, or for regard in int8: a quarter of the size, and faster."""
    if to not in FORMATS:
        raise OptionError(f"export: --to {to} is unknown, expected {' or '.join(FORMATS)}")
    from regard.translate.export import export_ctranslate2
    from regard.translate.translator import Translator

    if to == "ctranslate2":
        export_ctranslate2(Translator.load(model), output, quantization=quantization or "float32")
        note(f"wrote {output}; its README.md says how to use it")
        return
    if quantization is not None:
        raise OptionError("export: --quantization goes with --to ctranslate2 only")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileError(f"export: {output} already exists; give a new folder as --out")
    Translator.load(model, precision="int8").save(output)
    note(f"wrote {output}; `regard translate --model {output} --precision int8` uses it")
