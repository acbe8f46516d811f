"""How much of transformers is seen and cut: ``python benchmarks/coverage.py [--only NAME] [-v]``.

Every model class that `AutoModel` and its siblings know is built from its configuration, made tiny
by shrinking whatever the configuration has of sizes, with weights drawn large enough that attention
is far from uniform. What cannot be built or run on plain inputs is counted and left out. For each
model, with its default and with eager attention: whether watching leaves every output as it is, bit
for bit; whether attention is seen; whether the weights that the model itself reports are those of
the looks; whether a cut link has weight 0; and whether watching works under bfloat16 autocast.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import regard
from regard.errors import RegardError

B, N = 2, 8
SMALL: dict[str, int] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "emb_dim": 32,
    "embedding_size": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "d_kv": 8, "d_head": 8, "intermediate_size": 48, "n_inner": 48, "d_ff": 48,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ffn_dim": 48, "dim_ff": 48, "hidden_dim": 48,
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "image_size": 16,
    "patch_size": 4, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "projection_dim": 16,
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "sliding_window": 4, "word_embed_proj_dim": 32, "d_embed": 32, "type_vocab_size": 2,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99, "num_kv_shared_layers": 1,
    "ffn_hidden_size": 48, "kv_channels": 8, "d_inner": 48, "emb_pdrop": 0, "attention_window": 4,
    "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 64, "hidden_channels": 32,
    "bottleneck_size": 8, "local_attention": 4, "max_seq_len": 64, "window_size": 4,
}  # fmt: skip
"""Sizes by the names that configurations use."""
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
STD = 0.15
"""Of the weights: far larger than models are initialised with."""
SECONDS = 40
"""After so long a model is given up."""


def shrink(config: Any, depth: int = 0) -> Any:
    """The configuration with small sizes, in all its parts."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig) and depth < 3:
            shrink(value, depth + 1)
        elif name in SMALL and isinstance(value, int) and not isinstance(value, bool):
            if not (name == "sliding_window" and value is None):
                with contextlib.suppress(Exception):
                    setattr(config, name, min(value, SMALL[name]) if value > 0 else value)
        elif name in SPECIAL and value is not None:
            setattr(config, name, SPECIAL[name])
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            kinds = list(dict.fromkeys(value))
            setattr(config, name, (kinds * 2)[:2] if len(kinds) < 3 else kinds[:2])
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 0
    return config


