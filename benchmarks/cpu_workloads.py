"""What the CPU benchmark runs: kernels of examples/, their eager forms, float64, and the goals."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from benchmarks.workloads import eager_layer_norm, eager_softmax, exact_attention, in_float64
from tilesmith.numerics.inputs import random_tensor

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]
Form = Callable[..., torch.Tensor]

SIDE = 4096
NUM_CLASSES = 32_000
NUM_SEQUENCES, LONGEST, NUM_FEATURES = 512, 128, 256
CHUNK_ROWS = 256


@dataclass(frozen=True)
class CpuWorkload:
    """One kernel at one size and type.

    Attributes:
        name: shown in tables, unique.
        size: what a reader calls the size.
        module: file in examples/.
        kernel: name of the kernel in it.
        dtype: type of the random inputs.
        make_inputs: their values, from the type.
        eager: the same in PyTorch, in one form or several of which the fastest counts; the first
            is what torch.compile gets.
        exact: the same in float64.
        goal: the ratio to the better of eager and torch.compile that we want; None: only watched.
        reduction_length: terms of the longest sum behind one element.
        roundings: intermediates rounded to the input type before they are summed.
        flops: operations; zero where memory is the limit.
    """

    name: str
    size: str
    module: str
    kernel: str
    dtype: torch.dtype
    make_inputs: Callable[[torch.dtype], Tensors]
    eager: Mapping[str, Form]
    exact: Form
    goal: float | None
    reduction_length: int = 1
    roundings: int = 0
    flops: int = 0

    def inputs(self) -> Tensors:
        """Fresh random arguments."""
        return self.make_inputs(self.dtype)

    def load_kernel(self) -> Any:
        """The kernel object, from examples/."""
        return getattr(importlib.import_module(f"examples.{self.module}"), self.kernel)

    def in_bf16(self, **changes: Any) -> CpuWorkload:
        """The same with bf16 tensors."""
        name = self.name.replace("fp32", "bf16")
        return replace(self, name=name, dtype=torch.bfloat16, **changes)


def tensors(*shapes: Shape) -> Callable[[torch.dtype], Tensors]:
    """Makes one random tensor per shape."""
    return lambda dtype: tuple(
        random_tensor(shape, dtype, seed=seed) for seed, shape in enumerate(shapes)
    )


def labelled_logits(dtype: torch.dtype) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(NUM_CLASSES, (SIDE,), generator=generator)
    return random_tensor((SIDE, NUM_CLASSES), dtype, seed=0), labels


def sequences(dtype: torch.dtype) -> Tensors:
    """Sequences of random lengths (zero included), all with the full number of features."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(LONGEST + 1, (NUM_SEQUENCES,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    values = random_tensor((int(offsets[-1]), NUM_FEATURES), dtype, seed=0)
    return values, offsets, torch.full((NUM_SEQUENCES,), NUM_FEATURES)


def eager_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, 1e-5)


def eager_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def eager_geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.gelu(gate, approximate="tanh") * up


def eager_matmul_layernorm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return functional.layer_norm(x @ y, weight.shape, weight, bias)


def exact_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """In float64, some rows at a time: all together would take gigabytes."""
    parts = zip(logits.split(CHUNK_ROWS), labels.split(CHUNK_ROWS))
    sums = [functional.cross_entropy(x.double(), y, reduction="sum") for x, y in parts]
    return torch.stack(sums).sum() / logits.size(0)


