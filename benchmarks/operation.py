"""`attend` and `look` beside what torch offers: ``python benchmarks/operation.py [part …]``.

Parts: shapes, layers, window, look, memory, flex, models, busy, alone. Ratios have both sides in
the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import timing
import torch
from timing import machine, peak_bytes, side_by_side
from torch.nn.functional import scaled_dot_product_attention as sdpa

from regard import attend, causal, look, padding, window
from regard.attention import Mask, which


@dataclass
class Case:
    """One shape ``(b, h, n, d)``, causal or not, padded or not."""

    b: int
    h: int
    n: int
    d: int
    causal: bool = False
    padded: bool = False

    def __str__(self) -> str:
        words = f"{self.b}×{self.h}×{self.n}×{self.d}"
        return words + (" causal" if self.causal else "") + (" padded" if self.padded else "")


CASES = [
    Case(64, 8, 20, 64),
    Case(64, 8, 20, 64, causal=True),
    Case(64, 8, 20, 64, padded=True),
    Case(64, 8, 20, 64, causal=True, padded=True),
    Case(128, 8, 12, 64),
    Case(128, 4, 24, 32, padded=True),
    Case(32, 8, 31, 64, causal=True),
    Case(64, 8, 32, 64),
    Case(64, 8, 32, 64, padded=True),
    Case(32, 8, 64, 64),
    Case(16, 8, 128, 64, causal=True),
    Case(16, 8, 128, 64, padded=True),
    Case(8, 8, 256, 64),
    Case(4, 8, 512, 64, causal=True),
    Case(4, 8, 512, 64, padded=True),
    Case(2, 8, 1024, 64),
    Case(1, 8, 2048, 64, causal=True),
    Case(1, 8, 4096, 64),
    Case(1, 8, 8192, 64),
    Case(1, 8, 8192, 64, causal=True),
]


MORE = [
    Case(32, 8, 64, 64, causal=True),
    Case(16, 8, 128, 64),
    Case(8, 8, 256, 64, causal=True),
    Case(4, 8, 512, 64),
    Case(2, 8, 1024, 64, causal=True),
]
"""What the bars name beside the 20 shapes."""


def masks(case: Case) -> tuple[Mask | None, torch.Tensor | None, bool]:
    """The mask of a case for regard; for torch as a tensor, and whether it is its ``is_causal``."""
    mask: Mask | None = causal if case.causal else None
    if not case.padded:
        return mask, None, case.causal
    lengths = torch.linspace(case.n * 0.6, case.n, case.b).long()
    mask = padding(lengths) if mask is None else mask & padding(lengths)
    dense = padding(lengths).tensor(1, case.n)
    return mask, dense & causal.tensor(case.n) if case.causal else dense, False


def shapes() -> None:
    """`attend` against `scaled_dot_product_attention`, with the share of a matrix product's speed.

    Of causal calls, only the half of the products that is needed counts.
    """
    x = torch.randn(2048, 2048)
    peak = 2 * 2048**3 / side_by_side([lambda: x @ x], rounds=5)[0]
    print(f"\nA product of 2,048 × 2,048 matrices: {peak / 1e9:.0f} GFLOP/s")
    print(
        "\n| shape | torch, ms | regard, ms | times as fast | share of products' speed | kernel |"
    )
    print("|---|---|---|---|---|---|")
    for case in CASES + MORE:
        q, k, v = (torch.randn(case.b, case.h, case.n, case.d) for _ in range(3))
        mask, dense, is_causal = masks(case)
        theirs, ours = side_by_side(
            [
                lambda: sdpa(q, k, v, attn_mask=dense, is_causal=is_causal),  # noqa: B023
                lambda: attend(q, k, v, mask=mask),  # noqa: B023
            ]
        )
        name = which(q, k, v, mask=mask).split(";")[0]
        work = 4 * case.b * case.h * case.n**2 * case.d / (2 if case.causal else 1)
        share = work / ours / peak
        times = f"{theirs * 1e3:.3f} | {ours * 1e3:.3f} | {theirs / ours:.2f} | {share:.2f}"
        print(f"| {case} | {times} | {name} |")


def layers() -> None:
    """The shapes of up to 512 tokens as a layer has them: all heads of a token in one row."""
    print(
        "\n| shape | torch, ms | regard, ms | times as fast | torch, both ways | "
        "regard, both ways | times as fast |\n|---|---|---|---|---|---|---|"
    )
    for case in CASES + MORE:
        if case.n > 512:
            continue
        mask, dense, is_causal = masks(case)
        made = torch.randn(case.b, case.n, 3, case.h, case.d)
        above = torch.randn(case.b, case.n, case.h, case.d).transpose(1, 2)
        plain = [x.transpose(1, 2) for x in made.unbind(2)]
        leaf = made.clone().requires_grad_()

        def theirs(q: Any, k: Any, v: Any) -> torch.Tensor:
            return sdpa(q, k, v, attn_mask=dense, is_causal=is_causal)  # noqa: B023

        def ours(q: Any, k: Any, v: Any) -> torch.Tensor:
            return attend(q, k, v, mask=mask)  # noqa: B023

        def both_ways(run: Callable[..., torch.Tensor]) -> None:
            q, k, v = (x.transpose(1, 2) for x in leaf.unbind(2))  # noqa: B023
            torch.autograd.grad(run(q, k, v), (q, k, v), above)  # noqa: B023

        forwards = side_by_side([partial(theirs, *plain), partial(ours, *plain)])
        both = side_by_side([partial(both_ways, theirs), partial(both_ways, ours)])
        print(
            f"| {case} | {forwards[0] * 1e3:.3f} | {forwards[1] * 1e3:.3f} | "
            f"{forwards[0] / forwards[1]:.2f} | {both[0] * 1e3:.3f} | {both[1] * 1e3:.3f} | "
            f"{both[0] / both[1]:.2f} |"
        )


def windowed() -> None:
    """A sliding window over a long document, forwards, and forwards and backwards."""
    n = 16_384
    q, k, v = (torch.randn(1, 8, n, 64) for _ in range(3))
    mask = causal & window(256)
    dense = mask.tensor(n)
    theirs, ours = side_by_side(
        [lambda: sdpa(q, k, v, attn_mask=dense), lambda: attend(q, k, v, mask=mask)], rounds=3
    )
    print(
        "\n| causal & window(256), 16,384 tokens, 8 heads | torch, s | regard, s | times as fast |"
    )
    print("|---|---|---|---|")
    print(f"| forwards | {theirs:.3f} | {ours:.4f} | {theirs / ours:.1f} |")
    for x in (q, k, v):
        x.requires_grad_()
    grad = torch.randn(1, 8, n, 64)

    def both_ways(output: torch.Tensor) -> None:
        output.backward(grad)
        for x in (q, k, v):
            x.grad = None

    theirs, ours = side_by_side(
        [
            lambda: both_ways(sdpa(q, k, v, attn_mask=dense)),
            lambda: both_ways(attend(q, k, v, mask=mask)),
        ],
        rounds=2,
    )
    print(f"| forwards and backwards | {theirs:.3f} | {ours:.4f} | {theirs / ours:.1f} |")


def looking() -> None:
    """Top keys and entropy of every row, against the plain matrix."""
    q, k, v = (torch.randn(8, 4096, 64) for _ in range(3))
    q4, k4, v4 = q[None], k[None], v[None]

    def plain() -> object:
        weights = torch.softmax(q @ k.mT / 8, -1)
        output = weights @ v
        return output, weights.topk(8, -1), -torch.special.xlogy(weights, weights).sum(-1)

    def ours() -> object:
        seen = look(q4, k4, v4)
        return seen.output, seen.top(8), seen.entropy()

    theirs, mine, only = side_by_side([plain, ours, lambda: attend(q4, k4, v4)], rounds=5)
    print("\n| 4,096 tokens, 8 heads of 64 | plain, s | regard, s | times as fast |")
    print("|---|---|---|---|")
    print(f"| output, top(8) and entropy() | {theirs:.3f} | {mine:.3f} | {theirs / mine:.2f} |")
    print(f"| attend alone | | {only:.3f} | |")


def memory() -> None:
    """Peak memory above the inputs of the long cases, each in a process of its own."""
    print("\n| peak above the inputs | MiB |\n|---|---|")
    for name in MEMORY:
        done = subprocess.run(
            [sys.executable, __file__, "peak", name], capture_output=True, text=True, check=True
        )
        print(f"| {name} | {int(done.stdout) / 2**20:.0f} |")


def _look_at_65536() -> int:
    q, k, v = (torch.randn(1, 8, 65_536, 64) for _ in range(3))
    before = peak_bytes()
    seen = look(q, k, v, mask=causal)
    seen.top(8)
    seen.entropy()
    return before


def _window(n: int, backwards: bool) -> int:
    q, k, v = (torch.randn(1, 8, n, 64, requires_grad=backwards) for _ in range(3))
    before = peak_bytes()
    output = attend(q, k, v, mask=causal & window(256))
    if backwards:
        output.sum().backward()
    return before


MEMORY = {
    "look, top(8), entropy(): 65,536 tokens, 8 heads, causal": _look_at_65536,
    "causal & window(256), 16,384 tokens": lambda: _window(16_384, False),
    "causal & window(256), 65,536 tokens": lambda: _window(65_536, False),
    "causal & window(256), 16,384 tokens, and backwards": lambda: _window(16_384, True),
    "causal & window(256), 65,536 tokens, and backwards": lambda: _window(65_536, True),
}


def flex() -> None:
    """`flex_attention`, compiled, on the same window (it has no backward pass on the CPU)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n = 16_384
    q, k, v = (torch.randn(1, 8, n, 64) for _ in range(3))
    mask = create_block_mask(
        lambda b, h, i, j: (j <= i) & (i - j < 256), None, None, n, n, device="cpu"
    )
    compiled = torch.compile(flex_attention)
    with torch.no_grad():
        theirs, ours = side_by_side(
            [
                lambda: compiled(q, k, v, block_mask=mask),
                lambda: attend(q, k, v, mask=causal & window(256)),
            ],
            rounds=5,
        )
    print("\n| causal & window(256), 16,384 tokens | flex, s | regard, s | times as fast |")
    print(f"|---|---|---|---|\n| forwards | {theirs:.4f} | {ours:.4f} | {theirs / ours:.2f} |")


