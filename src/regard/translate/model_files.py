"""The folder of a trained model, as written by `regard train`.

    model.json           a `TransformerConfig`, and the version of this format and of regard
    model.safetensors    the weights, by their names in `Transformer.state_dict()`; for int8, also
                         the scale of each output, as ``name|scale``
    tokenizer.json       written by `regard.text.Tokenizer.save`

Tied matrices are stored once, as ``source.table``. Files are replaced atomically, the weights
first. The folder of an unfinished run has checkpoints instead, and can be loaded as well.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard import __version__
from regard.errors import FileError, OptionError, shape
from regard.files import check_regular, read_regular, replacing, why, write_text
from regard.models import BUNDLED, POCKET
from regard.native import Int8Matrix
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.checkpoint import Checkpoint, Checkpoints
from regard.translate.config import SECTIONS, RunConfig

SHAPE, WEIGHTS, TOKENIZER = "model.json", "model.safetensors", "tokenizer.json"
RUN, CHECKPOINTS = "config.json", "checkpoints"
"""Files of an unfinished run; see `regard.translate.run_directory`."""
FORMAT, FORMAT_ROWS, FORMAT_INT8 = 1, 2, 3
"""Formats: floating point; int8 with a scale per row (until 0.1); int8 with one per output."""
TABLE, TIED = "source.table", ("target.table", "output")
"""The name of the tied matrix, and its other names in `Transformer`."""
STORED = (torch.float32, torch.float16, torch.int8)
SCALE = "|scale"
"""Suffix of the name of an int8 matrix for its scales."""
POSITION = ".position.table"
"""Suffix of the name of a table of positions, which is not quantised in memory."""


def bundled(what: str | Path) -> Path:
    """The folder of a model, given as a path or as the name of a bundled model.

    A path that exists has precedence over a bundled model of that name.
    """
    name = str(what)
    own = BUNDLED / name
    if Path(name).name == name and not Path(name).exists() and own.is_dir():
        return own
    if name == POCKET and not Path(name).exists():
        raise FileError(
            f"{POCKET} does not come with this version of regard; name the folder of a model, such "
            "as `regard train` writes"
        )
    if not Path(what).is_dir():
        there = sorted(one.parent.name for one in BUNDLED.glob(f"*/{SHAPE}"))
        raise FileError(
            f"{what}: {'not a folder' if Path(what).exists() else 'no such folder'}; expected what "
            f"`regard train` writes, with {SHAPE}, {WEIGHTS} and {TOKENIZER}"
            + (f", or a model that comes with regard: {', '.join(there)}" if there else "")
        )
    return Path(what)


def save_model(
    folder: str | Path,
    model: Transformer,
    *,
    dtype: torch.dtype = torch.float32,
    longest: int | None = None,
) -> None:
    """Write the configuration and weights of the model to a folder, created if missing.

    In int8, matrices are whole numbers from -127 to 127 with one scale per output, see
    `regard.native.Int8Matrix`, and all else is float16. `longest`: the maximum length in training,
    in subwords.
    """
    folder = Path(folder)
    if dtype not in STORED:
        raise OptionError(
            f"save_model: dtype={dtype}, expected torch.float32, torch.float16 or torch.int8"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"save_model: cannot make {folder}: {error.strerror}") from None
    weights: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if not (model.config.tied and name in TIED):
            weights |= _stored(name, weight.detach().cpu(), dtype)
    _write_weights(folder / WEIGHTS, weights)
    content = {
        "format": FORMAT_INT8 if dtype == torch.int8 else FORMAT,
        "regard": __version__,
        "longest": longest,
        "model": dataclasses.asdict(model.config),
    }
    text = json.dumps(content, indent=2) + "\n"
    write_text(folder / SHAPE, {".json": lambda: text}, "save_model")


def _stored(name: str, weight: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a weight as stored: in int8, a matrix and its scales."""
    if dtype == torch.int8 and weight.dim() == 2 and weight.isfinite().all():
        matrix = weight if isinstance(weight, Int8Matrix) else quantised(name, weight)
        return {name: matrix.whole.contiguous(), name + SCALE: matrix.scales.contiguous()}
    stored = weight.to(torch.float16 if dtype == torch.int8 else dtype).contiguous()
    if stored.dtype == torch.float16 and not stored.isfinite().all():
        raise OptionError(
            f"save_model: {name} has numbers that float16 cannot hold; use dtype=torch.float32"
        )
    return {name: stored}


