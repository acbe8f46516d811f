"""Classify handwritten digits: patches of 2 × 2 pixels as words, with positions in two dimensions.

    python examples/images.py --epochs 40 --picture look.svg

The digits are scikit-learn's. Logistic regression on the pixels stands beside the encoder, and the
picture shows where it looked. See docs/beyond/images.md, which segments scenes as well.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from regard import view, watch
from regard.nn import Encoder, TransformerConfig


class Vision(nn.Module):
    """An encoder over the 16 patches of an image (b, 8, 8), and the mean of its answers."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(4, width)
        self.row = nn.Parameter(0.1 * torch.randn(4, 1, width))
        self.column = nn.Parameter(0.1 * torch.randn(1, 4, width))
        self.encoder = Encoder(
            TransformerConfig(
                vocabulary=1, width=width, heads=4, encoder_depth=2, feed_forward=2 * width,
                norm_place="before", activation="gelu", dropout=0.1,
            )
        )  # fmt: skip
        self.output = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = images.unfold(1, 2, 2).unfold(2, 2, 2).flatten(3).flatten(1, 2)
        x = self.enter(patches) + (self.row + self.column).flatten(0, 1)
        return self.output(self.encoder(x)).mean(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--picture", help="a file .svg, .png or .pdf: one digit, and the attention")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    data = load_digits()
    images, labels = torch.tensor(data.images).float() / 16, torch.tensor(data.target)
    train, test = torch.randperm(len(images)).split((1400, len(images) - 1400))
    model = Vision()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = given.epochs * -(-len(train) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(given.epochs):
        for rows in train[torch.randperm(len(train))].split(64):
            loss = F.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad(), watch(model) as seen:
        found = model(images[test]).argmax(1)
    pixels = images.flatten(1).numpy()
    linear = LogisticRegression(max_iter=2000).fit(pixels[train], labels[train].numpy())
    print(f"attention over patches  {(found == labels[test]).double().mean():.1%}")
    print(f"logistic regression     {linear.score(pixels[test], labels[test].numpy()):.1%}")
    received = seen["encoder.blocks.1.attention"].weights().mean((1, 2)).reshape(-1, 4, 4)
    if given.picture:
        digit = view.heatmap(
            images[test[0]].numpy(), title=f"A {labels[test[0]]}", numbers=False, low=0
        )
        looked = view.heatmap(received[0].numpy(), title="Attention received by patch", low=0)
        digit.beside(looked, gap=40).save(given.picture)


if __name__ == "__main__":
    main()
