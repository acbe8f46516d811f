"""Random calls of attention, held to an independent definition in float64.

Tolerances come from the numbers of the call: a score may be off by its own rounding, eps · (4 + M),
where M bounds every score; so weights may be off by that share, outputs by it times the largest
value, gradients by it times the largest product on the way. Bits must agree between `attend`,
`look`, the kernel that `which` names, several threads and a forked process.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from fuzz.draw import Drawn, draw
from fuzz.oracle import Truth
from regard import attend, look
from regard.attention import which
from regard.errors import OptionError

SLACK = 8.0
"""How many roundings an error may amount to."""
LARGE = {torch.float64: 2.0**20, torch.float32: 2.0**10}
"""Up to such a log-sum-exp, its rounding is accepted; beyond, exact scores have exact gradients."""
KERNELS = ("auto", "auto", "auto", "native", "plain", "blocked", "fused", "reference")


class MissError(AssertionError):
    """A result that is not what it should be."""


def one(seed: int) -> list[str]:
    """Try the call of this seed; what it consisted of, or a `MissError`."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    call = draw(rng)
    kernel = rng.choice(KERNELS)
    try:
        attend(call.q, call.k, call.v, **call.options, kernel=kernel)
    except OptionError:  # which says why this kernel cannot do it
        kernel = "auto"
    kinds = [*call.kinds, f"kernel {kernel}"]
    chance = rng.random()
    if chance < 0.45:
        return [*kinds, _forward(call, kernel)]
    if chance < 0.75:
        return [*kinds, _gradients(call, kernel, rng)]
    if chance < 0.95:
        return [*kinds, _look(call, kernel, rng)]
    for share, name, check in (
        (0.965, "threads", _threads),
        (0.975, "not a number", _poisoned),
        (0.985, "vmap", _vmap),
        (0.995, "fork", _fork),
        (1.0, "compile", _compile),
    ):
        if chance < share:
            check(call, rng)
            return [*kinds, name]
    raise AssertionError


def _truth(call: Drawn) -> Truth:
    given = [x.detach().double() for x in (call.q, call.k, call.v, *call.parameters)]
    return call.truth(*given)


def _bound(call: Drawn) -> float:
    """M: the largest that a score may be, or a sum on the way to it."""
    limit = math.inf
    if call.exact and call.bias is None:
        limit = LARGE[torch.float64 if call.q.dtype == torch.float64 else torch.float32]
    q, k = (x.detach().double().norm(dim=-1).flatten() for x in (call.q, call.k))
    q_most, k_most = (float(x.max()) if x.numel() else 0.0 for x in (q, k))
    bound = q_most * k_most * abs(call.factor)
    if call.scored == "gaussian":
        bound = 2 * (q_most + k_most) ** 2
    elif call.scored == "cosine":
        bound = 1.0
    elif call.scored == "bilinear":
        bound *= float(torch.linalg.matrix_norm(call.score.weight.detach().double()).max())
    elif call.scored == "other":
        bound = (q_most + k_most) * call.q.shape[-1] ** 0.5
    if isinstance(call.bias, Tensor):
        finite = call.bias.detach().double()
        bound += (
            float(finite.masked_fill(finite.isinf(), 0.0).abs().amax()) if finite.numel() else 0
        )
    elif call.bias is not None:
        bound += max(call.q.shape[-2], call.k.shape[-2])
    return min(bound, limit)


def _share(call: Drawn) -> float:
    """How much a weight may be off, of itself."""
    work = torch.float64 if call.q.dtype == torch.float64 else torch.float32
    return SLACK * torch.finfo(work).eps * (4 + _bound(call))


def _rounded(call: Drawn) -> float:
    """The same for an output: half precision is rounded on the way and in the end."""
    half = call.q.dtype in (torch.bfloat16, torch.float16)
    return _share(call) + (SLACK * torch.finfo(call.q.dtype).eps if half else 0.0)


def _largest(x: Tensor) -> float:
    return float(x.detach().double().abs().max()) if x.numel() else 0.0


def _close(name: str, ours: Tensor, true: Tensor, most: float) -> None:
    """Raise unless the two differ by no more than this, NaN and infinities alike."""
    if ours.numel() != true.numel():
        raise MissError(f"{name} has shape {tuple(ours.shape)}, expected {tuple(true.shape)}")
    ours, true = ours.detach().double().reshape(true.shape), true.detach().double()
    same = (ours == true) | (ours.isnan() & true.isnan())
    error = (ours - true).abs().masked_fill(same, 0.0)
    if not bool((error <= most).all()):
        raise MissError(
            f"{name} is off by {float(error.nan_to_num(math.inf, math.inf).max()):.3g}, "
            f"at most {most:.3g} is right"
        )


