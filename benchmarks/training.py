"""Training `tiny` beside its peers: ``python benchmarks/training.py --run RUN [--rounds N]``.

RUN is a folder that `regard train` made: its tokenizer and its encoded sentences are used. Every
side gets the same batches, trains with the same dropout, label smoothing and Adam, in a process of
its own, as its users do. The processes take turns at the same batches, again and again, and the
best turn of each counts; only the two workers are started anew for each round:

- regard, as `regard train` runs it: in one process, and as two workers of one thread (`torchrun`);
- transformers: a Marian of the same size, trained with plain `cross_entropy`;
- both with products in bfloat16 as well (``--precision bfloat16``; Marian by autocast);
- JoeyNMT 2.3, if it can be imported (``pip install --no-deps joeynmt`` and what it imports);
- the matrix products of regard's step alone, of the same shapes, forwards and backwards.

``--alone --preset base --vocabulary 37000 --tokens 2048`` measures another shape without peers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from timing import Peer, machine, taking_turns
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from regard.memory import keep_freed_memory
from regard.nn import Transformer, TransformerConfig
from regard.text import Batch, Batches, EncodedPairs, Tokenizer
from regard.translate.precision import Precision

DROPOUT, SMOOTHING = 0.3, 0.1
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmm_")
Step = Callable[[Batch], None]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)


def updating(model: nn.Module, loss: Callable[[Batch], Tensor], precision: str) -> Step:
    """One update: gradient of the loss per token, clipping, Adam."""
    optimizer = adam(model)

    def step(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        with Precision(precision).autocast(torch.device("cpu")):
            total = loss(batch)
        (total / batch.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


class RegardLoss(nn.Module):
    """The loss of regard's model, as a module that DistributedDataParallel can wrap."""

    def __init__(self, vocabulary: int, preset: str) -> None:
        super().__init__()
        config = TransformerConfig.preset(preset, vocabulary=vocabulary, dropout=DROPOUT)
        self.model = Transformer(config)

    def forward(self, batch: Batch) -> Tensor:
        return self.model.loss(
            batch.source,
            batch.target,
            batch.expected,
            source_mask=batch.source_mask,
            real=torch.arange(batch.target.shape[1]) < batch.target_lengths[:, None],
            smoothing=SMOOTHING,
        ).total


def regard_step(vocabulary: int, preset: str, precision: str) -> Step:
    task = RegardLoss(vocabulary, preset)
    return updating(task, task, precision)


def marian_step(vocabulary: int, precision: str) -> Step:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=128,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        dropout=DROPOUT,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).train()

    def loss(batch: Batch) -> Tensor:
        logits = model(
            input_ids=batch.source,
            attention_mask=(batch.source != 0).long(),
            decoder_input_ids=batch.target,
            use_cache=False,
        ).logits
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch.expected.flatten(),
            ignore_index=0,
            label_smoothing=SMOOTHING,
            reduction="sum",
        )

    return updating(model, loss, precision)


def joeynmt_step(vocabulary: int, precision: str) -> Step | None:
    """JoeyNMT's own model, loss and batch, driven as its `TrainManager._train_step` does."""
    try:
        from joeynmt.batch import Batch as JoeyBatch
        from joeynmt.model import build_model
        from joeynmt.vocabulary import Vocabulary
    except ImportError as error:
        print(f"JoeyNMT is left out: {error}")
        return None
    from types import SimpleNamespace

    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    words = Vocabulary([f"w{i}" for i in range(vocabulary - 4)], special)
    side = {
        "type": "transformer", "num_layers": 4, "num_heads": 4, "hidden_size": 128,
        "ff_size": 256, "dropout": DROPOUT, "layer_norm": "post",
        "embeddings": {"embedding_dim": 128, "scale": True, "dropout": DROPOUT},
    }  # fmt: skip
    config = {
        "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform",
        "tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side,
    }  # fmt: skip
    model = build_model(config, words, words)
    model.loss_function = ("crossentropy", SMOOTHING)
    model.train()

    theirs = torch.arange(vocabulary)
    theirs[:4] = torch.tensor([1, 2, 3, 0])  # the special tokens have other numbers there

    def loss(batch: Batch) -> Tensor:
        target = torch.cat((batch.target, torch.zeros(len(batch.target), 1).long()), 1)
        target.scatter_(1, batch.target_lengths[:, None], 2)
        joey = JoeyBatch(
            src=theirs[batch.source],
            src_length=batch.source_lengths,
            src_prompt_mask=None,
            trg=theirs[target],
            trg_prompt_mask=None,
            indices=torch.arange(len(batch.source)),
            device=torch.device("cpu"),
            pad_index=1,
            eos_index=3,
        )
        joey.sort_by_src_length()
        found: Tensor = model(return_type="loss", **vars(joey))[0]
        return found

    return updating(model, loss, precision)