def jagged_mean_by_bags(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    """As bags of rows taken in order; spared the feature counts, which are all full."""
    rows = torch.arange(values.size(0))
    sums = functional.embedding_bag(rows, values, offsets, mode="sum", include_last_offset=True)
    return sums / offsets.diff().clamp(min=1)[:, None]


def jagged_mean_by_index_add(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    """By scattering rows onto sums; spared the feature counts, which are all full."""
    lengths = offsets.diff()
    count = feature_counts.size(0)
    owners = torch.repeat_interleave(torch.arange(count), lengths, output_size=values.size(0))
    sums = torch.zeros([count, values.size(1)], dtype=values.dtype).index_add_(0, owners, values)
    return sums / lengths.clamp(min=1)[:, None]


def exact_jagged_mean(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    pieces = values.double().split(offsets.diff().tolist())
    return torch.stack([piece.sum(0) / max(1, piece.size(0)) for piece in pieces])


FP32 = torch.float32
SQUARE = f"{SIDE}x{SIDE}"
PLANE = tensors((SIDE, SIDE))

ADD = CpuWorkload(
    "add fp32", "2^24", "add", "add", FP32, tensors(((1 << 24),), ((1 << 24),)),
    {"eager": torch.add}, in_float64(torch.add), 1.0,
)  # fmt: skip
SOFTMAX = CpuWorkload(
    "softmax fp32", SQUARE, "softmax", "softmax", FP32, PLANE,
    {"eager": eager_softmax}, in_float64(eager_softmax), 1.1, SIDE,
)  # fmt: skip
LAYER_NORM = CpuWorkload(
    "layer_norm fp32", SQUARE, "layer_norm", "layer_norm_fwd", FP32,
    tensors((SIDE, SIDE), (SIDE,), (SIDE,)),
    {"eager": eager_layer_norm}, in_float64(eager_layer_norm), 1.1, SIDE,
)  # fmt: skip
RMS_NORM = CpuWorkload(
    "rms_norm fp32", SQUARE, "rms_norm", "rms_norm", FP32, tensors((SIDE, SIDE), (SIDE,)),
    {"eager": eager_rms_norm}, in_float64(eager_rms_norm), 1.0, SIDE,
)  # fmt: skip
SUM = CpuWorkload(
    "sum fp32", SQUARE, "sum", "sum_rows", FP32, PLANE,
    {"eager": eager_sum}, in_float64(eager_sum), 1.0, SIDE,
)  # fmt: skip
CROSS_ENTROPY = CpuWorkload(
    "cross_entropy fp32", f"{SIDE}x{NUM_CLASSES}", "cross_entropy", "cross_entropy", FP32,
    labelled_logits, {"eager": functional.cross_entropy}, exact_cross_entropy, 1.15, NUM_CLASSES,
)  # fmt: skip
# Results vanish far below zero: there only their absolute error is small.
GEGLU = CpuWorkload(
    "geglu fp32", SQUARE, "geglu", "geglu", FP32, tensors((SIDE, SIDE), (SIDE, SIDE)),
    {"eager": eager_geglu}, in_float64(eager_geglu), 2.0, 2,
)  # fmt: skip
MATMUL = CpuWorkload(
    "matmul fp32", "1024^3", "matmul", "matmul", FP32, tensors((1024, 1024), (1024, 1024)),
    {"eager": torch.mm}, in_float64(torch.mm), 0.85, 1024, flops=2 * 1024**3,
)  # fmt: skip
MATMUL_LAYERNORM = CpuWorkload(
    "matmul_layernorm fp32", "4096x512x512", "matmul_layernorm", "matmul_layernorm", FP32,
    tensors((SIDE, 512), (512, 512), (512,), (512,)),
    {"eager": eager_matmul_layernorm}, in_float64(eager_matmul_layernorm), 0.9, 512,
    flops=2 * SIDE * 512 * 512,
)  # fmt: skip
# Four dimensions, as PyTorch's fused kernel wants them. A score sums 64 terms, an output 1024.
ATTENTION = CpuWorkload(
    "attention fp32", "8x1024x64", "attention", "attention", FP32, tensors(*[(1, 8, 1024, 64)] * 3),
    {"eager": functional.scaled_dot_product_attention}, exact_attention, 1.0, 1024 * 64,
    roundings=1, flops=4 * 8 * 1024 * 1024 * 64,
)  # fmt: skip
JAGGED_MEAN = CpuWorkload(
    "jagged_mean fp32", "512 x <=128 x 256", "jagged_mean", "jagged_mean", FP32, sequences,
    {"embedding_bag": jagged_mean_by_bags, "index_add": jagged_mean_by_index_add},
    exact_jagged_mean, 1.5, LONGEST,
)  # fmt: skip

WORKLOADS = (
    ADD,
    SOFTMAX,
    SOFTMAX.in_bf16(),
    LAYER_NORM,
    RMS_NORM,
    # Eager PyTorch rounds after each of its steps.
    RMS_NORM.in_bf16(roundings=1),
    SUM,
    CROSS_ENTROPY,
    GEGLU,
    GEGLU.in_bf16(roundings=1),
    MATMUL,
    MATMUL.in_bf16(goal=None),
    MATMUL_LAYERNORM,
    ATTENTION,
    ATTENTION.in_bf16(),
    JAGGED_MEAN,
)