def _same(name: str, one: Tensor, other: Tensor) -> None:
    if one.shape != other.shape or not bool(((one == other) | (one.isnan() & other.isnan())).all()):
        raise MissError(f"{name}: other bits")


def _forward(call: Drawn, kernel: str) -> str:
    truth = _truth(call)
    ours = attend(call.q, call.k, call.v, **call.options, kernel=kernel)
    _close("output", ours, truth.output, _rounded(call) * _largest(call.v))
    if kernel == "auto":
        said = which(call.q, call.k, call.v, **call.options)
        name = re.match(r"\w+", said)[0]  # type: ignore[index]
        named = attend(call.q, call.k, call.v, **call.options, kernel=name)
        _same(f"auto and {name}, which it says it is", ours, named)
    return "output"


def _gradients(call: Drawn, kernel: str, rng: random.Random) -> str:
    every = [call.q, call.k, call.v, *call.parameters]
    wanted = [x for x in every if rng.random() < 0.8] or [call.q]
    for x in every:
        x.requires_grad_(any(x is one for one in wanted))
    doubles = [x.detach().double().requires_grad_(x.requires_grad) for x in every]
    try:
        ours = attend(call.q, call.k, call.v, **call.options, kernel=kernel)
    except OptionError:  # it can do the call, and not its gradient
        ours = attend(call.q, call.k, call.v, **call.options)
    along = torch.randn(ours.shape).to(ours.dtype)
    truth = call.truth(*doubles)
    if not ours.requires_grad:
        return "gradients"
    found = torch.autograd.grad(ours, wanted, along, allow_unused=True)
    true = torch.autograd.grad(
        truth.output, [d for d in doubles if d.requires_grad],
        along.double().reshape(truth.output.shape), allow_unused=True,
    )  # fmt: skip
    _close("output", ours, truth.output, _rounded(call) * _largest(call.v))
    for x, one, other in zip(wanted, found, true, strict=True):
        name = "qkv"[place] if (place := _index(every, x)) < 3 else "a parameter"
        if one is None or other is None:
            if any(g is not None and _largest(g) > 0 for g in (one, other)):
                raise MissError(f"gradient of {name} is there only in one")
            continue
        most = _rounded(call) * _slope(call, truth, along, place)
        most += torch.finfo(x.dtype).eps * _largest(other)
        _close(f"gradient of {name}", one, other, most)
    return "gradients"


def _index(every: list[Tensor], x: Tensor) -> int:
    return next(i for i, one in enumerate(every) if one is x)


def _slope(call: Drawn, truth: Truth, along: Tensor, place: int) -> float:
    """The largest sum of products that a gradient consists of, cancellation left out."""
    received = _largest(truth.weights.detach().sum(-2)) * call.heads * math.prod(call.lead)
    up, value = _largest(along), _largest(call.v)
    if place == 2:
        return up * max(received, 1.0)
    inner = 2 * up * value * call.v.shape[-1] ** 0.5
    if place > 2 and isinstance(call.bias, Tensor) and place == 3:
        return inner * max(received, 1.0) * max(call.q.shape[-2], 1)
    ends = max(_largest(call.q), _largest(call.k), 1.0)
    steep = {"dot": abs(call.factor), "other": 1.0, "gaussian": 2.0}.get(call.scored, 1.0)
    if call.scored == "cosine":
        lengths = torch.cat([x.detach().double().norm(dim=-1).flatten() for x in (call.q, call.k)])
        steep = 2 / max(float(lengths[lengths > 0].min()) if bool((lengths > 0).any()) else 1, 1e-9)
        ends = 1.0
    if call.scored == "bilinear":
        steep = _largest(call.score.weight) * call.q.shape[-1] if place < 3 else ends
    many = 1.0 if place == 0 and math.prod(call.q.shape[:-3]) == math.prod(call.lead) else received
    many = received * call.q.shape[-2] if place > 2 else max(many, 1.0)
    return inner * steep * ends * many


