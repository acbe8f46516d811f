"""Small models of other libraries, for ``benchmarks/coverage.py --libraries``.

Needs what ``benchmarks/libraries.txt`` lists, installed with ``pip install --no-deps -r`` so that
torch stays the one that is there. Every model has random weights and small sizes; those that are
data alone are in ``libraries.toml``.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LIBRARIES = (
    "timm", "diffusers", "open_clip", "torchvision", "sentence_transformers", "x_transformers",
    "peft", "vit_pytorch",
)  # fmt: skip

DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


class Case(NamedTuple):
    """One model: how it is built and what it is called with."""

    library: str
    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any] | tuple[Any, ...]]


def declare_torchvision() -> None:
    """Declare operators without which torchvision's CUDA build cannot be imported on a CPU."""
    if not hasattr(torch.ops.torchvision, "nms"):
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )


def image(size: int = 32, batch: int = 2) -> Tensor:
    """Random pictures."""
    return torch.randn(batch, 3, size, size)


def tokens(length: int = 8, batch: int = 2, most: int = 90) -> Tensor:
    """Random tokens."""
    return torch.randint(5, most, (batch, length))


def timm_cases() -> Iterator[Case]:
    """Vision models of timm."""
    timm = importlib.import_module("timm")
    for name, (size, options) in DATA["timm"].items():
        yield Case(
            "timm",
            name,
            lambda name=name, options=options: timm.create_model(name, num_classes=5, **options),
            lambda size=size: (image(size),),
        )


def torchvision_cases() -> Iterator[Case]:
    """Vision models of torchvision."""
    models = importlib.import_module("torchvision.models")
    swin = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}
    video = {"patch_size": [2, 4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}

    def mvit() -> nn.Module:
        part = importlib.import_module("torchvision.models.video.mvit")
        block = part.MSBlockConfig(2, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2])
        last = part.MSBlockConfig(4, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1])
        made: nn.Module = part.MViT((32, 32), 4, [block, last], True, True, True, True)
        return made

    for name, build, given in (
        (
            "VisionTransformer",
            lambda: models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5),
            lambda: (image(32),),
        ),
        (
            "SwinTransformer",
            lambda: models.SwinTransformer(**swin, window_size=[4, 4], num_classes=5),
            lambda: (image(32),),
        ),
        (
            "SwinTransformer v2",
            lambda: models.SwinTransformer(
                **swin, window_size=[4, 4], num_classes=5,
                block=models.swin_transformer.SwinTransformerBlockV2,
                downsample_layer=models.swin_transformer.PatchMergingV2,
            ),
            lambda: (image(32),),
        ),
        (
            "SwinTransformer3d",
            lambda: models.video.SwinTransformer3d(**video, window_size=[2, 4, 4], num_classes=5),
            lambda: (torch.randn(1, 3, 4, 32, 32),),
        ),
        ("MViT", mvit, lambda: (torch.randn(1, 3, 4, 32, 32),)),
        (
            "MaxVit",
            lambda: models.MaxVit((64, 64), 16, 2, [16, 32], [1, 1], 8, 0.0, num_classes=5),
            lambda: (image(64),),
        ),
        ("vit_b_32", lambda: models.vit_b_32(num_classes=5), lambda: (image(224, 1),)),
        ("swin_t", lambda: models.swin_t(num_classes=5), lambda: (image(64, 1),)),
        ("swin_v2_t", lambda: models.swin_v2_t(num_classes=5), lambda: (image(64, 1),)),
    ):  # fmt: skip
        yield Case("torchvision", name, build, given)


def open_clip_cases() -> Iterator[Case]:
    """Pairs of a text model and a picture model of open_clip."""
    model = importlib.import_module("open_clip.model")
    coca = importlib.import_module("open_clip.coca_model")
    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 8, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2}
    both = lambda: (image(32), tokens())  # noqa: E731

    def clip(kind: str, vision: dict[str, Any], text: dict[str, Any]) -> Callable[[], nn.Module]:
        def build() -> nn.Module:
            made: nn.Module = getattr(model, kind)(
                16, model.CLIPVisionCfg(**vision), model.CLIPTextCfg(**text)
            )
            return made

        return build

    resnet = {"image_size": 64, "layers": (1, 1, 1, 1), "width": 8}
    pooled = {"attentional_pool": True, "attn_pooler_queries": 8, "attn_pooler_heads": 4}
    timm = {"timm_model_name": "vit_tiny_patch16_224", "image_size": 224, "timm_pool": ""}
    free = {"no_causal_mask": True, "pool_type": "last"}

    def captioner() -> nn.Module:
        made: nn.Module = coca.CoCa(
            32,
            coca.MultimodalCfg(**text, dim_head=8),
            model.CLIPTextCfg(**text, embed_cls=True, output_tokens=True),
            model.CLIPVisionCfg(**vision, **pooled, output_tokens=True),
        )
        return made

    for name, build, given in (
        ("CLIP", clip("CLIP", vision, text), both),
        ("CLIP, layer scale", clip("CLIP", vision | {"ls_init_value": 0.1}, text), both),
        ("CLIP, pooled by attention", clip("CLIP", vision | pooled, text), both),
        ("CLIP, average", clip("CLIP", vision | {"pool_type": "avg"}, text), both),
        ("CustomTextCLIP", clip("CustomTextCLIP", vision, text), both),
        ("CustomTextCLIP, not causal", clip("CustomTextCLIP", vision, text | free), both),
        ("CLIP, ResNet", clip("CLIP", resnet, text), lambda: (image(64), tokens())),
        ("CLIP, timm", clip("CLIP", timm, text), lambda: (image(224, 1), tokens(8, 1))),
        ("CoCa", captioner, both),
    ):
        yield Case("open_clip", name, build, given)