def build(kind: type[Any], config_class: type[Any], attention: str | None) -> Any:
    """A tiny model with large random weights, the same ones each time."""
    config = shrink(config_class())
    torch.manual_seed(0)
    options = {} if attention is None else {"attn_implementation": attention}
    model = kind._from_config(copy.deepcopy(config), **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.dim() > 1:
                parameter.normal_(std=STD * (32 / parameter.shape[-1]) ** 0.5 * 2)
    if sum(x.numel() for x in model.parameters()) > 4e7:
        raise ValueError("not small")
    return model


def inputs_for(model: Any) -> Iterator[dict[str, Tensor]]:
    """Plain inputs that a model may take, likeliest first."""
    torch.manual_seed(1)
    ids = torch.randint(5, 90, (B, N))
    main = model.main_input_name
    config = model.config
    size = getattr(config, "image_size", None) or 16
    size = size[0] if isinstance(size, list | tuple) else size
    channels = getattr(config, "num_channels", 3)
    if main == "input_ids":
        mask = torch.ones(B, N, dtype=torch.long)
        yield {"input_ids": ids, "attention_mask": mask}
        yield {"input_ids": ids, "decoder_input_ids": ids.flip(1)}
        yield {"input_ids": ids}
        yield {"input_ids": ids, "pixel_values": torch.randn(B, channels, size, size)}
    elif main == "pixel_values":
        yield {"pixel_values": torch.randn(B, channels, size, size)}
        yield {"pixel_values": torch.randn(1, channels, 64, 64)}
        yield {"pixel_values": torch.randn(B, 4, channels, size, size)}
    else:
        mels = getattr(config, "num_mel_bins", 8)
        yield {main: torch.randn(B, 800)}
        yield {main: torch.randn(B, mels, 16), "decoder_input_ids": ids}
        yield {main: torch.randn(B, 16, mels)}


def tensors(result: object) -> list[Tensor]:
    """All tensors in a result."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    return [x for one in result for x in tensors(one)] if isinstance(result, list | tuple) else []


def same(one: object, other: object) -> bool:
    """Whether two results are the same, bit for bit."""
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return bool(pairs) and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def reported(model: Any, given: dict[str, Tensor]) -> list[Tensor]:
    """The weights that an eager model itself returns."""
    with torch.no_grad(), contextlib.suppress(Exception):
        result = model(**given, output_attentions=True)
        found = [
            x for name, value in result.items() if "attentions" in name for x in tensors(value)
        ]
        return [x for x in found if x.dim() == 4]
    return []


def check(kind: type[Any], config_class: type[Any], attention: str | None) -> Counter[str]:
    """What can be said of one model, as counts of what is true."""
    model = build(kind, config_class, attention)
    plain, given = None, {}
    for candidate in inputs_for(model):
        with torch.no_grad(), contextlib.suppress(Exception):
            torch.manual_seed(2)
            plain, given = model(**candidate), candidate
            break
    if plain is None:
        raise ValueError("no inputs found")
    found: Counter[str] = Counter(ran=1)
    torch.manual_seed(2)
    try:
        with torch.no_grad(), regard.watch(model) as seen:
            watched = model(**given)
    except RegardError as error:
        kinds = {type(x).__name__.lower() for x in model.modules()}
        attends = any(re.search("atten|attn", kind) for kind in kinds)
        unseen = "ran, but made no call" in str(error)
        found[("unseen" if attends else "no attention") if unseen else "raised"] += 1
        return found
    found["seen"] = 1
    found["missed"] = int(bool(seen.missed))
    found["same bits"] = int(same(plain, watched))
    looks = [look for name in seen for look in seen.calls(name)]
    theirs = reported(model if attention == "eager" else build(kind, config_class, "eager"), given)
    ours = [look.weights() for look in looks]
    if theirs:
        found["reports"] = 1
        found["same weights"] = int(
            all(any(_close(w, o) for o in ours if o.shape == w.shape) for w in theirs)
        )
    found["cut"] = int(_cuts(model, given, seen))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), contextlib.suppress(Exception):
        torch.manual_seed(2)
        low = model(**given)
        found["autocast"] = 1
        with contextlib.suppress(RegardError, RuntimeError), regard.watch(model) as seen:
            torch.manual_seed(2)
            again = model(**given)
            found["autocast same"] = int(same(low, again))
    return found


def _close(weights: Tensor, ours: Tensor) -> bool:
    there = weights.sum(-1) > 0.5  # rows that look at anything
    return bool((weights - ours).nan_to_num().abs()[there].amax() < 1e-5) if there.any() else True


def _cuts(model: nn.Module, given: dict[str, Tensor], seen: regard.lens.Seen) -> bool:
    """Whether a link of each kind that has weight can be cut, in every module."""
    for kind in {seen.kind(name) for name in seen}:
        first = next(name for name in seen if seen.kind(name) == kind)
        weights = seen.calls(first)[0].weights().flatten(0, -3).amax(0)
        place = int(weights.argmax())
        query, key = divmod(place, weights.shape[-1])
        with contextlib.suppress(RegardError):
            links = regard.cut(model, [(query, key)], kind=kind)
            with torch.no_grad(), links, regard.watch(model) as cut:
                torch.manual_seed(2)
                model(**given)
            looks = [cut[name] for name in cut if cut.kind(name) == kind]
            if all(
                not look.weights()[..., query, key].any()
                for look in looks
                if look.weights().shape[-2] > query and look.weights().shape[-1] > key
            ):
                continue
        return False
    return True


def architectures() -> list[tuple[type[Any], type[Any]]]:
    """Every configuration that `AutoModel` knows, and its models; some are listed but not there."""
    found = []
    for config in transformers.AutoModel._model_mapping:
        with contextlib.suppress(Exception):
            models = transformers.AutoModel._model_mapping[config]
            found += [(config, one) for one in (models if isinstance(models, tuple) else (models,))]
    return found


class _LateError(Exception):
    pass


def _late(*_: object) -> None:
    raise _LateError


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="part of the name of a configuration")
    parser.add_argument("--limit", type=int, help="no more than so many architectures")
    parser.add_argument("-v", action="store_true", help="a line for each model")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, _late)
    total: Counter[str] = Counter()
    begin = time.perf_counter()
    pairs = architectures()
    for config, kind in pairs[: options.limit]:
        if options.only and options.only.lower() not in config.__name__.lower():
            continue
        ran = False
        for attention in (None, "eager"):
            signal.alarm(SECONDS)
            try:
                found = check(kind, config, attention)
            except (_LateError, Exception) as error:  # whatever a model may raise
                found = Counter({"not built": 1})
                if options.v:
                    print(f"{kind.__name__:40} {attention or 'default':8} {str(error)[:90]!r}")
            finally:
                signal.alarm(0)
            ran = ran or bool(found["ran"])
            total += found
            if options.v and found["ran"]:
                print(f"{kind.__name__:40} {attention or 'default':8} {dict(found)}", flush=True)
        total["architectures"] += int(ran)
    print(f"\n{total['architectures']} architectures of transformers {transformers.__version__}, ")
    print(f"default and eager attention, {time.perf_counter() - begin:.0f} s\n")
    print("| | of | |\n|---|---|---|")
    attends = total["seen"] + total["unseen"]
    for name, count, of in (
        ("watched: same bits", total["same bits"], total["seen"]),
        ("seen, of those with attention", total["seen"], attends),
        ("of these, a module named in `missed`", total["missed"], total["seen"]),
        ("weights that the model reports within 1e-5", total["same weights"], total["reports"]),
        ("cut right", total["cut"], total["seen"]),
        ("bfloat16 autocast: same bits", total["autocast same"], total["autocast"]),
        ("watching raised", total["raised"], total["ran"]),
        ("not built or not run on plain inputs", total["not built"], len(pairs) * 2),
    ):
        print(f"| {name} | {count} | {of} |")


if __name__ == "__main__":
    main()
