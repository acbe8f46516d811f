"""Put a trained model into the package: ``python pack.py RUN TATOEBA``.

RUN is the folder that `regard train` wrote. The weights go in as float16; what is measured, and
written into the card, is the model as packed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from corpus import BUILT_IN
from measure import BEAM, QUESTIONS, Figures, measure

from regard.translate.config import RunConfig
from regard.translate.model_files import BUNDLED, TOKENIZER, load_model, save_model

NAME = "pocket-en-de"
HERE = Path(__file__).parent

CARD = """# pocket-en-de

The English–German Transformer that comes with regard: small enough to ship, good enough to look
into. {parameters:,} parameters in {shape}, stored as float16.

## What it was trained on

- **Tatoeba**: 166,085 sentence pairs, from https://tatoeba.org by way of
  https://www.manythings.org/anki (2018-05-13), by the contributors of Tatoeba, licensed CC BY 2.0
  FR. The model is made from them; whoever passes it on must name them likewise.
- **regard's built-in corpus** (`regard corpus`): {reference:,} sentences in which *it* stands for
  one of two nouns, and {senses:,} with a word of two senses, {cues:,} of them cues, all from the
  training split.

By two workers of `regard train` on two cores, in five runs, by the recipe in
`models/pocket-en-de`: the language, then who *it* is, then both; then more of the words that decide
between two senses, and again all together. Run again on the same machine with the same versions, it
gives the same weights.

## How good it is

Beam {beam}, the model as it is packed here.

| what | model | baseline |
|---|---|---|
| pronoun right, {n:,} held-out sentences | {pronoun:.1%} | {nearest_noun:.1%} (nearest noun) |
| sense right, {n:,} held-out sentences | {sense:.1%} | {frequent_sense:.1%} (most frequent sense) |
| sense right, 256 sentences by somebody who did not know the corpus | {unseen:.1%} | |
| sacreBLEU on 1,000 sentences of Tatoeba | {bleu:.1f} | |
| chrF2 on the same | {chrf:.1f} | |
| a new process has translated its first sentence after | {cold_start:.1f} s | |

Held out means: the pair of nouns, the frame with its predicate, or the sense with its context was
in no sentence that the model learned from. But the words that decide a sense were, in sentences
some of which were written with failures on the held-out ones in view; so trust the third row more.
Translations that could not be judged, for they say neither word or both, count as wrong:
{pronoun_untold:.1%} of the pronouns, {sense_untold:.1%} of the senses, and
{unseen_untold:.1%} of those in sentences by others. The 1,000 sentences of Tatoeba were not learned
from either, but the best checkpoint was chosen by their BLEU.

## Where it fails

- It knows everyday sentences of up to about 20 words. News, law, medicine and poetry are beyond it.
- Names and rare words are spelled from pieces, and often wrong.
- *you* is *du*, *ihr* or *Sie* as Tatoeba's authors happened to choose.
- Who *it* is, it was taught with {nouns} nouns. With other nouns it guesses their gender.
- Words of several senses beyond the {words} of the built-in corpus get their most frequent one.
- Text in another language is not refused; what comes out means nothing.
"""


def main(run: Path, tatoeba: Path) -> None:
    from regard.challenge import NOUNS, WORDS

    folder = BUNDLED / NAME
    model = load_model(run)
    config = RunConfig.from_json((run / "config.json").read_bytes(), str(run / "config.json"))
    save_model(folder, model, dtype=torch.float16, longest=config.data.longest)
    shutil.copyfile(run / TOKENIZER, folder / TOKENIZER)
    figures: Figures = measure(str(folder), tatoeba)
    shape = f"{model.config.encoder_depth} + {model.config.decoder_depth} blocks of width "
    shape += f"{model.config.width} with {model.config.heads} heads"
    card = CARD.format(
        shape=shape,
        beam=BEAM,
        n=QUESTIONS,
        nouns=len(NOUNS),
        words=len(WORDS),
        reference=BUILT_IN["second"]["reference"],
        senses=BUILT_IN["second"]["senses"] + BUILT_IN["fourth"]["cues"],
        cues=BUILT_IN["fourth"]["cues"],
        **vars(figures),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(card, f"\n{size / 1e6:.1f} MB; first sentence after {figures.cold_start:.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
