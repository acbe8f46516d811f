"""Beam search beside Hugging Face's `generate` and CTranslate2, on the same weights.

    python benchmarks/decoding.py --model runs/en-de --source test.en --reference test.de

All three translate the same file with the same beam, length penalty and rule for stopping, from
text to text with the same tokenizer, each sorted by length and at its own best batch size, in one
process that keeps freed memory, as `regard translate` does. They take turns; the best of the rounds
counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from huggingface import to_huggingface
from timing import machine

from regard.memory import keep_freed_memory
from regard.text import Tokenizer, padded, read_lines
from regard.translate import Beam, Translator
from regard.translate.export import export_ctranslate2
from regard.translate.scoring import bleu
from regard.translate.search import longest

Run = Callable[[int], list[str]]
"""All translations, with a batch size."""


def ours(translator: Translator, texts: list[str], beam: int, threads: int) -> Run:
    """regard; the batch size counts subwords."""

    def run(size: int) -> list[str]:
        found = translator.translate(texts, Beam(beam), batch=size, threads=threads)
        return [one.text for one in found]

    return run


def huggingface(translator: Translator, texts: list[str], beam: int) -> Run:
    """transformers; the batch size counts sentences."""
    model, tokenizer = to_huggingface(translator.model), translator.tokenizer

    @torch.inference_mode()
    def run(size: int) -> list[str]:
        ids = tokenizer.encode_batch(texts)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        said: dict[int, list[int]] = {}
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            given, lengths = padded([[*ids[i], Tokenizer.end] for i in rows])
            found = model.generate(
                input_ids=given,
                attention_mask=(torch.arange(given.shape[1]) < lengths[:, None]).long(),
                num_beams=beam,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=True,
                max_length=1 + longest(int(lengths.max()) - 1),
            )
            for i, row in zip(rows, found[:, 1:].tolist(), strict=True):
                said[i] = row[: row.index(Tokenizer.end)] if Tokenizer.end in row else row
        return tokenizer.decode_batch([said[i] for i in range(len(ids))])

    return run


def ctranslate2(translator: Translator, texts: list[str], beam: int, threads: int) -> Run:
    """CTranslate2 in float32; the batch size counts sentences."""
    import ctranslate2

    folder = Path(tempfile.mkdtemp()) / "model"
    export_ctranslate2(translator, folder)
    # Workers of one thread each are faster on small models than one worker of several.
    model = ctranslate2.Translator(
        str(folder), compute_type="float32", inter_threads=threads, intra_threads=1
    )
    tokenizer = translator.tokenizer
    numbers = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}

    def run(size: int) -> list[str]:
        ids = tokenizer.encode_batch(texts)
        results = model.translate_batch(
            [tokenizer.tokens(row) for row in ids],
            beam_size=beam,
            min_decoding_length=0,
            max_decoding_length=longest(max(map(len, ids))),
            max_batch_size=size,
            return_end_token=True,
        )
        found = [[numbers[piece] for piece in one.hypotheses[0]] for one in results]
        return tokenizer.decode_batch(found)

    return run


def seconds(run: Run, size: int) -> float:
    start = time.perf_counter()
    run(size)
    return time.perf_counter() - start


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
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    texts = list(read_lines(given.source))[: given.lines]
    translator = Translator.load(given.model)
    runs: dict[str, tuple[Run, tuple[int, ...]]] = {
        "transformers": (huggingface(translator, texts, given.beam), (16, 32, 64, 128)),
        "regard": (ours(translator, texts, given.beam, given.threads), (4096, 8192, 16384, 32768)),
        "CTranslate2": (
            ctranslate2(translator, texts, given.beam, given.threads),
            (16, 32, 64, 128),
        ),
    }
    sizes = {}
    for name, (run, candidates) in runs.items():
        torch.set_num_threads(given.threads)  # CTranslate2 sets it to that of its workers
        if not sizes:
            print(machine())
        run(candidates[0])
        times = {size: seconds(run, size) for size in candidates}
        sizes[name] = min(times, key=lambda size: times[size])
        print(f"{name}: {', '.join(f'{size}: {t:.2f} s' for size, t in times.items())}")
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(given.rounds):
        for name, (run, _) in runs.items():
            torch.set_num_threads(given.threads)
            best[name] = min(best[name], seconds(run, sizes[name]))
    said = {name: run(sizes[name]) for name, (run, _) in runs.items()}
    print(f"\n| beam {given.beam}, {len(texts):,} sentences | batch | seconds | sentences/s | "
          "times as fast as transformers | the same as regard's | BLEU |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name, taken in best.items():
        same = sum(a == b for a, b in zip(said[name], said["regard"], strict=True)) / len(texts)
        score = "–"
        if given.reference is not None:
            references = list(read_lines(given.reference))[: given.lines]
            score = f"{bleu(said[name], references, tokenize=given.tokenize).score:.2f}"
        print(f"| {name} | {sizes[name]} | {taken:.2f} | {len(texts) / taken:.0f} | "
              f"{best['transformers'] / taken:.2f} | {same:.1%} | {score} |")  # fmt: skip


if __name__ == "__main__":
    main()