def _bert(**options: Any) -> Any:
    transformers = importlib.import_module("transformers")
    return transformers.BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64, **options,
    )  # fmt: skip


def sentence_transformers_cases() -> Iterator[Case]:
    """Sentence encoders: a model of transformers, and what follows it."""
    st = importlib.import_module("sentence_transformers")
    transformers = importlib.import_module("transformers")
    modules = importlib.import_module("sentence_transformers.models")

    class Encoder(nn.Module):
        """As `sentence_transformers.models.Transformer`, without a folder to be loaded from."""

        def __init__(self, config: Any) -> None:
            super().__init__()
            self.auto_model = transformers.AutoModel.from_config(config)

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            given = {name: features[name] for name in ("input_ids", "attention_mask")}
            return features | {"token_embeddings": self.auto_model(**given)[0]}

    def build(config: Any, *more: nn.Module) -> Callable[[], nn.Module]:
        def made() -> nn.Module:
            model: nn.Module = st.SentenceTransformer(
                modules=[Encoder(config()), modules.Pooling(32), *more], device="cpu"
            )
            return model

        return made

    def given() -> tuple[Any, ...]:
        mask = torch.ones(2, 8, dtype=torch.long)
        mask[1, 5:] = 0
        return ({"input_ids": tokens(), "attention_mask": mask},)

    mpnet = transformers.MPNetConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48,
    )  # fmt: skip
    distil = transformers.DistilBertConfig(
        vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=48
    )
    modern = transformers.ModernBertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=3,
        sep_token_id=4,
    )  # fmt: skip
    for name, model in (
        ("BERT", build(_bert)),
        ("BERT and a dense layer", build(_bert, modules.Dense(32, 16))),
        ("MPNet", build(lambda: mpnet)),
        ("DistilBERT", build(lambda: distil, modules.Normalize())),
        ("ModernBERT", build(lambda: modern)),
    ):
        yield Case("sentence_transformers", name, model, given)


def peft_cases() -> Iterator[Case]:
    """Adapters of PEFT around models of transformers."""
    peft = importlib.import_module("peft")
    transformers = importlib.import_module("transformers")
    llama = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48,
    )  # fmt: skip
    t5 = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=1,
    )  # fmt: skip

    def build(kind: str, config: Any, adapter: Any) -> Callable[[], nn.Module]:
        def made() -> nn.Module:
            model = getattr(transformers, kind)._from_config(config)
            wrapped: nn.Module = peft.get_peft_model(model, adapter)
            return wrapped

        return made

    text = lambda: {"input_ids": tokens()}  # noqa: E731
    pair = lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(6)}  # noqa: E731
    qv, kv = ["q_proj", "v_proj"], ["k_proj", "v_proj", "down_proj"]
    virtual = {"num_virtual_tokens": 3}
    for name, adapter, options in (
        ("LoRA", "LoraConfig", {"target_modules": qv}),
        ("DoRA", "LoraConfig", {"target_modules": qv, "use_dora": True}),
        ("IA3", "IA3Config", {"target_modules": kv, "feedforward_modules": kv[-1:]}),
        ("LoHa", "LoHaConfig", {"target_modules": qv}),
        ("OFT", "OFTConfig", {"target_modules": qv, "oft_block_size": 8}),
        ("VeRA", "VeraConfig", {"target_modules": qv[:1]}),
        ("prefix tuning", "PrefixTuningConfig", virtual),
        ("prompt tuning", "PromptTuningConfig", virtual),
        ("P-tuning", "PromptEncoderConfig", virtual | {"encoder_hidden_size": 16}),
        ("adaption prompt", "AdaptionPromptConfig", {"adapter_len": 3, "adapter_layers": 1}),
    ):
        made = getattr(peft, adapter)(task_type="CAUSAL_LM", **options)
        yield Case("peft", f"{name}, Llama", build("LlamaForCausalLM", llama, made), text)
    for name, adapter, options in (
        ("LoRA", "LoraConfig", {"target_modules": ["q", "v"]}),
        ("prefix tuning", "PrefixTuningConfig", virtual),
    ):
        made = getattr(peft, adapter)(task_type="SEQ_2_SEQ_LM", **options)
        yield Case("peft", f"{name}, T5", build("T5ForConditionalGeneration", t5, made), pair)
    made = peft.LoraConfig(task_type="SEQ_CLS")
    bert = build("BertForSequenceClassification", _bert(), made)
    yield Case("peft", "LoRA, BERT", bert, text)


