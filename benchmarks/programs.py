"""`regard train` beside `joeynmt train`: ``python benchmarks/programs.py --run RUN [--updates N]``.

Both programs as their users start them, one after the other, on the same subwords, with the same
model, batch size, dropout, label smoothing and schedule; what each says of its own speed is read
from its log. RUN is a folder that `regard train` made: its subwords and sentences are used. Needs
JoeyNMT 2.3 (``pip install --no-deps joeynmt`` and what it imports).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import machine

from regard.text import EncodedPairs, Tokenizer
from regard.translate.precision import TRAINING

REGARD = {"torchrun --nproc-per-node 2 -m regard train": 2, "regard train": 1}
"""How it is started, and how many workers it has then."""
SIDE = """{type: transformer, num_layers: 4, num_heads: 4, hidden_size: 128, ff_size: 256,
    dropout: 0.3, layer_norm: pre,
    embeddings: {embedding_dim: 128, scale: True, dropout: 0.3}}"""
CONFIG = """
name: tiny
joeynmt_version: "2.3.0"
model_dir: {folder}/joeynmt
use_cuda: False
fp16: False
normalization: tokens
data:
  train: {folder}/train
  dev: {folder}/dev
  dataset_type: plain
  src: {{lang: en, level: word, lowercase: False, max_length: 256, voc_file: {folder}/vocabulary}}
  trg: {{lang: de, level: word, lowercase: False, max_length: 256, voc_file: {folder}/vocabulary}}
testing: {{beam_size: 1, batch_size: 4096, batch_type: token, eval_metrics: [bleu]}}
training:
  optimizer: adam
  adam_betas: [0.9, 0.98]
  learning_rate: 0.0005
  scheduling: warmupinversesquareroot
  learning_rate_warmup: 1000
  loss: crossentropy
  label_smoothing: 0.1
  normalization: tokens
  clip_grad_norm: 1.0
  batch_size: 4096
  batch_type: token
  epochs: 100
  updates: {updates}
  logging_freq: 20
  validation_freq: 1000000
  overwrite: True
  shuffle: True
model:
  initializer: xavier_uniform
  embed_initializer: xavier_uniform
  tied_embeddings: True
  tied_softmax: True
  encoder: {encoder}
  decoder: {decoder}
"""


def write_text(run: Path, folder: Path) -> None:
    """The sentences of the run as subwords with spaces between them."""
    tokenizer = Tokenizer.load(run / "tokenizer.json")
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    pieces = [piece for piece in tokenizer.vocabulary if piece not in special]
    (folder / "vocabulary").write_text("\n".join([*special, *pieces]) + "\n", encoding="utf-8")
    pairs = EncodedPairs.open(run / "data" / "train")
    for side, language in enumerate(("en", "de")):
        lines = [" ".join(tokenizer.tokens(pairs[i][side])) for i in range(len(pairs))]
        (folder / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"dev.{language}").write_text("\n".join(lines[:50]) + "\n", encoding="utf-8")


def joeynmt(folder: Path, updates: int) -> list[float]:
    """Target tokens a second, as its log says."""
    text = CONFIG.format(folder=folder, updates=updates, encoder=SIDE, decoder=SIDE)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "joeynmt", "train", str(folder / "config.yaml"), "--skip-test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    found = [float(x) for x in re.findall(r"Tokens per Sec:\s+(\d+)", said)]
    if not found:
        raise SystemExit(said[-3000:])
    return found


def regard(run: Path, folder: Path, updates: int, workers: int, precision: str) -> list[float]:
    """Target tokens a second, as its log says."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))["data"]
    out = folder / f"regard-{workers}-{precision}"
    options = [
        f"--source={config['source']}", f"--target={config['target']}",
        f"--valid-source={config['valid_source']}", f"--valid-target={config['valid_target']}",
        "--preset=tiny", f"--vocabulary={Tokenizer.load(run / 'tokenizer.json').size}",
        f"--max-steps={updates}", "--select-by=loss", f"--valid-every={updates}", f"--out={out}",
        f"--precision={precision}",
    ]  # fmt: skip
    command, environment = [sys.executable], dict(os.environ)
    if workers > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        environment["OMP_NUM_THREADS"] = "1"
    subprocess.run(
        [*command, "-m", "regard", "train", *options],
        env=environment,
        capture_output=True,
        check=True,
    )
    lines = (out / "log.jsonl").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    return [one["tokens_per_second"] for one in told if one["kind"] == "train"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="a folder of `regard train`")
    parser.add_argument(
        "--updates", type=int, default=200, help="of regard; half as many of JoeyNMT"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(given.run, folder)
        found = {
            f"`{command}`, {precision}": regard(
                given.run, folder, given.updates, workers, precision
            )
            for precision in TRAINING
            for command, workers in REGARD.items()
        }
        found["`python -m joeynmt train`"] = joeynmt(folder, given.updates // 2)
    best = {side: max(speeds) for side, speeds in found.items()}
    slowest = min(best.values())
    print(f"{machine()}; {given.updates} updates")
    print("\n| | target tokens/s, best | times JoeyNMT |\n|---|---|---|")
    for side, speed in best.items():
        print(f"| {side} | {speed:,.0f} | {speed / slowest:.2f} |")


if __name__ == "__main__":
    main()
