"""Train a sentence classifier: an encoder, the mean of its vectors, and one linear layer.

    python examples/classify.py --train FILE --dev FILE --why "a gorgeous , witty film"

A line is a class (0, 1, …), a space and a sentence. Without files it learns made-up opinions.
The model is saved, loaded again, and asked which words of a sentence decided.
"""

import argparse
import random
import time

import torch
from torch.nn import functional as F

from regard import Lens
from regard.nn import Classifier, TransformerConfig
from regard.text import Tokenizer, padded, read_lines


def read(path: str) -> tuple[list[str], torch.Tensor]:
    """The sentences and their classes."""
    rows = [line.split(" ", 1) for line in read_lines(path)]
    return [sentence for _, sentence in rows], torch.tensor([int(label) for label, _ in rows])


def opinions(count: int) -> tuple[list[str], torch.Tensor]:
    """Made-up sentences, and whether they praise: what comes after "but" is what counts."""
    words = ("a bore", "silly", "dull", "a mess"), ("a joy", "clever", "moving", "a delight")
    sentences, labels = [], []
    for _ in range(count):
        praise = random.randrange(2)
        subject = random.choice(("the film", "this story", "the whole cast", "every scene"))
        said = f"{random.choice(words[praise])} , I think ."
        if random.random() < 0.3:
            said = f"{random.choice(words[1 - praise])} but {said}"
        sentences.append(f"{subject} is {said}")
        labels.append(praise)
    return sentences, torch.tensor(labels)


@torch.no_grad()
def accuracy(model: Classifier, tokens: list[list[int]], labels: torch.Tensor) -> float:
    """The share of sentences that are put into their class."""
    model.eval()
    parts = [tokens[i : i + 128] for i in range(0, len(tokens), 128)]
    found = torch.cat([model(*padded(part)).argmax(1) for part in parts])
    return (found == labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", help="sentences to learn from; made-up ones, if not given")
    parser.add_argument("--dev", help="sentences to be judged by")
    parser.add_argument("--epochs", type=int, help="how often all sentences are seen")
    parser.add_argument("--save", default="classifier.safetensors", help="the trained model")
    parser.add_argument("--why", action="append", help="a sentence; which words decided?")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if bool(given.train) != bool(given.dev):
        parser.error("give both --train and --dev, or neither")
    torch.manual_seed(given.seed)
    random.seed(given.seed)

    sentences, labels = read(given.train) if given.train else opinions(600)
    dev_sentences, dev_labels = read(given.dev) if given.dev else opinions(200)
    epochs = given.epochs or (8 if given.train else 6)
    tokenizer = Tokenizer.train(sentences, 4000 if given.train else 100)
    tokens, dev_tokens = (tokenizer.encode_batch(one) for one in (sentences, dev_sentences))
    config = TransformerConfig(
        vocabulary=tokenizer.size, width=128, encoder_depth=1, heads=4, feed_forward=256,
        activation="gelu", norm_place="before", dropout=0.3,
    )  # fmt: skip
    model = Classifier(config, classes=int(labels.max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.monotonic()
    for epoch in range(1, epochs + 1):
        model.train()
        for rows in torch.randperm(len(tokens)).split(32):
            source, lengths = padded([tokens[i] for i in rows])
            # A word that is sometimes hidden cannot be all that is looked at.
            source = source.masked_fill(torch.rand(source.shape) < 0.2, tokenizer.unknown)
            loss = F.cross_entropy(model(source, lengths), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        share = accuracy(model, dev_tokens, dev_labels)
        print(f"epoch {epoch}, {time.monotonic() - began:.0f} s: accuracy on dev {share:.1%}")

    model.save(given.save)
    lens = Lens(Classifier.load(given.save), tokenizer)
    for text in given.why or ["the film is moving but dull"]:
        why = lens.why(text)
        print(f"{text}: class {why.word}, probability {why.probability:.0%}")
        decided = sorted(why.words, key=lambda one: one.probability)[:3]
        print(", ".join(f"without {one.word!r} {one.probability:.0%}" for one in decided))


if __name__ == "__main__":
    main()
