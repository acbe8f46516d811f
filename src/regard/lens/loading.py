"""Loading a model and its tokenizer by name, and choosing the adapter of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from regard.errors import FileError, OptionError
from regard.lens.adapters.adapter import ModelAdapter
from regard.lens.adapters.regard_models import RegardStack, RegardTranslator
from regard.lens.adapters.transformers_models import transformers_adapter
from regard.nn import Classifier, LanguageModel, Transformer
from regard.text import Tokenizer
from regard.translate.model_files import SHAPE, bundled, is_run
from regard.translate.translator import Translator

HUB = "hub:"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""What the name of a model on the hub looks like."""
CONFIG = "config.json"
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "sentencepiece.bpe.model",
)
"""Files of a tokenizer; without any of them, transformers would create an empty one."""

BYTES = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
"""Tokenizers of bytes or characters, which have no vocabulary file."""


def opened(what: str | Path) -> tuple[Any, Any]:
    """A `Translator` and None, or a model of transformers and its tokenizer; see `Lens.open`."""
    if not isinstance(what, str | Path):
        raise OptionError(
            f"Lens.open: what is {type(what).__name__}, expected the name of a model, or a folder"
        )
    if what == HUB:
        raise OptionError(f"Lens.open: {HUB} names no model, expected {HUB}org/name")
    if isinstance(what, str) and what.startswith(HUB):
        return _transformers(what.removeprefix(HUB), local=False)
    try:
        folder = bundled(what)
    except FileError as error:
        if not HUB_ID.fullmatch(str(what)) or Path(what).exists():
            raise
        raise FileError(
            f"{error}; for a model of the Hugging Face hub, write {HUB}{what}"
        ) from None
    except OSError as error:
        raise FileError(f"Lens.open: {str(what)[:40]!r}: {error.strerror}") from None
    if (folder / SHAPE).exists() or is_run(folder):
        return Translator.load(folder), None
    if not (folder / CONFIG).exists():
        raise FileError(
            f"Lens.open: {folder} has no model; expected {SHAPE}, which `regard train` writes, or "
            f"{CONFIG}, which transformers does"
        )
    return _transformers(str(folder), local=True)


def adapter_of(model: object, tokenizer: object) -> ModelAdapter:
    """The adapter that fits a model and its tokenizer, or a pipeline of transformers."""
    if tokenizer is None and not isinstance(model, nn.Module | Translator):
        tokenizer = getattr(model, "tokenizer", None)
        model = getattr(model, "model", model)
    if isinstance(model, Translator):
        return RegardTranslator(model)
    if isinstance(model, Transformer) and isinstance(tokenizer, Tokenizer):
        return RegardTranslator(Translator(model, tokenizer))
    if isinstance(model, Classifier | LanguageModel) and isinstance(tokenizer, Tokenizer):
        return RegardStack(model, tokenizer)
    if isinstance(model, Transformer | Classifier | LanguageModel):
        raise OptionError(
            f"Lens: tokenizer is {type(tokenizer).__name__}, expected the regard.text.Tokenizer "
            "that the model was trained with"
        )
    if isinstance(model, str | Path):
        name = str(model)
        raise OptionError(
            f"Lens: model is the name {name!r}; use Lens.open({name!r}), or Lens.open("
            f"{HUB + name!r}) for a model of the Hugging Face hub"
        )
    if not isinstance(model, nn.Module):
        raise OptionError(f"Lens: model is {type(model).__name__}, expected a PyTorch module")
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise OptionError(
            f"Lens: {type(model).__name__} is neither a model of regard nor of transformers, so it "
            "is not known how to give it a text; regard.watch and regard.cut take any model"
        )
    return transformers_adapter(model, tokenizer)


def _transformers(name: str, *, local: bool) -> tuple[Any, Any]:
    """A model of transformers, of the class that its configuration names, and its tokenizer."""
    try:
        import transformers
    except ImportError:
        raise OptionError(
            f"Lens.open: {name} is a model of transformers, which is not installed; "
            "pip install 'regard[hf]'"
        ) from None
    where = {"local_files_only": local, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(name, **where)
        kind = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
        with _quiet(transformers.logging) if local else nullcontext():
            model, loaded = kind.from_pretrained(
                name, **where, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except Exception as error:  # transformers raises whatever a bad value leads to
        raise FileError(f"Lens.open: {name} cannot be read: {_line(error)}") from None
    _complete(name, model, loaded)
    if local and not _has_tokenizer(Path(name)):
        raise FileError(
            f"Lens.open: {name} has no tokenizer; expected {', '.join(TOKENIZERS[:-1])} or "
            f"{TOKENIZERS[-1]} beside the model"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **where)
    except Exception as error:  # transformers raises whatever the missing file leads to
        raise FileError(
            f"Lens.open: the tokenizer of {name} cannot be read: {_line(error)}"
        ) from None
    return model.eval(), tokenizer


def _has_tokenizer(folder: Path) -> bool:
    """Whether the folder has a tokenizer, or names one that needs no vocabulary file."""
    if any((folder / file).exists() for file in TOKENIZERS):
        return True
    try:
        about = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False
    return any(f'"{kind}' in about for kind in BYTES)


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Context: without the progress bar and the report of transformers."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _complete(name: str, model: Any, loaded: dict[str, Any]) -> None:
    """Raise if weights that the lens uses were not loaded, and so are random.

    These are the layers, which have numbers in their names, and the output head of a language
    model; not heads for other tasks.
    """
    for key, there, wanted in sorted(loaded["mismatched_keys"])[:1]:
        raise FileError(
            f"Lens.open: {name}: the weights do not fit config.json: {key} is {tuple(there)}, "
            f"expected {tuple(wanted)}"
        )
    head = model.get_output_embeddings() if model.can_generate() else None
    says = {id(one) for one in head.parameters()} if head is not None else set()
    asked = {key for key, one in model.named_parameters() if id(one) in says}
    missing = sorted(
        key
        for key in loaded["missing_keys"]
        if key in asked or any(map(str.isdigit, key.split(".")))
    )
    if missing:
        raise FileError(
            f"Lens.open: {name}: the weights do not fit config.json: {len(missing)} are missing, "
            f"such as {missing[0]}"
        )


def _line(error: Exception) -> str:
    """The first line of an error's message, with its class where that is more informative."""
    first, _, rest = str(error).strip().partition("\n")
    if first.endswith(":"):
        first += f" {rest.strip().partition(chr(10))[0]}"
    if isinstance(error, OSError | ValueError | RuntimeError | SafetensorError) and first:
        return first
    return f"{type(error).__name__}: {first}"
