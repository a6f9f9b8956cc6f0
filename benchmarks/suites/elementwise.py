"""Elementwise operators, lookups and dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.cpu_workloads import eager_geglu
from benchmarks.suites.arguments import (
    Size,
    inputs,
    integers,
    normal,
    normals,
    num_bytes_of,
    one_tensor,
    three_tensors,
    two_tensors,
)
from benchmarks.suites.seeded_mask import kept
from examples import geglu, low_mem_dropout, rope, swiglu
from tilesmith.bench.case import Arguments, Operator

Pair = tuple[torch.Tensor, torch.Tensor]
FP32 = torch.float32
BF16 = torch.bfloat16
VECTORS = tuple((1 << power,) for power in (12, 14, 16, 18, 20, 22, 24, 26))
SHORT_VECTORS = ((1 << 14,), (1 << 20,), (1 << 24,))
# Tokens in batches, and the inner width of a model's feed-forward layers.
GATES = ((4, 1024, 11008), (4, 2048, 11008), (4, 4096, 11008), (4, 8192, 11008))
SMALL_GATES = ((1, 32, 300), (2, 100, 1100), (1, 4096, 4096))
# Batch, query heads, key heads, positions, channels.
ROTATIONS = (
    (1, 32, 8, 1024, 128),
    (1, 32, 8, 2048, 128),
    (1, 32, 8, 4096, 128),
    (1, 32, 8, 8192, 128),
    (1, 32, 8, 16384, 128),
)
SMALL_ROTATIONS = ((1, 4, 2, 64, 32), (2, 4, 2, 128, 64), (1, 32, 8, 512, 128))
# Lookups, rows of the table, channels.
LOOKUPS = (
    *((32 * 512, 1 << power, 768) for power in (10, 12, 14, 16)),
    (8 * 2048, 32_000, 4096),
    (8 * 2048, 131_072, 4096),
)
PLANES = tuple((1 << power, 1024) for power in (5, 9, 12, 15))
DROPPED, SEED = 0.25, 123


def eager_exp_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return grad_out * out


def eager_swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def eager_swiglu_bwd(grad_out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> Pair:
    grad_gate = torch.ops.aten.silu_backward(grad_out * up, gate)
    return grad_gate, grad_out * functional.silu(gate)


def eager_geglu_bwd(grad_out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> Pair:
    grad_gate = torch.ops.aten.gelu_backward(grad_out * up, gate, approximate="tanh")
    return grad_gate, grad_out * functional.gelu(gate, approximate="tanh")


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return x * cos + rope.rotate_half(x) * sin


def turned_back(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return grad * cos - rope.rotate_half(grad * sin)


def eager_rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    return turned(q, cos, sin), turned(k, cos, sin)


def eager_rope_bwd(
    grad_q: torch.Tensor, grad_k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Pair:
    return turned_back(grad_q, cos, sin), turned_back(grad_k, cos, sin)


def rotations(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    batch, q_heads, k_heads, length, dim = size
    shapes = ((batch, q_heads, length, dim), (batch, k_heads, length, dim))
    angles = rope.angles(length, dim, str(device), dtype)
    return *normals(*shapes, device=device, dtype=dtype), *angles


def lookups(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    count, rows, dim = size
    return integers(rows, (count,), device), normal((rows, dim), device, dtype)


def looked_up_bytes(indices: torch.Tensor, table: torch.Tensor, result: torch.Tensor) -> float:
    """Of the table only the rows in use are read."""
    return num_bytes_of(indices, result, result)


def with_mask(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """The mask is for those that cannot draw it again."""
    mask = kept(size, DROPPED, SEED, device)
    return DROPPED, normal(size, device, dtype), SEED, mask


def dropout_by_seed(p: float, x: torch.Tensor, seed: int, mask: torch.Tensor) -> torch.Tensor:
    """Our kernel, which needs no mask."""
    return low_mem_dropout.low_mem_dropout(p, x, seed)


def dropout_bwd_by_seed(p: float, grad: torch.Tensor, seed: int, mask: torch.Tensor) -> Any:
    """Our kernel, which needs no mask."""
    return low_mem_dropout.low_mem_dropout_bwd(p, grad, seed)


def dropout_by_mask(p: float, x: torch.Tensor, seed: int, mask: torch.Tensor) -> torch.Tensor:
    """With the mask stored; the same in both directions."""
    return torch.where(mask, x * (1 / (1 - p)), 0.0)


def dropout_bytes(p: float, x: torch.Tensor, *others: Any) -> float:
    return 2 * num_bytes_of(x)


# Results vanish far below zero, or are a difference: there only their absolute error is small,
# as that of a sum of two terms. Eager PyTorch rounds after each step.
VANISHING: dict[str, Any] = {"reduction_length": lambda *arguments: 2, "roundings": 1}


def gate_operators() -> tuple[Operator, ...]:
    forward: dict[str, Any] = {
        "inputs": inputs(two_tensors, GATES, min_memory_gb=16.0),
        "cpu_inputs": inputs(two_tensors, SMALL_GATES, FP32),
        **VANISHING,
    }
    backward: dict[str, Any] = {
        "inputs": inputs(three_tensors, GATES, min_memory_gb=16.0),
        "cpu_inputs": inputs(three_tensors, SMALL_GATES, FP32),
        **VANISHING,
    }
    return (
        Operator(
            "geglu",
            kernels={"geglu": "examples.geglu:geglu"},
            eager=eager_geglu,
            exact=geglu.reference,
            **forward,
        ),
        Operator(
            "geglu-bwd",
            kernels={"geglu_bwd": "examples.geglu:geglu_bwd"},
            eager=eager_geglu_bwd,
            exact=geglu.reference_bwd,
            **backward,
        ),
        Operator(
            "swiglu",
            kernels={"swiglu": "examples.swiglu:swiglu"},
            eager=eager_swiglu,
            exact=swiglu.reference,
            **forward,
        ),
        Operator(
            "swiglu-bwd",
            kernels={"swiglu_bwd": "examples.swiglu:swiglu_bwd"},
            eager=eager_swiglu_bwd,
            exact=swiglu.reference_bwd,
            **backward,
        ),
    )


def rope_operators() -> tuple[Operator, ...]:
    shared: dict[str, Any] = {
        "inputs": inputs(rotations, ROTATIONS),
        "cpu_inputs": inputs(rotations, SMALL_ROTATIONS, FP32),
        "reduction_length": lambda *arguments: 2,
        "roundings": 2,
    }
    return (
        Operator(
            "rope",
            kernels={"rope": "examples.rope:rope"},
            eager=eager_rope,
            exact=rope.reference,
            **shared,
        ),
        Operator(
            "rope-bwd",
            kernels={"rope_bwd": "examples.rope:rope_bwd"},
            eager=eager_rope_bwd,
            exact=rope.reference_bwd,
            **shared,
        ),
    )


def dropout_operators() -> tuple[Operator, ...]:
    shared: dict[str, Any] = {
        "inputs": inputs(with_mask, PLANES),
        "cpu_inputs": inputs(with_mask, ((32, 1024), (500, 1000), (4096, 1024)), FP32),
        "eager": dropout_by_mask,
        "num_bytes": dropout_bytes,
        "roundings": 1,
    }
    home = "benchmarks.suites.elementwise"
    return (
        Operator(
            "low_mem_dropout", kernels={"low_mem_dropout": f"{home}:dropout_by_seed"}, **shared
        ),
        Operator(
            "low_mem_dropout-bwd",
            kernels={"low_mem_dropout_bwd": f"{home}:dropout_bwd_by_seed"},
            **shared,
        ),
    )


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        Operator(
            "vector_add",
            inputs=(
                *inputs(two_tensors, VECTORS),
                *inputs(two_tensors, ((1 << 26,),), FP32, is_marked=True),
            ),
            cpu_inputs=inputs(two_tensors, SHORT_VECTORS, FP32),
            kernels={"add": "examples.add:add"},
            eager=torch.add,
            others={"triton": "benchmarks.hand_written.add:add"},
        ),
        Operator(
            "vector_exp",
            inputs=inputs(one_tensor, VECTORS),
            cpu_inputs=inputs(one_tensor, SHORT_VECTORS, FP32),
            kernels={"exp_fwd": "examples.exp:exp_fwd"},
            eager=torch.exp,
        ),
        Operator(
            "vector_exp-bwd",
            inputs=inputs(two_tensors, VECTORS),
            cpu_inputs=inputs(two_tensors, SHORT_VECTORS, FP32),
            kernels={"exp_bwd": "examples.exp:exp_bwd"},
            eager=eager_exp_bwd,
        ),
        *gate_operators(),
        *rope_operators(),
        Operator(
            "embedding",
            inputs=inputs(lookups, LOOKUPS),
            cpu_inputs=inputs(
                lookups, ((100, 50, 64), (1024, 1000, 256), (8192, 32_000, 1024)), FP32
            ),
            kernels={"embedding": "examples.embedding:embedding"},
            eager=functional.embedding,
            num_bytes=looked_up_bytes,
        ),
        *dropout_operators(),
    )
