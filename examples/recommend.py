"""Recommend the next film: a causal Transformer (SASRec) beside popularity and item-kNN.

    python examples/recommend.py --ratings ml-100k.inter --films ml-100k.item

A row of the ratings is user, film, rating and time, as in MovieLens' u.data; a row of the films
is number and title. Of each user the last film is for testing, the one before it for choosing the
epoch. Without files, made-up viewers follow series, as in docs/beyond/recommendation.md.
"""

import argparse
import random
import re
import time
from pathlib import Path

import torch
from torch import Tensor

from regard import watch
from regard.nn import LanguageModel, TransformerConfig

LONGEST = 50  # films of a history that the model sees


def rows(path: Path) -> list[list[str]]:
    """The fields of each line, which tabs or bars separate, without a header."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    fields = [re.split(r"[\t|]", line) for line in lines if line]
    return fields[1:] if fields and not fields[0][0].isdigit() else fields


def read(path: Path) -> list[list[str]]:
    """The films of each user, in the order of time; users with fewer than five are left out."""
    seen: dict[str, list[tuple[float, str]]] = {}
    for user, film, _, when in rows(path):
        seen.setdefault(user, []).append((float(when), film))
    ordered = [[film for _, film in sorted(films)] for films in seen.values()]
    return [films for films in ordered if len(films) >= 5]


def made_up(count: int, series: int = 20, parts: int = 5) -> list[list[str]]:
    """Viewers who follow three series at a time, in turns."""
    viewers = []
    for _ in range(count):
        waiting = random.sample(range(series), 8)
        following, seen = {waiting.pop(): 0 for _ in range(3)}, []
        while len(following) == 3:
            one = random.choice(list(following))
            seen.append(f"{one}.{following[one]}")
            following[one] += 1
            if following[one] == parts:
                del following[one]
                if waiting:
                    following[waiting.pop()] = 0
        viewers.append(seen[: random.randint(12, 25)])
    return viewers


def batch(histories: list[list[int]]) -> Tensor:
    """The last films of each history, behind zeros, which stand for nothing."""
    padded = torch.zeros(len(histories), LONGEST, dtype=torch.long)
    for row, history in zip(padded, histories, strict=True):
        if history:
            row[-len(history[-LONGEST:]) :] = torch.tensor(history[-LONGEST:])
    return padded


def train_epoch(
    model: LanguageModel, optimizer: torch.optim.Optimizer, films: list[list[int]]
) -> None:
    model.train()
    for part in torch.randperm(len(films)).split(64):
        chosen = [films[i] for i in part.tolist()]
        inputs, answers = batch([one[:-1] for one in chosen]), batch([one[1:] for one in chosen])
        real = answers > 0
        loss = model.loss(inputs, answers, real=real).total / real.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def ranked(scores: Tensor, histories: list[list[int]]) -> Tensor:
    """The ten best of all films that were not seen yet, (b, 10)."""
    scores = scores.clone()
    scores[:, 0] = -torch.inf
    for row, history in zip(scores, histories, strict=True):
        row[history] = -torch.inf
    return scores.topk(10).indices


def measure(best: Tensor, answers: Tensor) -> tuple[float, float]:
    """HR@10 and NDCG@10."""
    hit = best == answers[:, None]
    gain = hit / torch.log2(torch.arange(10) + 2.0)
    return float(hit.any(1).double().mean()), float(gain.sum(1).mean())


def neighbours(histories: list[list[int]], count: int) -> tuple[Tensor, Tensor]:
    """How often each film was seen, and the item-kNN scores of every user."""
    seen = torch.zeros(len(histories), count)
    for row, history in zip(seen, histories, strict=True):
        row[history] = 1.0
    together = seen.T @ seen
    length = together.diag().clamp(min=1).sqrt()
    cosine = (together / length.outer(length)).fill_diagonal_(0)
    nearest = cosine.topk(min(50, count - 1)).indices
    kept = torch.zeros_like(cosine).scatter(1, nearest, cosine.gather(1, nearest))
    return seen.sum(0), seen @ kept


@torch.no_grad()
def predict(model: LanguageModel, histories: list[list[int]]) -> Tensor:
    """The score of every film as the next one of each history."""
    model.eval()
    parts = [histories[i : i + 128] for i in range(0, len(histories), 128)]
    return torch.cat([model(batch(part))[:, -1] for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=Path, help="who saw what, and when")
    parser.add_argument("--films", type=Path, help="number and title of each film")
    parser.add_argument("--epochs", type=int, default=60, help="the best of them is kept")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    random.seed(given.seed)
    users = read(given.ratings) if given.ratings else made_up(300)
    titles = {row[0]: row[1] for row in rows(given.films)} if given.films else {}
    names = ["", *sorted({film for films in users for film in films})]
    number = {name: i for i, name in enumerate(names)}
    films = [[number[film] for film in one] for one in users]
    learned, known = [one[:-2] for one in films], [one[:-1] for one in films]
    chosen, tested = (torch.tensor([one[i] for one in films]) for i in (-2, -1))

    config = TransformerConfig(
        vocabulary=len(names), width=64, decoder_depth=2, heads=2, feed_forward=128,
        norm_place="before", position="learned", max_length=LONGEST, dropout=0.3,
    )  # fmt: skip
    model = LanguageModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    best, kept, began = -1.0, {}, time.monotonic()
    for epoch in range(1, given.epochs + 1):
        train_epoch(model, optimizer, learned)
        if epoch % 4 == 0 or epoch == given.epochs:
            _, gain = measure(ranked(predict(model, learned), learned), chosen)
            if gain > best:
                best, kept = gain, {k: v.clone() for k, v in model.state_dict().items()}
                at = epoch
    model.load_state_dict(kept)
    print(f"{len(films)} users, {len(names) - 1} films; best of {given.epochs} epochs: {at}, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip

    popular, near = neighbours(known, len(names))
    scores = {
        "popularity": popular.expand(len(films), -1),
        "item-kNN": near,
        "attention": predict(model, known),
    }
    for name, score in scores.items():
        hits, gain = measure(ranked(score, known), tested)
        print(f"{name:10}  HR@10 {hits:.3f}   NDCG@10 {gain:.3f}")

    user = 0
    with torch.no_grad(), watch(model) as seen:
        model(batch(known[user : user + 1]))
    weights = seen["decoder.blocks.1.attention"].weights()[0, :, -1].mean(0)
    history = [0] * max(0, LONGEST - len(known[user])) + known[user][-LONGEST:]
    for place in weights.topk(3).indices.tolist():
        title = titles.get(names[history[place]], names[history[place]])
        print(f"looked at {title!r}, {LONGEST - 1 - place} films before: {weights[place]:.0%}")
    suggested = ranked(scores["attention"][user : user + 1], known[user : user + 1])[0, :3]
    print("suggested:", ", ".join(titles.get(names[i], names[i]) for i in suggested.tolist()))


if __name__ == "__main__":
    main()