class Recorder(TorchDispatchMode):
    """The operands' shapes and strides of every matrix product that runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[list[Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            operands = [x for x in args if isinstance(x, Tensor)][-2:]
            self.products.append([_like(x) for x in operands])
        elif "flash_attention" in name:
            self.products += _attention_products(args, "backward" in name)
        return func(*args, **(kwargs or {}))


def _like(x: Tensor) -> Tensor:
    """A stand-in of the same shape and layout (a transposed matrix stays one)."""
    if x.dim() > 1 and x.stride(-1) != 1 and x.stride(-2) == 1:
        return torch.randn(x.transpose(-1, -2).shape).transpose(-1, -2)
    return torch.randn(x.shape)


def _attention_products(args: Any, backward: bool) -> list[list[Tensor]]:
    """The products inside one fused attention: two forwards, five backwards."""
    q, k = (args[1], args[2]) if backward else (args[0], args[1])
    q, k = (torch.randn(x.shape).flatten(0, 1) for x in (q, k))
    weights = torch.randn(len(q), q.shape[1], k.shape[1])
    forwards = [[q, k.mT], [weights, k]]
    if not backward:
        return forwards
    return [[q, k.mT], [q, k.mT], [weights, k], [weights.mT, q], [weights.mT, q]]


def products_alone(step: Step, batch: Batch) -> Callable[[], None]:
    recorder = Recorder()
    with recorder:
        step(batch)

    def run() -> None:
        for one, other in recorder.products:
            torch.matmul(one, other)

    return run


def worker(given: argparse.Namespace, vocabulary: int, batches: list[Batch]) -> None:
    """One of two workers; the first prints the best time."""
    torch.distributed.init_process_group("gloo")
    rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    task = torch.nn.parallel.DistributedDataParallel(RegardLoss(vocabulary, given.preset))
    step = updating(task, task, given.precision)
    parts, best = [batch.part(rank, count) for batch in batches], float("inf")
    for _ in range(given.turns):
        torch.distributed.barrier()
        start = time.perf_counter()
        for part in parts:
            step(part)
        best = min(best, time.perf_counter() - start)
    if rank == 0:
        print(f"best {best}")
    torch.distributed.destroy_process_group()


def alone(given: argparse.Namespace, vocabulary: int, batches: list[Batch]) -> None:
    """One side in this process: a turn for every line that it reads."""
    if given.side in ("regard", "products"):
        keep_freed_memory()
        step: Step | None = regard_step(vocabulary, given.preset, given.precision)
    else:
        make = {"marian": marian_step, "joeynmt": joeynmt_step}[given.side]
        step = make(vocabulary, given.precision)
    if step is None:
        return
    runs = [lambda batch=batch: step(batch) for batch in batches]  # type: ignore[misc]
    if given.side == "products":
        runs = [products_alone(step, batch) for batch in batches]

    def turn(_: str) -> None:
        for run in runs:
            run()

    taking_turns(turn)


def workers(precision: str) -> float:
    """Seconds of the best turn of two workers."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "--", *sys.argv, "--side", "workers", "--precision", precision],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split("best")[1])


SIDES = {
    ("regard", "float32"): "regard",
    ("workers", "float32"): "regard, two workers of one thread",
    ("marian", "float32"): "transformers Marian",
    ("joeynmt", "float32"): "JoeyNMT",
    ("products", "float32"): "matrix products alone",
    ("regard", "bfloat16"): "regard, bfloat16",
    ("workers", "bfloat16"): "regard, bfloat16, two workers",
    ("marian", "bfloat16"): "transformers Marian, bfloat16",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="a folder of `regard train`")
    parser.add_argument("--batches", type=int, default=4, help="batches in a turn")
    parser.add_argument("--turns", type=int, default=4, help="turns in a round; the best counts")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of turns")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens in a batch")
    parser.add_argument("--alone", action="store_true", help="no peers")
    parser.add_argument("--preset", default="tiny", help="another shape, with --alone")
    parser.add_argument("--vocabulary", type=int, help="more subwords than the run has")
    sides = dict.fromkeys(side for side, _ in SIDES)
    parser.add_argument("--side", choices=sides, help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="float32", help=argparse.SUPPRESS)
    given = parser.parse_args()
    vocabulary = given.vocabulary or Tokenizer.load(given.run / "tokenizer.json").size
    pairs = EncodedPairs.open(given.run / "data" / "train")
    batches = list(islice(Batches(pairs, given.tokens, seed=1).epoch(0), given.batches))
    torch.manual_seed(0)
    if given.side == "workers":
        keep_freed_memory()
        worker(given, vocabulary, batches)
        return
    if given.side:
        alone(given, vocabulary, batches)
        return
    chosen = [
        (side, precision)
        for side, precision in SIDES
        if not given.alone or side not in ("marian", "joeynmt")
    ]
    best = dict.fromkeys(chosen, float("inf"))
    peers = {one: Peer(one[0], "--precision", one[1]) for one in chosen if one[0] != "workers"}
    for _ in range(given.rounds):
        for one in chosen:
            if one not in peers:
                best[one] = min(best[one], workers(one[1]))
        for one, peer in [*peers.items()] * given.turns:
            best[one] = min(best[one], peer.turn())
    for peer in peers.values():
        peer.end()
    tokens = sum(batch.tokens for batch in batches)
    ours = [one for one in chosen if one[0] in ("regard", "workers")]
    print(f"{machine()}; {len(batches)} batches, {tokens} target tokens, {vocabulary} subwords")
    print("\nHow many times as fast as each is …\n")
    print(f"| | target tokens/s | {' | '.join(SIDES[one] for one in ours)} |")
    print(f"|---|---|{'---|' * len(ours)}")
    for one, seconds in best.items():
        ratios = " | ".join(f"{seconds / best[our]:.2f}" for our in ours)
        print(f"| {SIDES[one]} | {tokens / seconds:,.0f} | {ratios} |")


if __name__ == "__main__":
    main()
