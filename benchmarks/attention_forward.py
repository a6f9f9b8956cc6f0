"""Attention as people write it, compiled by us with the default config, against torch's best.

``python -m benchmarks.attention_forward`` on a GPU: one line for each kernel and shape, with the
SDPA backend that won, times in turns with a cold L2 (median, and the middle half of the samples),
and the error of both against fp64 on a part of the heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import tilesmith
import tilesmith.language as hl
from benchmarks.product_cases import DEVICE
from examples.attention import LOG2_E, attention, causal_attention, online_softmax_step
from examples.fp8_attention import FP8, fp8_attention, reference

ROUNDS, RUNS = 8, 3
FLUSHED_BYTES = 3 << 30
CHECKED_HEADS = 2
BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
SHAPES = ((4, 32, 4096, 128), (1, 32, 16384, 128), (8, 32, 4096, 64), (4, 16, 4096, 256))
FP8_SHAPES = tuple(shape for shape in SHAPES if shape[0] > 1)
WINDOW, CAP = 1024, 30.0


@tilesmith.kernel(static_shapes=True)
def rounded_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores rounded by ``torch.bmm``, and scaled after their maximum was found."""
    heads, m, d = q.size()
    n, head_dim = k.size(1), hl.specialize(d)
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([heads, m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(queries, keys.transpose(1, 2))
            new_peak = torch.maximum(peak, torch.amax(scores, -1) * scale)
            powers = torch.exp2(scores * scale - new_peak[:, :, None])
            shrink = torch.exp2(peak - new_peak)
            total = total * shrink + torch.sum(powers, -1)
            values = v[tile_b, tile_n, :]
            acc = torch.baddbmm(acc * shrink[:, :, None], powers.to(v.dtype), values)
            peak = new_peak
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def sliding_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Each query sees the ``WINDOW`` keys up to its own position."""
    heads, m, d = q.size()
    head_dim = hl.specialize(d)
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([heads, m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(max(tile_m.begin - WINDOW, 0), tile_m.end):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(queries, keys.transpose(1, 2), torch.float32) * scale
            behind = tile_m.index[:, None] - tile_n.index[None, :]
            is_seen = (behind >= 0) & (behind < WINDOW)
            scores = torch.where(is_seen[None, :, :], scores, -1.0e30)
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def soft_cap(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores bent by a hyperbolic tangent."""
    heads, m, d = q.size()
    n, head_dim = k.size(1), hl.specialize(d)
    out = torch.empty_like(q)
    scale = 1.0 / math.sqrt(head_dim) / CAP
    for tile_b, tile_m in hl.tile([heads, m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(queries, keys.transpose(1, 2), torch.float32) * scale
            scores = torch.tanh(scores) * (CAP * LOG2_E)
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Mask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Form(NamedTuple):
    """A kernel and what it computes."""

    name: str
    kernel: Any
    is_causal: bool = False
    has_flat_heads: bool = True
    """Whether it takes one axis of heads instead of batch and heads."""
    bend: Callable[[torch.Tensor], torch.Tensor] | None = None
    window: int = 0


FORMS = (
    Form("plain", attention, has_flat_heads=False),
    Form("causal", causal_attention, is_causal=True, has_flat_heads=False),
    Form("bf16 scores, scale after", rounded_scores),
    Form("window 1024", sliding_window, is_causal=True, window=WINDOW),
    Form("soft cap", soft_cap, bend=lambda scores: torch.tanh(scores / CAP) * CAP),
)


def expected(form: Form, tensors: Tensors) -> torch.Tensor:
    """The result for a few heads, in fp64."""
    q, k, v = (tensor.double() for tensor in tensors)
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if form.bend is not None:
        scores = form.bend(scores)
    row = torch.arange(q.size(-2), device=q.device)[:, None]
    column = torch.arange(k.size(-2), device=q.device)[None, :]
    if form.is_causal:
        hidden = column > row
        if form.window:
            hidden |= row - column >= form.window
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


def error(form: Form, tensors: Tensors, out: torch.Tensor) -> float:
    """Of the first heads: the norm of what is wrong, over that of what is right."""
    heads = [t.flatten(0, 1)[:CHECKED_HEADS] for t in (*tensors, out)]
    wanted = expected(form, (heads[0], heads[1], heads[2]))
    return float((heads[3].double() - wanted).norm() / wanted.norm())


def rivals(tensors: Tensors, *, is_causal: bool) -> dict[str, Callable[[], Any]]:
    """Torch's own attention by each backend that takes these tensors."""

    def run(backend: SDPBackend) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*tensors, is_causal=is_causal)

        return call

    found: dict[str, Callable[[], Any]] = {}
    for backend in BACKENDS:
        try:
            run(backend)()
        except RuntimeError:
            continue
        found[backend.name.lower().removesuffix("_attention")] = run(backend)
    return found


def times(calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Milliseconds of each call, in turns, each after a flush of the L2 cache."""
    flushed = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device="cuda")
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(RUNS):
                flushed.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                call()
                end.record()
                torch.cuda.synchronize()
                found[name].append(begin.elapsed_time(end))
    return found


def inputs(shape: tuple[int, ...]) -> Tensors:
    """Queries, keys and values."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    return q, k, v


def given_to(form: Form, tensors: Tensors) -> list[torch.Tensor]:
    """What the kernel takes."""
    return [t.flatten(0, 1) for t in tensors] if form.has_flat_heads else list(tensors)


def row(form: Form, shape: tuple[int, ...]) -> str:
    """One line of the table."""
    q, k, v = inputs(shape)
    given = given_to(form, (q, k, v))
    out = form.kernel(*given).view(shape)
    found = error(form, (q, k, v), out)
    calls = rivals((q, k, v), is_causal=form.is_causal)
    samples = times({"ours": lambda: form.kernel(*given), **calls})
    best = min(calls, key=lambda name: median(samples[name]))
    ours, theirs = median(samples["ours"]), median(samples[best])
    low, _, high = quantiles(samples["ours"], n=4)
    config = form.kernel.bind(tuple(given)).default_config()
    size = "x".join(map(str, shape))
    return (
        f"| {size} | {form.name} | {ours:.3f} ({low:.3f} to {high:.3f}) | {theirs:.3f} {best} "
        f"| {theirs / ours:.3f} | {found:.1e} | {config.get('structure') or '-'} |"
    )


def narrowed(tensors: Tensors) -> list[torch.Tensor]:
    """In fp8, one axis of heads, values transposed."""
    q, k, v = tensors
    return [x.flatten(0, 1).to(FP8) for x in (q, k, v.mT.contiguous())]


def fp8_error(narrow: list[torch.Tensor], out: torch.Tensor) -> float:
    """As ``error``; what is right has the operands in fp8, too."""
    exact = reference(*(x[:CHECKED_HEADS] for x in narrow))
    return float((out[:CHECKED_HEADS] - exact).norm() / exact.norm())


def fp8_row(shape: tuple[int, ...]) -> str:
    """One line: fp8, values transposed beforehand, in turns with bf16 of the same shape."""
    q, k, v = inputs(shape)
    narrow = narrowed((q, k, v))
    found = fp8_error(narrow, fp8_attention(*narrow))
    calls = {"fp8": lambda: fp8_attention(*narrow), "bf16": lambda: attention(q, k, v)}
    samples = times(calls)
    (low, ours, high), theirs = quantiles(samples["fp8"], n=4), median(samples["bf16"])
    size = "x".join(map(str, shape))
    return (
        f"| {size} | fp8 | {ours:.3f} ({low:.3f} to {high:.3f}) | {theirs:.3f} our bf16 "
        f"| {theirs / ours:.3f} | {found:.1e} | |"
    )


def main() -> None:
    """Print the table."""
    print("| shape | kernel | ours ms (middle half) | torch's best | ratio | error | structure |")
    print("|---|---|---|---|---:|---:|---|")
    for shape in SHAPES:
        for form in FORMS if shape == SHAPES[0] else FORMS[:2]:
            print(row(form, shape), flush=True)
    for shape in FP8_SHAPES:
        print(fp8_row(shape), flush=True)


if __name__ == "__main__":
    main()
