"""``regard train``: a translation model from sentence pairs.

Every field of the configuration is an option here; its annotation has the help text.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from regard.errors import OptionError
from regard.nn.config import PRESETS
from regard.translate.config import CHOSEN, SECTIONS, RunConfig, field_types, read_toml

if TYPE_CHECKING:
    from regard.translate.defaults import Options

AUTO = "[chosen from the corpus]"
PANELS = {"data": "Data", "model": "Model", "training": "Training", "validation": "Validation"}


def train(**given: Any) -> None:
    """Train a translation model; run the same command again to resume."""
    from regard.translate.training import train as run
    from regard.translate.workers import Workers

    out: Path = given.pop("out")
    quiet = given.pop("quiet")
    with Workers.joined() as workers:
        run(_asked(given), out, () if quiet else None)
        if workers.first:
            _plot(out)


def _asked(given: dict[str, Any]) -> Options:
    """The options of a run: the command line overrides the file, and the file the preset."""
    from regard.translate.defaults import Options

    toml, preset = given.pop("config"), given.pop("preset")
    sections: dict[str, Any] = {}
    if toml is not None:
        named, sections = read_toml(toml)
        preset = preset or named
    if preset is not None and preset not in PRESETS:
        raise OptionError(
            f"train: --preset {preset} is unknown, expected one of {', '.join(PRESETS)}"
        )
    model = sections.get("model")
    own = isinstance(model, dict) and "width" in model
    shape = RunConfig(model=PRESETS[preset or ("base" if own else "tiny")])
    shape.changed(sections, str(toml))
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.get("mix"):
        wanted["mix"] = _weights(wanted["mix"])
    for section, values in Options.of(wanted).sections.items():
        sections[section] = {**sections.get(section, {}), **values}
        if section != "model":  # whose preset may be chosen later
            shape.changed({section: sections[section]}, "train")
    return Options(sections, preset)


def _weights(given: list[str]) -> dict[str, float]:
    """Files and their weights, from ``file=weight``; the default weight is 1."""
    found = {}
    for one in given:
        path, sign, weight = one.rpartition("=")
        try:
            found[path if sign else one] = float(weight) if sign else 1.0
        except ValueError:
            raise OptionError(f"train: --mix {one}, expected a file, = and a number") from None
    return found


def _plot(folder: Path) -> None:
    """Plot loss and BLEU over the updates to ``progress.svg``."""
    from regard.translate.events import LOG, read_log
    from regard.view import lines

    log = read_log(folder / LOG) if (folder / LOG).exists() else []

    def curve(kind: str, name: str) -> tuple[list[int], list[float]]:
        found = [one for one in log if one["kind"] == kind and "averaged" not in one]
        found = [one for one in found if isinstance(one.get(name), float)]
        return [one["step"] for one in found], [one[name] for one in found]

    losses = {"training": curve("train", "likelihood"), "validation": curve("valid", "loss")}
    if not all(steps for steps, _ in losses.values()):
        return
    picture = lines(losses, title="Loss", x="update", y="per subword")
    scores = curve("valid", "bleu")
    if scores[0]:
        bleu = lines({"validation": scores}, title="BLEU", x="update", y="greedy")
        picture = picture.beside(bleu)
    picture.save(folder / "progress.svg")


def _options() -> inspect.Signature:
    """The signature that typer reads: the fixed options, then one per configuration field."""
    found = [
        _option("out", Path, ..., "Folder of the run; an existing run is resumed."),
        _option("config", Path | None, None, "A TOML file with these options in sections."),
        _option("preset", str | None, None, f"The model's shape: {', '.join(PRESETS)}. {AUTO}"),
        _option("quiet", bool, False, "Print errors only.", "--quiet"),
    ]
    for section, kind in SECTIONS.items():
        hints = get_type_hints(kind, include_extras=True)
        defaults = {one.name: one.default for one in fields(kind)}
        for name, plain in field_types(kind).items():
            text = hints[name].__metadata__[0]
            if name in CHOSEN:
                text = f"{text} {AUTO}"
            elif defaults[name] not in ("", None, MISSING):
                text = f"{text} [{defaults[name]}]"
            given = list[str] if plain is dict else plain
            found.append(_option(name, given | None, None, text, panel=PANELS[section]))
    return inspect.Signature(found)


def _option(
    name: str, kind: Any, default: Any, text: str, *flags: str, panel: str | None = None
) -> inspect.Parameter:
    option = typer.Option(*flags, help=text, show_default=False, rich_help_panel=panel)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is ... else default,
        annotation=Annotated[kind, option],
    )


train.__signature__ = _options()  # type: ignore[attr-defined]
