"""Every case of the ONNX Attention operator's own tests, with no mask written out by us."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import AttributeProto, NodeProto
from onnx.backend.test.case import node
from torch import Tensor

from regard import causal, look, padding, window
from regard.attention import Scaled, Softcap
from regard.attention.masks import Causal, Mask, Window

Case = tuple[NodeProto, list[np.ndarray], list[np.ndarray]]


def collected() -> dict[str, Case]:
    """What the operator's test module hands over, by name."""
    found: dict[str, Case] = {}
    plain = node.expect
    node.expect = lambda n, inputs, outputs, name, **_: found.update({name: (n, inputs, outputs)})
    try:
        from onnx.backend.test.case.node import attention  # noqa: F401 (hands over its cases)
    finally:
        node.expect = plain
    return found


CASES = collected()


def attributes(given: NodeProto) -> dict[str, Any]:
    kinds = {AttributeProto.FLOAT: "f", AttributeProto.INT: "i"}
    return {one.name: getattr(one, kinds[one.type]) for one in given.attribute}


def by_name(names: Any, arrays: list[np.ndarray]) -> dict[str, Tensor]:
    filled = iter(arrays)
    return {name: tensor(next(filled)) for name in names if name}


def tensor(array: np.ndarray) -> Tensor:
    if array.dtype.name == "bfloat16":  # which numpy lends from elsewhere
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def positions(options: dict[str, Any], x: dict[str, Tensor], q: int) -> Mask | None:
    """Which keys a query sees by its position: offsets are per entry, past keys or none."""
    lengths, past = x.get("nonpad_kv_seqlen"), x.get("past_key")
    left, right = (options.get(f"{side}_window_size", -1) for side in ("left", "right"))
    before, after = (10**6 if size < 0 else size for size in (left, right))
    masks: list[Mask] = []
    if lengths is not None:
        masks.append(padding(lengths))
        offsets = lengths - q
    else:
        offsets = torch.tensor([0 if past is None else past.shape[2]])
    if options.get("is_causal"):
        masks.append(causal.at(offsets))
    if left >= 0 or right >= 0:
        masks.append(window(before=before, after=after).at(offsets))
    whole = None
    for mask in masks:
        whole = mask if whole is None else whole & mask
    return whole


def terms(x: dict[str, Tensor], keys: int) -> tuple[Tensor | None, Tensor | None]:
    """The operator's attn_mask as a mask or a bias; keys beyond its length are hidden."""
    given = x.get("attn_mask")
    if given is None:
        return None, None
    missing, boolean = keys - given.shape[-1], given.dtype == torch.bool
    given = torch.nn.functional.pad(given, (0, missing), value=False if boolean else -torch.inf)
    given = given if given.dim() > 1 else given.unsqueeze(0)
    return (given, None) if boolean else (None, given)


def heads(x: Tensor, count: int | None) -> Tensor:
    return x if x.dim() == 4 else x.unflatten(-1, (count, -1)).transpose(1, 2)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    given, inputs, outputs = CASES[name]
    options, x = attributes(given), by_name(given.input, inputs)
    wanted = by_name(given.output, outputs)
    q = heads(x["Q"], options.get("q_num_heads"))
    k, v = (heads(x[key], options.get("kv_num_heads")) for key in "KV")
    if "past_key" in x:
        k, v = torch.cat([x["past_key"], k], 2), torch.cat([x["past_value"], v], 2)
    mask, (seen, bias) = positions(options, x, q.shape[2]), terms(x, k.shape[2])
    if seen is not None:
        mask = seen if mask is None else mask & seen
    scale = options.get("scale", q.shape[-1] ** -0.5)
    cap = options.get("softcap", 0.0)
    score = Softcap(cap, scale) if cap else Scaled(scale)
    found = look(q, k, v, mask=mask, bias=bias, score=score)
    near = {
        "rtol": 1e-3 if q.dtype != torch.bfloat16 else 2e-2,
        "atol": 1e-5 if q.dtype == torch.float32 else 2e-2,
    }
    output = found.output if x["Q"].dim() == 4 else found.output.transpose(1, 2).flatten(2)
    torch.testing.assert_close(output, wanted["Y"], **near)
    if "qk_matmul_output" in wanted:
        mode = options.get("qk_matmul_output_mode", 0)
        raw = look(q, k, v, score=Scaled(scale) if mode == 0 else score)
        scores = (raw.scores(), raw.scores(), found.scores(), found.weights())[mode]
        torch.testing.assert_close(scores.to(q.dtype), wanted["qk_matmul_output"], **near)
    for key, value in (("present_key", k), ("present_value", v)):
        if key in wanted:
            assert torch.equal(value, wanted[key])


def test_masks_know_offsets() -> None:
    offsets = torch.tensor([2, 0])
    for mask in (causal.at(offsets), window(before=1, after=1).at(offsets)):
        whole = mask.tensor(3, 6)
        for entry, offset in enumerate(offsets.tolist()):
            plain = Causal(from_start=True) if "causal" in repr(mask) else Window(1, 1)
            shifted = plain.tensor(3 + offset, 6) if "causal" in repr(mask) else None
            wanted = (
                shifted[offset:] if shifted is not None
                else (torch.arange(6) - torch.arange(3)[:, None] - offset).abs() <= 1
            )  # fmt: skip
            assert torch.equal(whole[entry, 0], wanted)
        edges = np.array([0, 1, 3]), np.array([0, 2, 4, 6])
        cover = mask.cover(*edges, 3, 6)
        for i in range(2):
            for j in range(3):
                part = whole[..., edges[0][i] : edges[0][i + 1], edges[1][j] : edges[1][j + 1]]
                if cover[i, j] != 1:
                    assert bool(part.all() if cover[i, j] == 2 else not part.any())
