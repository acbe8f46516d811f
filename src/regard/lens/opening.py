"""A model and its tokenizer by name: one that comes with regard, a folder, or from the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import FileError, OptionError
from regard.translate.model_files import SHAPE, bundled
from regard.translate.translator import Translator

HUB = "hub:"
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "sentencepiece.bpe.model",
)
"""Files that keep a tokenizer of transformers, which would make up an empty one without any."""


def opened(what: str | Path) -> tuple[Any, Any]:
    """A `Translator` and None, or a model of transformers and its tokenizer; see `Lens.open`."""
    if isinstance(what, str) and what.startswith(HUB):
        return _transformers(what.removeprefix(HUB), local=False)
    folder = bundled(what)
    if (folder / SHAPE).exists() or not (folder / "config.json").exists():
        return Translator.load(folder), None
    return _transformers(str(folder), local=True)


def _transformers(name: str, *, local: bool) -> tuple[Any, Any]:
    """A model of transformers with its tokenizer: that of its own architecture, if it has one."""
    try:
        import transformers
    except ImportError:
        raise OptionError(
            f"Lens.open: {name} is a model of transformers, which is not installed; "
            "pip install 'regard[hf]'"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
        kind = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
        model = kind.from_pretrained(name, local_files_only=local)
    except (OSError, ValueError) as error:
        raise FileError(f"Lens.open: {name}: {_line(error)}") from None
    if local and not any((Path(name) / file).exists() for file in TOKENIZERS):
        raise FileError(
            f"Lens.open: {name} has no tokenizer; expected {', '.join(TOKENIZERS[:-1])} or "
            f"{TOKENIZERS[-1]} beside the model"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
    except Exception as error:  # transformers raises whatever the missing file leads to
        raise FileError(
            f"Lens.open: the tokenizer of {name} cannot be read: {_line(error)}"
        ) from None
    return model.eval(), tokenizer


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