def quantised(name: str, weight: Tensor) -> Int8Matrix:
    """A matrix in int8, with a scale per row for embedding tables and per column otherwise."""
    return Int8Matrix.quantise(weight, _axis(name))


def _axis(name: str) -> int:
    return 0 if name == TABLE or name in TIED or name.endswith("table") else 1


def quantise(model: Transformer) -> None:
    """Quantise all matrices of a model to int8, in place; it cannot be trained afterwards."""
    for path, module in model.named_modules():
        for own, weight in list(module.named_parameters(recurse=False)):
            name = f"{path}.{own}".removeprefix(".")
            if weight.dim() == 2 and not name.endswith(POSITION):
                matrix = weight.detach()
                if not isinstance(matrix, Int8Matrix):
                    matrix = quantised(name, matrix)
                setattr(module, own, nn.Parameter(matrix, requires_grad=False))
    if model.config.tied:
        model.target.table = model.output = model.source.table


def load_model(folder: str | Path) -> Transformer:
    """The model of a folder, in float32 and ``eval()`` mode.

    Of an unfinished run, the best checkpoint so far, with a warning.
    """
    return load_trained(folder)[0]


def load_trained(folder: str | Path, *, int8: bool = False) -> tuple[Transformer, int | None]:
    """The model of a folder, and its maximum length in training, if known.

    `int8`: matrices are int8; if stored so, they are never converted to float32.
    """
    folder = bundled(folder)
    unfinished = not (folder / SHAPE).exists() and is_run(folder)
    config, longest, path, weights = _unfinished(folder) if unfinished else _finished(folder, int8)
    for name, size in _large_weights(config):  # before memory is allocated
        _check_weight(path, weights, name, size)
    with torch.random.fork_rng(devices=[]):  # importing the device "meta" takes a second
        model = Transformer(config)
    wanted = {
        name: weight
        for name, weight in model.state_dict().items()
        if not (config.tied and name in TIED)
    }
    _check_weights(path, weights, wanted)
    model.load_state_dict(weights, strict=False, assign=True)
    if config.tied:
        model.target.table = model.output = model.source.table
    if int8:
        quantise(model)
    return model.eval(), longest


def is_run(folder: Path) -> bool:
    """Whether this is the folder of a run."""
    try:
        content = json.loads(read_regular(folder / RUN))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() >= SECTIONS.keys()


Stored = tuple[TransformerConfig, int | None, Path, dict[str, Tensor]]
"""A stored model: configuration, maximum length in training, path and weights."""


def _finished(folder: Path, int8: bool) -> Stored:
    path = folder / SHAPE
    if not path.exists() and (folder / "model.bin").exists():
        raise FileError(
            f"{folder}: a model for CTranslate2, as `regard export` writes; expected what `regard "
            "train` writes"
        )
    content = _content(path)
    longest, by_rows = content.get("longest"), content["format"] == FORMAT_ROWS
    if longest is not None and (type(longest) is not int or longest < 1):
        raise FileError(f"{path}: longest is {longest!r}, expected a whole number")
    weights = _read_weights(folder / WEIGHTS, by_rows, int8 and not by_rows)
    try:
        config = RunConfig().changed({"model": content["model"]}, str(path)).model
    except OptionError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise FileError(f"{where}{error}") from None
    return config, longest, folder / WEIGHTS, weights


def _unfinished(folder: Path) -> Stored:
    """The best checkpoint of a run."""
    path, checkpoints = folder / RUN, Checkpoints(folder / CHECKPOINTS)
    run = RunConfig.from_json(read_regular(path), str(path))
    found = _best_so_far(checkpoints)
    if found is None:
        raise FileError(
            f"{folder}: its training has not finished, and there is no checkpoint "
            f"{'that can be read' if checkpoints.steps() else 'yet'}; resume it with `regard train`"
        )
    warnings.warn(
        f"{folder}: its training has not finished; using the model of update {found.step:,}",
        stacklevel=4,
    )
    config = dataclasses.replace(run.model, vocabulary=Tokenizer.load(folder / TOKENIZER).size)
    weights = {
        TABLE if config.tied and name in TIED else name: weight.to(torch.float32, copy=True)
        for name, weight in found.model.items()
    }
    return config, run.data.longest, checkpoints.folder, weights