def _look(call: Drawn, kernel: str, rng: random.Random) -> str:
    truth, share = _truth(call), _share(call)
    found = look(call.q, call.k, call.v, **call.options, kernel=kernel)
    _same(
        "look and attend",
        found.output,
        attend(call.q, call.k, call.v, **call.options, kernel=kernel),
    )
    finite = truth.scores.masked_fill(truth.scores.isinf(), 0.0)
    level = 2 * share + torch.finfo(found.logsumexp.dtype).eps * _largest(finite)
    _close("logsumexp", found.logsumexp, truth.logsumexp, level)
    _close("weights", found.weights(), truth.weights, share)
    _close("scores", found.scores(), truth.scores, level)
    lengths = call.whole(call.v.detach().double(), shared=True).norm(dim=-1)
    contributions = truth.weights * lengths.unsqueeze(-2)
    _close("contributions", found.contributions(), contributions, share * (1 + _largest(lengths)))
    share = share + level  # what follows is computed from the log-sum-exp
    received = truth.weights.sum(-2)
    _close("received", found.received(), received, share * (1 + call.q.shape[-2]))
    logs = truth.weights.log().masked_fill(truth.weights == 0, 0.0)
    most = share * (2 + 2 * math.log(max(call.k.shape[-2], 2)))
    _close("entropy", found.entropy(), -(truth.weights * logs).sum(-1), most)
    k = call.k.shape[-2]
    if k:
        n = rng.randint(1, min(k, 7))
        top, at = found.top(n)
        _close("top", top, truth.weights.topk(n, -1).values, share)
        there = truth.weights.gather(-1, at.reshape((*truth.weights.shape[:-1], n)).clamp(min=0))
        _close("top's places", torch.where(at.reshape(there.shape) < 0, 0.0, there), top, share)
    if call.q.shape[-2]:
        row = rng.randrange(call.q.shape[-2])
        _close("one row", found.weights(queries=row), truth.weights[..., row : row + 1, :], share)
    return "look"


def _threads(call: Drawn, rng: random.Random) -> None:
    alone = attend(call.q, call.k, call.v, **call.options)
    with ThreadPoolExecutor(4) as pool:
        many = [pool.submit(attend, call.q, call.k, call.v, **call.options) for _ in range(8)]
    for other in many:
        _same("another thread", other.result(), alone)


def _poisoned(call: Drawn, rng: random.Random) -> None:
    """A query that is not a number, or infinite, spoils its own rows and no other."""
    if not call.q.numel() or not call.k.numel() or not bool(call.seen.any(-1).all()):
        return
    q = call.q.clone()
    at = tuple(rng.randrange(size) for size in q.shape)
    q[at] = rng.choice((math.nan, math.inf, -math.inf)) if call.scored == "dot" else math.nan
    call.q = q
    truth = _truth(call)
    ours = attend(call.q, call.k, call.v, **call.options)
    if not torch.equal(ours.isnan().reshape(truth.output.shape), truth.output.isnan()):
        raise MissError("NaN at other places than it should be")


def _vmap(call: Drawn, rng: random.Random) -> None:
    if call.q.dim() != 4 or not call.q.shape[0] == call.k.shape[0] == call.v.shape[0]:
        return
    bare = dict(call.options, mask=None, bias=None)
    call.mask = call.bias = None
    call.seen = torch.ones(call.q.shape[-2], call.k.shape[-2], dtype=torch.bool)
    if isinstance(call.score, torch.nn.Module) or not call.q.numel() or not call.k.numel():
        return
    ours = torch.func.vmap(lambda q, k, v: attend(q[None], k[None], v[None], **bare)[0])(
        call.q, call.k, call.v
    )
    _close("output under vmap", ours, _truth(call).output, _rounded(call) * _largest(call.v))


def _fork(call: Drawn, rng: random.Random) -> None:
    """The same bits in a child process."""
    here = attend(call.q, call.k, call.v, **call.options)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            there = attend(call.q, call.k, call.v, **call.options)
            same = torch.equal(there.nan_to_num(123.0), here.nan_to_num(123.0))
            os.write(writer, b"1" if same else b"0")
        finally:
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 1)
    os.close(reader)
    os.waitpid(child, 0)
    if said != b"1":
        raise MissError("other bits in a forked process")


def _compile(call: Drawn, rng: random.Random) -> None:
    """Traced by dynamo, and run without a compiler, which takes a second rather than ten."""
    if not call.q.numel() or not call.k.numel():
        return
    torch._logging.set_logs(all=logging.ERROR)
    torch._dynamo.reset()

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return attend(q, k, v, **call.options)

    ours = torch.compile(plain, backend="eager", dynamic=False)(call.q, call.k, call.v)
    _close("output when compiled", ours, _truth(call).output, _rounded(call) * _largest(call.v))