def x_transformers_cases() -> Iterator[Case]:
    """The options of x-transformers."""
    x = importlib.import_module("x_transformers")

    def build(kind: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
        def made() -> nn.Module:
            layers = getattr(x, kind)(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
            model: nn.Module = x.TransformerWrapper(
                num_tokens=99, max_seq_len=16, attn_layers=layers
            )
            return model

        return made

    text = lambda: (tokens(),)  # noqa: E731
    for kind, options in (
        ("Encoder", {}),
        ("Decoder", {}),
        ("Encoder", {"attn_flash": True}),
        ("Decoder", {"attn_flash": True}),
        ("Decoder", {"attn_flash": True, "alibi_pos_bias": True}),
        ("Decoder", {"attn_post_talking_heads": True}),
        ("Decoder", {"attn_pre_talking_heads": True}),
        ("Decoder", {"attn_num_mem_kv": 3}),
        ("Decoder", {"attn_kv_heads": 2}),
        ("Decoder", {"attn_one_kv_head": True}),
        ("Decoder", {"attn_sparse_topk": 3}),
        ("Decoder", {"attn_qk_norm": True}),
        ("Decoder", {"attn_softclamp_logits": True}),
        ("Decoder", {"attn_gate_values": True}),
        ("Decoder", {"attn_head_scale": True}),
        ("Decoder", {"attn_on_attn": True}),
        ("Decoder", {"alibi_pos_bias": True}),
        ("Decoder", {"rel_pos_bias": True}),
        ("Decoder", {"dynamic_pos_bias": True}),
        ("Decoder", {"rotary_pos_emb": True}),
        ("Decoder", {"rotary_xpos": True}),
        ("Decoder", {"attn_add_zero_kv": True}),
        ("Decoder", {"attn_data_dependent_alibi": True}),
        ("Decoder", {"sandwich_norm": True, "macaron": True}),
        ("Encoder", {"attn_value_rmsnorm": True}),
    ):
        name = f"{kind} {', '.join(options)}".strip()
        yield Case("x_transformers", name, build(kind, options), text)

    def pair() -> nn.Module:
        side = {"num_tokens": 99, "depth": 2, "heads": 4, "max_seq_len": 16, "attn_dim_head": 8}
        both = {f"{part}_{name}": side[name] for part in ("enc", "dec") for name in side}
        model: nn.Module = x.XTransformer(dim=32, **both)
        return model

    yield Case("x_transformers", "XTransformer", pair, lambda: (tokens(), tokens(6)))
    yield Case(
        "x_transformers",
        "ViTransformerWrapper",
        lambda: x.ViTransformerWrapper(
            image_size=32,
            patch_size=8,
            num_classes=5,
            attn_layers=x.Encoder(dim=32, depth=2, heads=4, attn_dim_head=8),
        ),
        lambda: (image(),),
    )


def vit_pytorch_cases() -> Iterator[Case]:
    """Vision models of vit-pytorch."""
    given = {
        "na_vit": lambda: ([image(32, 1)[0], image(16, 1)[0]],),
        "vivit": lambda: (torch.randn(1, 3, 4, 32, 32),),
    }
    for row in DATA["vit_pytorch"]:
        name = row["name"]

        def build(row: dict[str, Any] = row) -> nn.Module:
            module = importlib.import_module(f"vit_pytorch.{row['name']}")
            made: nn.Module = getattr(module, row["class"])(**_plain(row["options"]))
            return made

        inputs = given.get(name, lambda size=row["size"]: (image(size),))
        yield Case("vit_pytorch", name, build, inputs)


def diffusers_cases() -> Iterator[Case]:
    """Denoisers and autoencoders of diffusers."""
    diffusers = importlib.import_module("diffusers")
    for row in DATA["diffusers"]:
        yield Case(
            "diffusers",
            row["name"],
            lambda row=row: getattr(diffusers, row["name"])(**_plain(row["options"])),
            lambda row=row: {name: _tensor(value) for name, value in row["inputs"].items()},
        )


def _plain(value: Any) -> Any:
    """What TOML cannot say: tuples and None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return tuple(_plain(one) for one in value)
    return None if value == "none" else value


def _tensor(value: Any) -> Any:
    """A tensor from words such as ``"normal float32 2 4"``: what is in it, its dtype, its sizes."""
    if isinstance(value, dict):
        return {name: _tensor(one) for name, one in value.items()}
    if isinstance(value, list) and isinstance(value[0], str):
        return [_tensor(one) for one in value]
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, str) or value == "none":
        return _plain(value)
    kind, dtype, *rest = value.split()
    if kind == "values":
        return torch.tensor([float(one) for one in rest], dtype=getattr(torch, dtype))
    sizes = [int(one) for one in rest]
    made = {"normal": torch.randn, "ones": torch.ones, "zeros": torch.zeros}[kind](*sizes)
    return made.to(getattr(torch, dtype))


def cases() -> Iterator[Case]:
    """All cases; raises if a library is not installed."""
    declare_torchvision()
    for library in LIBRARIES:
        yield from globals()[f"{library}_cases"]()