def _best_so_far(checkpoints: Checkpoints) -> Checkpoint | None:
    """The best checkpoint according to the last one; the last one if that is missing."""
    steps = checkpoints.steps()
    last = next(filter(None, (_readable(checkpoints, step) for step in reversed(steps))), None)
    best = None if last is None else last.state.get("best_step")
    if last is None or best == last.step or best not in steps:
        return last
    return _readable(checkpoints, best) or last


def _readable(checkpoints: Checkpoints, step: int) -> Checkpoint | None:
    try:
        return checkpoints.read(step)
    except FileError:  # damaged, or removed by a run in progress
        return None


def _write_weights(path: Path, weights: dict[str, Tensor]) -> None:
    try:
        with replacing(path) as temporary:
            save_file(weights, temporary, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        raise FileError(f"save_model: cannot write {path}: {why(error)}") from None


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path))
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8
        raise FileError(f"{path}: not JSON, or damaged: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise FileError(f"{path}: expected an object with the shape of a Transformer as 'model'")
    if content.get("format") not in (FORMAT, FORMAT_ROWS, FORMAT_INT8):
        raise FileError(
            f"{path}: has format {content.get('format')!r}, expected {FORMAT} to {FORMAT_INT8}; it "
            f"was written by regard {content.get('regard', 'of another version')}"
        )
    return content


def _read_weights(path: Path, by_rows: bool, int8: bool) -> dict[str, Tensor]:
    """The weights; `by_rows`: int8 ones have a scale per row; `int8`: they are `Int8Matrix`."""
    check_regular(path)
    try:
        stored = load_file(path)
    except FileNotFoundError:
        raise FileError(f"{path}: cannot be read: No such file or directory") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise FileError(f"{path}: damaged or cut short ({error}); copy it again") from None
    for name in [name for name in stored if name.endswith(SCALE)]:
        own = name.removesuffix(SCALE)
        matrix, scale, axis = stored.get(own), stored.pop(name), 0 if by_rows else _axis(own)
        fits = matrix is not None and matrix.dtype == torch.int8 and matrix.dim() == 2
        if matrix is None or not fits or scale.shape != matrix.shape[axis : axis + 1]:
            raise FileError(f"{path}: {name} belongs to no matrix in int8; export the model again")
        if not (scale.is_floating_point() and scale.isfinite().all()):
            raise FileError(f"{path}: {name} is not finite; the file is damaged: export it again")
        stored[own] = Int8Matrix(matrix.clone(), scale.to(torch.float32, copy=True), axis)
    found: dict[str, Tensor] = {}
    for name, weight in stored.items():
        if not weight.is_floating_point():
            raise FileError(
                f"{path}: {name} is stored as {str(weight.dtype).removeprefix('torch.')}, expected "
                "floating-point numbers; export the model again"
            )
        if isinstance(weight, Int8Matrix):
            found[name] = weight if int8 else weight.values()
        else:  # copied, not mapped: the model must not change when the file does
            found[name] = weight.to(torch.float32, copy=True)
    return found


def _large_weights(config: TransformerConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the largest weights."""
    width = config.width
    yield TABLE, (config.vocabulary, width)
    if config.position == "learned":
        yield "source.position.table", (config.max_length, width)
    for stack, depth in (("encoder", config.encoder_depth), ("decoder", config.decoder_depth)):
        for i in range(depth):
            yield f"{stack}.blocks.{i}.attention.w_q", (width, width)
            yield f"{stack}.blocks.{i}.feed_forward.w_in", (width, config.feed_forward)


def _check_weight(path: Path, weights: dict[str, Tensor], name: str, size: tuple[int, ...]) -> None:
    if name not in weights:
        raise FileError(f"{path}: {name} is missing, but {SHAPE} requires it")
    if weights[name].shape != size:
        raise FileError(
            f"{path}: {name} has shape {shape(weights[name])}, but {SHAPE} requires "
            f"({','.join(map(str, size))})"
        )


def _check_weights(path: Path, weights: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for name, weight in wanted.items():
        _check_weight(path, weights, name, tuple(weight.shape))
        if not weights[name].isfinite().all():
            raise FileError(
                f"{path}: {name} has numbers that are not finite; the training diverged, or the "
                "file is damaged"
            )
    for name in weights:
        if name not in wanted:
            raise FileError(f"{path}: {name} is not part of the model in {SHAPE}")
