"""Attention in its variants; sizes are (batch, heads, positions, channels)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.sdpa import peers
from benchmarks.suites.arguments import Size, inputs, normals, num_bytes_of, three_tensors
from benchmarks.suites.widening import by_parts
from examples import attention, flex_attention, fp8_attention
from tilesmith.bench.case import Arguments, Operator

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
FP32, FP8 = torch.float32, torch.float8_e4m3fn
HEADS = tuple((4, 32, length, 128) for length in (512, 1024, 2048, 4096, 8192, 16_384))
SMALL_HEADS = ((1, 2, 64, 32), (2, 2, 150, 64), (1, 8, 1024, 64))
FP8_HEADS = tuple((128, length, 128) for length in (512, 1024, 2048, 4096, 8192))
# Batch, query heads, key heads, positions, channels.
GROUPED_HEADS = tuple((4, 32, 8, length, 128) for length in (512, 1024, 2048, 4096, 8192))
SMALL_GROUPED_HEADS = ((1, 4, 2, 64, 32), (2, 4, 2, 150, 32), (1, 8, 2, 512, 64))
BLOCK = 128


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False
) -> torch.Tensor:
    """In float64, some heads at a time: all scores together would take many gigabytes."""

    def form(*heads: torch.Tensor) -> torch.Tensor:
        return attention.reference(*heads, causal=is_causal)

    flat = (x.flatten(0, -3) for x in (q, k, v))
    return by_parts(form, 3, num_scores)(*flat).view(q.shape)


def exact_causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return exact_attention(q, k, v, is_causal=True)


def causal_sizes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of a query's outputs, which average one key or all of them, with weights that are rounded."""

    def form(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        scores = queries.double() @ keys.double().transpose(-1, -2) / math.sqrt(q.size(-1))
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        return (weights.square() @ values.double().square()).sqrt()

    flat = (x.flatten(0, -3) for x in (q, k, v))
    return by_parts(form, 3, num_scores)(*flat).view(q.shape)


def eager_causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def num_scores(q: torch.Tensor, k: torch.Tensor, *others: Any) -> int:
    return q.numel() // q.size(-1) * k.size(-2)


def attention_flops(q: torch.Tensor, k: torch.Tensor, *others: Any) -> float:
    return 4.0 * q.numel() * k.size(-2)


def causal_flops(q: torch.Tensor, k: torch.Tensor, *others: Any) -> float:
    return attention_flops(q, k) / 2


def summed(q: torch.Tensor, k: torch.Tensor, *others: Any) -> int:
    """A score sums the channels, an output element the keys."""
    return q.size(-1) * k.size(-2)


def with_outputs(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """Heads in one dimension; the outputs and normalisers are those of PyTorch."""
    batch, heads, length, width = size
    shape = (batch * heads, length, width)
    grad_out, q, k, v = normals(shape, shape, shape, shape, device=device, dtype=dtype)
    form = by_parts(attention.reference_fwd, 3, num_scores)
    out, lse = form(q, k, v)
    return grad_out, q, k, v, out.to(dtype), lse.float()


def eager_attention_bwd(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Any:
    """On a GPU PyTorch's flash kernel, elsewhere with all weights in memory."""
    scale = 1 / math.sqrt(q.size(-1))
    if q.is_cuda and q.dtype != FP32:
        tensors = (x[None] for x in (grad_out, q, k, v, out, lse / attention.LOG2_E))
        no_seed = torch.empty(0, dtype=torch.uint64, device=q.device)
        sequences = (None, None, q.size(1), k.size(1))
        grads = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *tensors, *sequences, 0.0, False, no_seed, no_seed, scale=scale
        )
        return tuple(grad[0] for grad in grads)
    scores = (q @ k.transpose(1, 2)).float() * (scale * attention.LOG2_E)
    weights = torch.exp2(scores - lse[..., None])
    inner = (grad_out.float() * out.float()).sum(-1, keepdim=True)
    along = (grad_out @ v.transpose(1, 2)).float() - inner
    grad_scores = (weights * along * scale).to(q.dtype)
    grad_v = weights.to(q.dtype).transpose(1, 2) @ grad_out
    return grad_scores @ k, grad_scores.transpose(1, 2) @ q, grad_v


def exact_attention_bwd(*arguments: torch.Tensor) -> Three:
    """In float64, some heads at a time."""
    return by_parts(attention.reference_bwd, 6, num_scores)(*arguments)


def fp8_heads(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """Values come transposed."""
    q, k, v = normals(size, size, size, device=device, dtype=torch.float16)
    return q.to(dtype), k.to(dtype), v.to(dtype).transpose(1, 2).contiguous()


def eager_fp8_attention(q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor) -> torch.Tensor:
    """PyTorch has none of its own for fp8: in fp16, conversions included."""
    queries, keys, values = (x.to(torch.float16)[None] for x in (q, k, v_t))
    values = values.transpose(-1, -2)
    return functional.scaled_dot_product_attention(queries, keys, values)[0]


def exact_fp8_attention(q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor) -> torch.Tensor:
    return by_parts(fp8_attention.reference, 3, num_scores)(q, k, v_t)


def causal_blocks(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """A block of queries sees the blocks of keys up to its own."""
    batch, heads, kv_heads, length, width = size
    shapes = ((batch, heads, length, width), *((batch, kv_heads, length, width),) * 2)
    block = min(BLOCK, length)
    count = -(-length // block)
    numbers = torch.arange(count, dtype=torch.int32, device=device)
    counts = (numbers + 1).expand(batch * heads, count).contiguous()
    blocks = numbers.expand(batch * heads, count, count).contiguous()
    mask = flex_attention.BlockMask(counts, blocks, block, block)
    modifiers = (flex_attention.no_change, flex_attention.causal)
    return *normals(*shapes, device=device, dtype=dtype), mask, *modifiers


def eager_flex_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *modifiers: Any
) -> torch.Tensor:
    """The modifiers are known: it is causal attention."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def of_shared_heads(form: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A form of causal attention for key heads that several query heads share."""

    def of_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *modifiers: Any) -> Any:
        group = q.size(1) // k.size(1)
        return form(q, *(x.repeat_interleave(group, 1) for x in (k, v)))

    return of_heads


def head_bytes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: Any) -> float:
    """Queries, keys, values, and outputs like the queries."""
    return num_bytes_of(q, k, v, q)


# The softmax weights are rounded before the second product.
SHARED: dict[str, Any] = {"reduction_length": summed, "roundings": 1, "num_products": 2}


def plain_operators() -> tuple[Operator, ...]:
    heads: dict[str, Any] = {
        "inputs": inputs(three_tensors, HEADS, min_memory_gb=16.0),
        "cpu_inputs": inputs(three_tensors, SMALL_HEADS, FP32),
        **SHARED,
    }
    plain: dict[str, Any] = {
        "eager": functional.scaled_dot_product_attention,
        "exact": exact_attention,
        "flops": attention_flops,
    }
    triton = "benchmarks.hand_written.attention"
    return (
        Operator(
            "flash_attention",
            kernels={"attention": "examples.attention:attention"},
            others={"triton": f"{triton}:attention", **peers("plain")},
            **plain,
            **heads,
        ),
        Operator(
            "causal_attention",
            kernels={"causal_attention": "examples.attention:causal_attention"},
            eager=eager_causal_attention,
            exact=exact_causal_attention,
            sizes=causal_sizes,
            others={"triton": f"{triton}:causal_attention", **peers("causal")},
            flops=causal_flops,
            **heads,
        ),
        Operator(
            "blackwell_attentions",
            kernels={"blackwell_attention": "examples.blackwell_attention:blackwell_attention"},
            others=peers("plain"),
            **plain,
            **heads,
        ),
    )


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        *plain_operators(),
        Operator(
            "flash_attention-bwd",
            inputs=inputs(with_outputs, HEADS[:-1], min_memory_gb=16.0),
            cpu_inputs=inputs(with_outputs, SMALL_HEADS, FP32),
            kernels={"attention_bwd": "examples.attention:attention_bwd"},
            eager=eager_attention_bwd,
            exact=exact_attention_bwd,
            flops=lambda grad_out, q, k, *others: 2.5 * attention_flops(q, k),
            reduction_length=summed,
            # The scores' gradient and the weights before their products; eager rounds those too.
            roundings=3,
            num_products=3,
        ),
        Operator(
            "fp8_attention",
            inputs=inputs(fp8_heads, FP8_HEADS, FP8),
            cpu_inputs=inputs(fp8_heads, ((2, 64, 32), (4, 150, 64), (8, 512, 64)), FP8),
            kernels={"fp8_attention": "examples.fp8_attention:fp8_attention"},
            eager=eager_fp8_attention,
            exact=exact_fp8_attention,
            flops=attention_flops,
            dtypes=(FP8,),
            reduction_length=summed,
            roundings=1,
        ),
        Operator(
            "flex_attention",
            inputs=inputs(causal_blocks, GROUPED_HEADS),
            cpu_inputs=inputs(causal_blocks, SMALL_GROUPED_HEADS, FP32),
            kernels={"flex_attention": "examples.flex_attention:flex_attention"},
            eager=eager_flex_attention,
            exact=of_shared_heads(exact_causal_attention),
            sizes=of_shared_heads(causal_sizes),
            others=peers("causal"),
            flops=causal_flops,
            num_bytes=head_bytes,
            **SHARED,
        ),
    )
