"""Products with vectors, einsum, broadcast batches, mixed operand types, accumulator types."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@helion.kernel
def with_vectors(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    m = x.size(0)
    out = torch.empty([5, m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        out[0, t] = torch.mv(x[t, :], v[:])
        out[1, t] = x[t, :] @ v[:]
        out[2, t] = v[:] @ y[:, t]
        out[3, t] = torch.linalg.vecdot(x[t, :], v[:][None, :])
        out[4, t] = torch.dot(v[:], v[:]) + v[:] @ v[:]
    return out


@helion.kernel
def outer_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(0)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = torch.outer(x[t], y[u])
    return out


@helion.kernel
def einsum_of_matrices(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    b, m, _ = x.size()
    n = y.size(2)
    out = torch.empty([b, m, n], dtype=x.dtype, device=x.device)
    flipped = torch.empty([n, b, m], dtype=x.dtype, device=x.device)
    for s, t, u in hl.tile([b, m, n]):
        out[s, t, u] = torch.einsum("bmk,bkn->bmn", x[s, t, :], y[s, :, u])
        flipped[u, s, t] = torch.einsum("bmk, bkn -> nbm", x[s, t, :], y[s, :, u])
    return out, flipped


@helion.kernel
def einsum_of_elements(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = x.size(0)
    product, rows = torch.empty_like(x), torch.empty([m], dtype=x.dtype, device=x.device)
    total = torch.empty([m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        product[t, :] = torch.einsum("ij,ij->ij", x[t, :], y[t, :])
        rows[t] = torch.einsum("ij,ij->i", x[t, :], y[t, :])
        total[t] = torch.einsum("ij,ik->i", x[t, :], y[t, :])
    return product, rows, total


@helion.kernel
def linear_layers(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    b, m, _ = x.size()
    out = torch.empty([b, m, w.size(0)], dtype=x.dtype, device=x.device)
    for s, t in hl.tile([b, m]):
        out[s, t, :] = torch.nn.functional.linear(x[s, t, :], w[:, :], bias[:])
    return out


@helion.kernel
def one_for_all_batches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b, m, _ = x.size()
    out = torch.empty([b, m, y.size(1)], dtype=torch.float32, device=x.device)
    for s, t, u in hl.tile(out.size()):
        out[s, t, u] = hl.dot(x[s, t, :], y[:, u][None, :, :])
    return out


@helion.kernel
def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot(x[t, :], y[:, u])
    return out


@helion.kernel
def accumulators(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shape = [x.size(0), y.size(1)]
    half = torch.empty(shape, dtype=torch.float16, device=x.device)
    single = torch.empty(shape, dtype=torch.float32, device=x.device)
    rounded = torch.empty(shape, dtype=torch.float16, device=x.device)
    for t, u in hl.tile(half.size()):
        low = hl.zeros([t, u], dtype=torch.float16)
        high = hl.full([t, u], 2.0, dtype=torch.float32)
        half[t, u] = hl.dot(x[t, :], y[:, u], acc=low)
        single[t, u] = torch.addmm(high, x[t, :], y[:, u])
        rounded[t, u] = hl.dot(x[t, :], y[:, u], out_dtype=torch.float16)
    return half, single, rounded


def small(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Integers whose products add up exactly in every type."""
    return integers(-4, 5, *shape, seed=seed).to(dtype)


def pair(left: torch.dtype, right: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return small(19, 32, seed=0, dtype=left), small(32, 17, seed=1, dtype=right)


def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.double() @ y.double()).float()


def vectors(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x, y, v = x.double(), y.double(), v.double()
    return torch.stack([x @ v, x @ v, v @ y, x @ v, (2 * v.dot(v)).expand(x.size(0))])


def batched(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = x.double() @ y.double()
    return found, found.permute(2, 0, 1)


def elements(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, y = x.double(), y.double()
    return x * y, (x * y).sum(1), x.sum(1) * y.sum(1)


def accumulated(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = exact(x, y)
    return found.half(), found + 2, found.half()


# fmt: off
CONTRACTIONS = (
    Case("with_vectors", with_vectors,
         lambda: (randn(13, 11), randn(11, 13, seed=1), randn(11, seed=2)), vectors, blocks(8), 22),
    Case("outer_products", outer_products, lambda: (randn(13), randn(7, seed=1)),
         lambda x, y: x[:, None] * y, blocks(8, 4), EXACT),
    Case("einsum_of_matrices", einsum_of_matrices,
         lambda: (randn(3, 19, 21), randn(3, 21, 17, seed=1)), batched, blocks(1, 16, 16), 21),
    Case("einsum_of_elements", einsum_of_elements, lambda: (randn(13, 7), randn(13, 7, seed=1)),
         elements, blocks(8), 49),
    Case("linear_layers", linear_layers,
         lambda: (randn(3, 19, 21), randn(17, 21, seed=1), randn(17, seed=2)),
         lambda x, w, bias: x.double() @ w.double().T + bias.double(), blocks(1, 16), 22),
    Case("one_for_all_batches", one_for_all_batches, lambda: (randn(3, 19, 21), randn(21, 17)),
         lambda x, y: x.double() @ y.double(), blocks(1, 16, 16), 21),
    *(Case(f"mixed_{str(left)[6:]}_{str(right)[6:]}", mixed,
           lambda left=left, right=right: pair(left, right), exact, blocks(16, 16), EXACT,
           is_interpretable=False)
      for left, right in ((E4M3, E5M2), (E5M2, torch.float16), (torch.int8, torch.float16))),
    Case("accumulators", accumulators, lambda: pair(torch.float16, torch.float16), accumulated,
         blocks(16, 16), EXACT),
)
# fmt: on
