"""Beam search beside Hugging Face's `generate` and CTranslate2, on the same weights.

    python benchmarks/decoding.py --model runs/en-de --source test.en --reference test.de

All translate the same file with the same beam, length penalty and rule for stopping, from text to
text with the same tokenizer, each sorted by length and at its own best batch size, in a process of
its own, as its users do. They take turns; the best of the rounds counts. Each is there in float32
and, if it can be, in bfloat16 and int8, regard also as called without options, and `generate` also
in a process that keeps freed memory, as `regard translate` does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import Peer, machine, taking_turns

from regard.memory import keep_freed_memory
from regard.text import Tokenizer, padded, read_lines
from regard.translate import Beam, Translator
from regard.translate.export import export_ctranslate2
from regard.translate.scoring import bleu
from regard.translate.search import longest

Run = Callable[[int], list[str]]
"""All translations, with a batch size."""
SENTENCES, SUBWORDS = (16, 32, 64, 128), (4096, 8192, 16384, 32768)
SIDES: dict[str, tuple[int, ...]] = {
    "transformers": SENTENCES,
    "transformers, freed memory kept": SENTENCES,
    "transformers, bfloat16": SENTENCES,
    "regard": SUBWORDS,
    "regard, bfloat16": SUBWORDS,
    "regard, int8": SUBWORDS,
    "regard, default call": (0,),
    "CTranslate2": SENTENCES,
    "CTranslate2, bfloat16": SENTENCES,
    "CTranslate2, int8": SENTENCES,
}
"""The batch sizes that each side tries."""


def ours(given: argparse.Namespace, texts: list[str], precision: str) -> Run:
    """regard; the batch size counts subwords."""
    translator = Translator.load(given.model, precision=precision)

    def run(size: int) -> list[str]:
        chosen = {"batch": size, "threads": given.threads} if size else {}
        return [one.text for one in translator.translate(texts, Beam(given.beam), **chosen)]

    return run


def huggingface(given: argparse.Namespace, texts: list[str], precision: str) -> Run:
    """transformers; the batch size counts sentences."""
    from huggingface import to_huggingface

    translator = Translator.load(given.model)
    model, tokenizer = to_huggingface(translator.model), translator.tokenizer
    model = model.to(getattr(torch, precision))

    @torch.inference_mode()
    def run(size: int) -> list[str]:
        ids = tokenizer.encode_batch(texts)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        said: dict[int, list[int]] = {}
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            source, lengths = padded([[*ids[i], Tokenizer.end] for i in rows])
            found = model.generate(
                input_ids=source,
                attention_mask=(torch.arange(source.shape[1]) < lengths[:, None]).long(),
                num_beams=given.beam,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=True,
                max_length=1 + longest(int(lengths.max()) - 1),
            )
            for i, row in zip(rows, found[:, 1:].tolist(), strict=True):
                said[i] = row[: row.index(Tokenizer.end)] if Tokenizer.end in row else row
        return tokenizer.decode_batch([said[i] for i in range(len(ids))])

    return run


def ctranslate2(given: argparse.Namespace, texts: list[str], precision: str) -> Run | None:
    """CTranslate2; the batch size counts sentences."""
    import ctranslate2

    if precision not in ctranslate2.get_supported_compute_types("cpu"):
        print(f"CTranslate2 does not compute in {precision} here")
        return None
    translator = Translator.load(given.model)
    folder = Path(tempfile.mkdtemp()) / "model"
    export_ctranslate2(translator, folder)
    # Workers of one thread each are faster on small models than one worker of several.
    model = ctranslate2.Translator(
        str(folder), compute_type=precision, inter_threads=given.threads, intra_threads=1
    )
    tokenizer = translator.tokenizer
    numbers = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}

    def run(size: int) -> list[str]:
        ids = tokenizer.encode_batch(texts)
        results = model.translate_batch(
            [tokenizer.tokens(row) for row in ids],
            beam_size=given.beam,
            min_decoding_length=0,
            max_decoding_length=longest(max(map(len, ids))),
            max_batch_size=size,
            return_end_token=True,
        )
        found = [[numbers[piece] for piece in one.hypotheses[0]] for one in results]
        return tokenizer.decode_batch(found)

    return run


def side(given: argparse.Namespace, texts: list[str]) -> None:
    """One side in this process; with a file's name behind the batch size, it writes there."""
    name, *how = given.side.split(", ")
    if name == "regard" or "freed memory kept" in how:
        keep_freed_memory()
    make = {"regard": ours, "transformers": huggingface, "CTranslate2": ctranslate2}[name]
    precision = next((one for one in how if one in ("bfloat16", "int8")), "float32")
    run = make(given, texts, precision)
    if run is None:
        return

    def turn(request: str) -> None:
        size, _, path = request.partition(" ")
        said = run(int(size))
        if path:
            Path(path).write_text("".join(f"{line}\n" for line in said), encoding="utf-8")

    taking_turns(turn, time.process_time if given.cpu_time else time.perf_counter)


def main() -> None:
    """Print a table, with BLEU and how many translations are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--tokenize", default="13a", help="for BLEU; none: tokenised already")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lines", type=int, help="only the first so many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a machine that others use")
    parser.add_argument("--only", nargs="*", help="words that the names of all sides contain")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts = list(read_lines(given.source))[: given.lines]
    if given.side:
        side(given, texts)
        return
    print(machine())
    wanted = [name for name in SIDES if any(w in name for w in given.only or [""])]
    peers = {name: Peer(name) for name in wanted}
    # The first turn of each does not count; those that cannot run are left out.
    able = [name for name, peer in peers.items() if peer.turn(SIDES[name][0]) < float("inf")]
    sizes, best = {}, {}
    for name in able:
        times = {size: peers[name].turn(size) for size in SIDES[name]}
        sizes[name] = min(times, key=lambda size: times[size])
        best[name] = times[sizes[name]]
        print(f"{name}: {', '.join(f'{size}: {t:.2f} s' for size, t in times.items())}")
    for _ in range(given.rounds):
        for name, size in sizes.items():
            best[name] = min(best[name], peers[name].turn(size))
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, size in sizes.items():
            peers[name].turn(f"{size} {folder}/said")
            said[name] = list(read_lines(f"{folder}/said"))
    for peer in peers.values():
        peer.end()
    print(f"\n| beam {given.beam}, {len(texts):,} sentences | batch | seconds | sentences/s | "
          f"times as fast as {wanted[0]} | the same as regard's | BLEU |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name, taken in best.items():
        same = sum(a == b for a, b in zip(said[name], said["regard"], strict=True)) / len(texts)
        score = "–"
        if given.reference is not None:
            references = list(read_lines(given.reference))[: given.lines]
            score = f"{bleu(said[name], references, tokenize=given.tokenize).score:.2f}"
        print(f"| {name} | {sizes[name]:,} | {taken:.2f} | {len(texts) / taken:.0f} | "
              f"{best[wanted[0]] / taken:.2f} | {same:.1%} | {score} |")  # fmt: skip


if __name__ == "__main__":
    main()
