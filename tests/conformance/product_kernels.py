"""Element types of products, and chains of half-precision operations that round at every step."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn

BF16 = torch.bfloat16


@helion.kernel
def three_products(
    x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = x.size(0), y.size(1)
    dotted = torch.empty([m, n], dtype=torch.float32, device=x.device)
    rounded, accumulated = torch.empty_like(dotted), torch.empty_like(dotted)
    for t, u in hl.tile([m, n]):
        dotted[t, u] = hl.dot(x[t, :], y[:, u])
        rounded[t, u] = x[t, :] @ y[:, u]
        accumulated[t, u] = torch.addmm(hl.zeros([t, u]), x[t, :], y[:, u])
    return dotted, rounded, accumulated


@helion.kernel
def chain(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sums, differences, out = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a = x[t] * y[t] + x[t]
        b = a * 0.1 - y[t]
        sums[t] = a
        differences[t] = b
        out[t] = b * b + a * 3
    return sums, differences, out


@helion.kernel
def batched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b, m, k = x.shape
    n = y.size(2)
    out = torch.empty([b, m, n], dtype=torch.float32, device=x.device)
    for s, t, u in hl.tile([b, m, n], block_size=[1, None, None]):
        acc = hl.zeros([s, t, u], dtype=torch.float32)
        for v in hl.tile(k):
            acc = torch.baddbmm(acc, x[s, t, v], y[s, v, u])
        out[s, t, u] = acc
    return out


@helion.kernel
def in_several_batches(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Matrices along two axes: of both operands, of one and some of the other, of one."""
    both = torch.empty([*x.shape[:3], y.size(3)], dtype=torch.float32, device=x.device)
    some, one = torch.empty_like(both), torch.empty_like(both)
    shared, single = y[0], y[0, 0]
    for s, t in hl.tile([x.size(0), x.size(1)]):
        both[s, t, :, :] = torch.matmul(x[s, t, :, :], y[s, t, :, :])
        some[s, t, :, :] = x[s, t, :, :] @ shared[t, :, :]
        one[s, t, :, :] = x[s, t, :, :] @ single[:, :]
    return both, some, one


def _in_several_batches(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, y = x.double(), y.double()
    return x @ y, x @ y[0], x @ y[0, 0]


@helion.kernel
def int8_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.int32, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot(x[t, :], y[:, u])
    return out


def exact_and_rounded(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    exact = x.double() @ y.double()
    return exact, exact.float().to(x.dtype).double(), exact


def eager_chain(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = x * y + x
    b = a * 0.1 - y
    return a, b, b * b + a * 3


def bytes_of(*shape: int, seed: int) -> torch.Tensor:
    return (randn(*shape, seed=seed) * 40).clamp(-128, 127).to(torch.int8)


def small_integers(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Sums of their products are exact in fp32, so rounding can be told apart from reordering."""
    return (randn(*shape, seed=seed) * 5).round().to(dtype)


def factors(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        small_integers(19, 32, seed=0, dtype=dtype),
        small_integers(32, 17, seed=1, dtype=dtype),
    )


# fmt: off
PRODUCTS = (
    Case("three_products_fp16", three_products, lambda: factors(torch.float16), exact_and_rounded,
         blocks(16, 16), 32),
    Case("three_products_bf16", three_products, lambda: factors(BF16), exact_and_rounded,
         blocks(16, 16), 32, is_interpretable=False),
    Case("chain_bf16", chain, lambda: (randn(37, dtype=BF16), randn(37, seed=1, dtype=BF16)),
         eager_chain, blocks(8), EXACT, is_interpretable=False),
    Case("chain_fp16", chain,
         lambda: (randn(37, dtype=torch.float16), randn(37, seed=1, dtype=torch.float16)),
         eager_chain, blocks(8), EXACT),
    Case("batched", batched, lambda: (randn(3, 19, 21), randn(3, 21, 17, seed=1)),
         lambda x, y: x.double() @ y.double(), blocks(16, 16, 16), 21),
    Case("in_several_batches", in_several_batches,
         lambda: (randn(2, 3, 19, 21), randn(2, 3, 21, 17, seed=1)), _in_several_batches,
         blocks(2, 2), 21),
    Case("int8_product", int8_product,
         lambda: (bytes_of(19, 32, seed=0), bytes_of(32, 17, seed=1)),
         lambda x, y: x.int() @ y.int(), blocks(32, 32), EXACT),
)
# fmt: on
