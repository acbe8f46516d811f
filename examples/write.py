r"""Train a small language model on a text, then let it write.

    python examples/write.py --text FILE --subwords 2000 --steps 2000 \
        --start "Once upon a time" --temperature 0.8

Without a file it learns a nursery rhyme, in which every verse repeats all the verses before it.
"""

import argparse
from pathlib import Path

import torch

from regard.nn import LanguageModel, TransformerConfig
from regard.text import Tokenizer

LINKS = (
    "the house that Jack built", "the malt that lay in", "the rat that ate",
    "the cat that killed", "the dog that worried", "the cow with the crumpled horn that tossed",
    "the maiden all forlorn that milked", "the man all tattered and torn that kissed",
    "the priest all shaven and shorn that married", "the cock that crowed in the morn that woke",
    "the farmer sowing his corn that kept",
)  # fmt: skip

BATCH = 8


def rhyme() -> str:
    """This is the house that Jack built."""
    verses = [" ".join(LINKS[: n + 1][::-1]) for n in range(len(LINKS))]
    return "".join(f"This is {verse}.\n" for verse in verses)


def windows(tokens: torch.Tensor, size: int, count: int) -> torch.Tensor:
    """Pieces of the text ``(count, size)`` from anywhere in it."""
    starts = torch.randint(len(tokens) - size + 1, (count,))
    return tokens[starts[:, None] + torch.arange(size)]


def train(model: LanguageModel, tokens: torch.Tensor, size: int, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        window = windows(tokens, size + 1, BATCH)
        mean = model.loss(window[:, :-1], window[:, 1:]).total / (BATCH * size)
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step}: perplexity {mean.exp().item():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="a text file; a nursery rhyme, if not given")
    parser.add_argument("--start", default="This is the dog that", help="what to go on from")
    parser.add_argument("--length", type=int, default=80, help="subwords to write, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest")
    parser.add_argument("--subwords", type=int, default=60, help="how many to cut the text into")
    parser.add_argument("--steps", type=int, default=150, help="how long to train")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.manual_seed(given.seed)

    text = given.text.read_text(encoding="utf-8") if given.text else rhyme()
    lines = text.splitlines()
    tokenizer = Tokenizer.train(lines, given.subwords)
    ends = [tokenizer.end]
    tokens = torch.tensor([i for line in tokenizer.encode_batch(lines) for i in line + ends])
    size = min(64, len(tokens) - 1)
    config = TransformerConfig(
        vocabulary=tokenizer.size, width=128, decoder_depth=2, heads=4, feed_forward=256,
        norm_place="before", position="rotary", dropout=0.1,
    )  # fmt: skip
    model = LanguageModel(config)
    print(f"{len(tokens):,} subwords of text, {tokenizer.size:,} different ones")
    train(model, tokens, size, given.steps)

    start = torch.tensor([tokenizer.encode(given.start)])
    written = model.eval().generate(
        start, given.length, temperature=given.temperature, end=tokenizer.end
    )
    print(tokenizer.decode(written[0].tolist()))


if __name__ == "__main__":
    main()
