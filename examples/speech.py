"""Recognise spoken digits by speakers who were never heard in training.

    python examples/speech.py --data recordings.tar.gz

The archive (or folder) is the Free Spoken Digit Dataset: WAV files of 8 kHz that are named
digit_speaker_number.wav. Each speaker in turn is held out and tested. Without data, made-up
words are spoken: melodies of two or three tones, by voices of different pitch.
"""

import argparse
import io
import math
import tarfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from regard import Sinusoidal, padding
from regard.nn import Encoder, TransformerConfig

RATE, FRAME, HOP, BANDS = 8000, 256, 128, 40
MELODIES = {"up": (0, 1), "down": (1, 0), "peak": (0, 1, 0), "dip": (1, 0, 1)}


def recordings(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the WAV files of an archive or a folder."""
    if path.is_dir():
        yield from ((file.name, file.read_bytes()) for file in sorted(path.rglob("*.wav")))
    else:
        with tarfile.open(path) as archive:
            files = [one for one in archive if one.isfile() and one.name.endswith(".wav")]
            for one in sorted(files, key=lambda one: one.name):
                yield Path(one.name).name, archive.extractfile(one).read()  # type: ignore[union-attr]


def read(path: Path) -> tuple[list[Tensor], list[str], list[str]]:
    """The frames of every recording, its digit and its speaker."""
    heard, digits, speakers = [], [], []
    for name, content in recordings(path):
        with wave.open(io.BytesIO(content)) as file:
            if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
                raise SystemExit(f"{name}: expected {RATE} Hz, 16 bits, one channel")
            samples = bytearray(file.readframes(file.getnframes()))
        digit, speaker, _ = name.split("_")
        heard.append(frames(torch.frombuffer(samples, dtype=torch.int16) / 32768))
        digits.append(digit)
        speakers.append(speaker)
    if not heard:
        raise SystemExit(f"{path}: no WAV files found")
    return heard, digits, speakers


def made_up(count: int) -> tuple[list[Tensor], list[str], list[str]]:
    """Melodies by four voices, with noise, as frames like those of recordings."""
    heard, words, speakers = [], [], []
    for i in range(count):
        word, voice = list(MELODIES)[i % 4], i // 4 % 4
        tones = torch.tensor(MELODIES[word]).repeat_interleave(int(RATE * 0.1))
        pitch = 500 * 1.12**voice * 1.4**tones
        sound = torch.sin(2 * math.pi * (pitch / RATE).cumsum(0)) + 0.1 * torch.randn(len(tones))
        heard.append(frames(F.pad(sound, (int(torch.randint(800, ())), 0))))
        words.append(word)
        speakers.append(f"voice-{voice}")
    return heard, words, speakers


def mel_filters() -> Tensor:
    """(bands, frequencies): overlapping triangles, evenly spaced on the mel scale."""
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (60, 3900))
    edges = 700 * (10 ** (torch.linspace(low, high, BANDS + 2) / 2595) - 1)
    at = torch.linspace(0, RATE / 2, FRAME // 2 + 1)
    rising = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


def frames(sound: Tensor) -> Tensor:
    """(samples,) → (n, bands): how loud each band is every 16 ms, in logarithms, up to 1 s."""
    sound = F.pad(sound, (0, max(0, 2 * FRAME - len(sound))))[:RATE]
    window = torch.hann_window(FRAME)
    power = torch.stft(sound, FRAME, HOP, window=window, return_complex=True).abs() ** 2
    x = torch.log(mel_filters() @ power + 1e-6).T
    return (x - x.mean()) / x.std()


class Listener(nn.Module):
    """Frames as words: an encoder, the mean of its vectors, and one linear layer."""

    def __init__(self, classes: int, width: int = 96) -> None:
        super().__init__()
        self.enter, self.position = nn.Linear(BANDS, width), Sinusoidal(width)
        self.encoder = Encoder(
            TransformerConfig(
                vocabulary=1, width=width, heads=4, encoder_depth=2, feed_forward=2 * width,
                norm_place="before", activation="gelu", dropout=0.1,
            )
        )  # fmt: skip
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        z = self.encoder(self.position(self.enter(x)), mask=padding(lengths))
        there = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
        return self.output((z * there).sum(1) / lengths[:, None])


def batch(heard: list[Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    """Recordings as one padded tensor (b, n, bands), and their lengths."""
    chosen = [heard[i] for i in rows.tolist()]
    return pad_sequence(chosen, batch_first=True), torch.tensor([len(one) for one in chosen])


def varied(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The same said faster or slower, higher or lower, with some bands and moments hidden."""
    pace, shift = float(torch.empty(()).uniform_(0.7, 1.3)), int(torch.randint(-3, 4, ()))
    size = (max(8, int(x.shape[1] * pace)), BANDS)
    x = F.interpolate(x[:, None], size=size, mode="bilinear")[:, 0].roll(shift, 2)
    lengths = (lengths * pace).long().clamp(1, size[0])
    for axis, longest in ((2, 7), (1, size[0] // 5)):
        at = torch.arange(x.shape[axis])
        begin = torch.randint(x.shape[axis], (len(x), 1))
        hidden = (at >= begin) & (at < begin + torch.randint(longest + 1, (len(x), 1)))
        x = x.masked_fill(hidden.unsqueeze(3 - axis), 0.0)
    return x, lengths


def train(heard: list[Tensor], classes: Tensor, rows: Tensor, epochs: int) -> Listener:
    model = Listener(int(classes.max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    steps = epochs * -(-len(rows) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(epochs):
        for part in rows[torch.randperm(len(rows))].split(64):
            loss = F.cross_entropy(model(*varied(*batch(heard, part))), classes[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def recognised_after(model: Listener, heard: Tensor, answer: Tensor) -> float:
    """The share of a recording after which the model gives its final answer and keeps to it."""
    lengths = torch.arange(1, len(heard) + 1)
    after_each = model(heard.expand(len(heard), -1, -1), lengths).argmax(1)
    changed = (after_each != answer).nonzero()
    return (int(changed.max()) + 2 if len(changed) else 1) / len(heard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="an archive or a folder of recordings")
    parser.add_argument("--speaker", action="append", help="whom to hold out; each in turn")
    parser.add_argument("--epochs", type=int, default=10, help="how often all recordings are heard")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    heard, words, speakers = read(given.data) if given.data else made_up(240)
    names = sorted(set(words))
    classes = torch.tensor([names.index(word) for word in words])
    means = torch.stack([torch.cat((one.mean(0), one.std(0))) for one in heard]).numpy()
    total = torch.zeros(3)
    held_out = given.speaker or sorted(set(speakers))
    for speaker in held_out:
        tested = torch.tensor([one == speaker for one in speakers])
        if not tested.any():
            raise SystemExit(f"--speaker {speaker}: expected one of {sorted(set(speakers))}")
        rows, new = (~tested).nonzero()[:, 0], tested.nonzero()[:, 0]
        began = time.monotonic()
        torch.manual_seed(given.seed)
        model = train(heard, classes, rows, given.epochs)
        took = time.monotonic() - began
        with torch.no_grad():
            found = model(*batch(heard, new)).argmax(1)
        linear = LogisticRegression(max_iter=3000).fit(means[rows], classes[rows].numpy())
        right = (found == classes[new]).double().mean()
        baseline = linear.score(means[new], classes[new].numpy())
        after = torch.tensor(
            [recognised_after(model, heard[i], f) for i, f in zip(new.tolist(), found, strict=True)]
        )
        print(
            f"{speaker:10} attention {right:6.1%}   averaged frames {baseline:6.1%}   "
            f"answer settled after {after.median():.0%} of a recording   ({took:.0f} s)",
            flush=True,
        )
        total += torch.tensor([right, baseline, after.median()])
    right, baseline, after = (total / len(held_out)).tolist()
    print(f"mean       attention {right:6.1%}   averaged frames {baseline:6.1%}")


if __name__ == "__main__":
    main()
