"""Losses over vocabularies."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.cpu_workloads import exact_cross_entropy
from benchmarks.suites.arguments import Size, first_length, inputs, integers, normal, normals
from benchmarks.suites.widening import Joined, parts
from examples import fused_linear_jsd, jsd
from tilesmith.bench.case import Arguments, Operator

Pair = tuple[torch.Tensor, torch.Tensor]
FP32 = torch.float32
CLASSES = tuple(1 << power for power in range(12, 18))
LOGITS = ((16384, 4096), (16384, 8192), (8192, 32_000), *((16384, v) for v in CLASSES[2:]))
# Rows, hidden width, classes.
HEADS = ((1024, 4096, 32_064), (1024, 4096, 128_256), (2048, 4096, 128_256), (4096, 4096, 128_256))
SMALL_LOGITS = ((33, 100), (128, 2000), (4096, 32_000))
SMALL_HEADS = ((16, 32, 100), (64, 64, 1000), (128, 256, 8000))


def labelled(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    rows, classes = size
    return normal(size, device, dtype), integers(classes, (rows,), device)


def log_probabilities(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    return tuple(
        normal(size, device, dtype, seed).log_softmax(-1, dtype=FP32).to(dtype) for seed in range(2)
    )


def predictions(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """Log-probabilities, and the probabilities that are wanted."""
    log_pred, log_target = log_probabilities(size, device, dtype)
    return log_pred, log_target.exp()


def two_heads(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    n, k, v = size
    student, teacher = normals((n, k), (n, k), device=device, dtype=dtype)
    weights = (normal((v, k), device, dtype, seed, scale=k**-0.5) for seed in (2, 3))
    student_weight, teacher_weight = weights
    return student, student_weight, teacher, teacher_weight


def eager_kl_div(log_pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.kl_div(log_pred, target, reduction="batchmean")


def exact_kl_div(log_pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """In float64, some rows at a time."""
    sums = [
        functional.kl_div(log_pred[rows].double(), target[rows].double(), reduction="sum")
        for rows in parts(len(log_pred), log_pred.numel())
    ]
    return torch.stack(sums).sum() / len(log_pred)


def eager_jsd(log_q: torch.Tensor, log_p: torch.Tensor) -> Pair:
    """The loss and its gradient by ``log_q``."""
    q, p = log_q.exp(), log_p.exp()
    log_m = ((q + p) / 2).log()
    half = q * (log_q - log_m) / 2
    return (half.sum() + (p * (log_p - log_m)).sum() / 2) / len(q), half / len(q)


def exact_jsd(log_q: torch.Tensor, log_p: torch.Tensor) -> Pair:
    """In float64, some rows at a time."""
    losses: list[torch.Tensor] = []
    grads = Joined(len(log_q))
    for rows in parts(len(log_q), log_q.numel()):
        loss, grad = jsd.reference(log_q[rows], log_p[rows])
        share = len(log_q[rows]) / len(log_q)
        losses.append(loss * share)
        grads.put(rows, grad * share)
    return torch.stack(losses).sum(), grads.whole


def eager_linear_jsd(
    student: torch.Tensor,
    student_weight: torch.Tensor,
    teacher: torch.Tensor,
    teacher_weight: torch.Tensor,
) -> torch.Tensor:
    """The logits are rounded as products are; the rest is in float32."""
    log_q, log_p = (
        (hidden @ weight.T).log_softmax(-1, dtype=FP32)
        for hidden, weight in ((student, student_weight), (teacher, teacher_weight))
    )
    return eager_jsd(log_q, log_p)[0]


def exact_linear_jsd(
    student: torch.Tensor,
    student_weight: torch.Tensor,
    teacher: torch.Tensor,
    teacher_weight: torch.Tensor,
) -> torch.Tensor:
    """In float64, some rows at a time."""
    weights = student_weight.double(), teacher_weight.double()
    total = torch.zeros([], dtype=torch.float64, device=student.device)
    for rows in parts(len(student), len(student) * len(student_weight)):
        loss = fused_linear_jsd.reference(student[rows], weights[0], teacher[rows], weights[1])
        total += loss * len(student[rows])
    return total / len(student)


def head_flops(student: torch.Tensor, student_weight: torch.Tensor, *others: Any) -> float:
    return 4.0 * student.numel() * len(student_weight)


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        Operator(
            "cross_entropy",
            inputs=inputs(labelled, LOGITS, min_memory_gb=12.0),
            cpu_inputs=inputs(labelled, SMALL_LOGITS, FP32),
            kernels={"cross_entropy": "examples.cross_entropy:cross_entropy"},
            eager=functional.cross_entropy,
            exact=exact_cross_entropy,
            reduction_length=first_length,
            roundings=1,
        ),
        Operator(
            "kl_div",
            inputs=inputs(predictions, ((8 * 512, v) for v in CLASSES), FP32, min_memory_gb=16.0),
            cpu_inputs=inputs(predictions, SMALL_LOGITS, FP32),
            kernels={"kl_div": "examples.kl_div:kl_div"},
            eager=eager_kl_div,
            exact=exact_kl_div,
            reduction_length=first_length,
            roundings=1,
        ),
        Operator(
            "jsd",
            inputs=inputs(
                log_probabilities, ((4 * 2048, v) for v in CLASSES), FP32, min_memory_gb=40.0
            ),
            cpu_inputs=inputs(log_probabilities, SMALL_LOGITS, FP32),
            kernels={"jsd": "examples.jsd:jsd"},
            eager=eager_jsd,
            exact=exact_jsd,
            reduction_length=first_length,
            # A difference of logarithms in steps: each loses what the logarithms have in common.
            roundings=2,
        ),
        Operator(
            "fused_linear_jsd",
            inputs=inputs(two_heads, HEADS, min_memory_gb=30.0),
            cpu_inputs=inputs(two_heads, SMALL_HEADS, FP32),
            kernels={
                "fused_linear_jsd": "examples.fused_linear_jsd:fused_linear_jsd",
                "recomputing": "examples.fused_linear_jsd:recomputing_linear_jsd",
            },
            eager=eager_linear_jsd,
            exact=exact_linear_jsd,
            flops=head_flops,
            reduction_length=lambda student, weight, *others: student.size(1) * weight.size(0),
            roundings=1,
            num_products=1,
        ),
    )