def models() -> None:
    """Whole models of transformers, with attention by regard and by torch."""
    import transformers

    import regard.hf  # noqa: F401

    bert = transformers.BertConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
    )
    llama = transformers.LlamaConfig(
        hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
        intermediate_size=2816, vocab_size=8000,
    )  # fmt: skip
    print("\n| model | sdpa, s | regard, s | times as fast |\n|---|---|---|---|")
    for name, kind, config, shape in (
        ("BERT 12 × 768, 8 × 128 tokens", transformers.BertModel, bert, (8, 128)),
        ("Llama 8 × 1,024, 512 tokens", transformers.LlamaModel, llama, (1, 512)),
    ):
        ids = torch.randint(10, 8000, shape)
        sides = []
        for attention in ("sdpa", "regard"):
            torch.manual_seed(0)
            model = kind._from_config(config, attn_implementation=attention).eval()
            sides.append(partial(model, input_ids=ids))
        with torch.no_grad():
            theirs, ours = side_by_side(sides, rounds=7)
        print(f"| {name} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} |")


def busy() -> None:
    """Medians while another process keeps one core busy."""
    print("\n| shape, one core busy | torch, ms | regard, ms | times as fast |\n|---|---|---|---|")
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for case in (Case(64, 8, 20, 64), Case(16, 8, 128, 64)):
            q, k, v = (torch.randn(case.b, case.h, case.n, case.d) for _ in range(3))
            took: dict[Callable[..., Any], list[float]] = {sdpa: [], attend: []}
            for _ in range(200):
                for way, found in took.items():
                    start = time.perf_counter()
                    way(q, k, v)
                    found.append(time.perf_counter() - start)
            theirs, ours = (statistics.median(found) * 1e3 for found in took.values())
            print(f"| {case} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} |")
    finally:
        other.kill()


def alone() -> None:
    """The same by the processor time of one thread, which other programs hardly disturb."""
    timing.clock = time.thread_time
    torch.set_num_threads(1)
    print("\nProcessor time of one thread.")
    shapes()
    layers()
    windowed()
    looking()


PARTS = {
    "shapes": shapes,
    "layers": layers,
    "window": windowed,
    "look": looking,
    "memory": memory,
    "flex": flex,
    "models": models,
    "busy": busy,
    "alone": alone,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(2)
    wanted = sys.argv[1:] or [part for part in PARTS if part != "alone"]
    if wanted[0] == "peak":
        print(-MEMORY[wanted[1]]() + peak_bytes())
    else:
        print(machine())
        for part in wanted:
            PARTS[part]()
