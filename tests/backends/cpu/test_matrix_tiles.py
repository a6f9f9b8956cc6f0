"""Kernels whose products of bf16 go through tile registers: among other code, in many threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tilesmith.numerics.compare import check_against
from tilesmith.runtime.native.host_cpu import host_target

BF16 = torch.bfloat16
pytestmark = pytest.mark.skipif(
    not host_target().has_matrix_tiles, reason="this process may not use AMX"
)


@pytest.fixture(params=[1, 2, 7])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@helion.kernel(static_shapes=False, backend="cpu")
def three_products(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A product of bf16 whose result, squared, is an operand of the next; one of fp32 between."""
    m, k, n = x.size(0), x.size(1), y.size(1)
    out = torch.empty([m, z.size(1)], dtype=torch.float32, device=x.device)
    wide = torch.empty([m, k], dtype=torch.float32, device=x.device)
    columns = hl.specialize(z.size(1))
    for t in hl.tile(m):
        acc = hl.zeros([t, columns], dtype=torch.float32)
        for u in hl.tile(n):
            part = hl.zeros([t, u], dtype=torch.float32)
            for v in hl.tile(k):
                part = torch.addmm(part, x[t, v], y[v, u])
            squares = part * part
            acc = torch.addmm(acc, squares.to(BF16), z[u, :])
        wide[t, :] = hl.dot(x[t, :].to(torch.float32), w[:, :])
        out[t, :] = torch.relu(acc)
    return out, wide


def references(x, y, z, w):
    part = x.double() @ y.double()
    return torch.relu((part * part) @ z.double()), x.double() @ w.double()


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (33, 31, 65, 17), (128, 64, 96, 64), (301, 35, 40, 3)]
)
@pytest.mark.parametrize("blocks", [[32, 32, 32], [24, 40, 8], [64, 128, 64]], ids=str)
def test_products_among_other_code(
    sizes: tuple[int, int, int, int], blocks: list[int], threads: int
) -> None:
    m, k, n, columns = sizes
    shapes = (m, k), (k, n), (n, columns)
    x, y, z = (randn(*shape, dtype=BF16) for shape in shapes)
    w = randn(k, k)
    bound = three_products.bind((x, y, z, w))
    run = bound.compile_config(helion.Config(block_sizes=blocks))
    assert bound.to_code(helion.Config(block_sizes=blocks), form="llvm").count("tdpbf16ps") >= 2
    for _ in range(3):
        out, wide = run(x, y, z, w)
        exact, exact_wide = references(x, y, z, w)
        check_against(wide, exact_wide, reduction_length=k)
        check_against(out, exact, reduction_length=n * k, intermediate=BF16)


def test_the_same_vectors_without_tiles() -> None:
    x, y, z = (randn(*shape, dtype=BF16) for shape in ((70, 40), (40, 50), (50, 24)))
    w = randn(40, 40)
    config = helion.Config(block_sizes=[32, 32, 32])
    bound = three_products.bind((x, y, z, w), target="cpu:avx512")
    assert "tdpbf16ps" not in bound.to_code(config, form="llvm")
    out, wide = bound.compile_config(config)(x, y, z, w)
    exact, exact_wide = references(x, y, z, w)
    check_against(wide, exact_wide, reduction_length=40)
    check_against(out, exact, reduction_length=2000, intermediate=BF16)


@helion.kernel(static_shapes=True, backend="cpu")
def with_transposes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(1), y.size(0)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        acc = hl.zeros([t, u], dtype=torch.float32)
        for v in hl.tile(x.size(0)):
            acc = torch.addmm(acc, x[v, t].T, y[u, v].T)
        out[t, u] = acc
    return out


@pytest.mark.parametrize("step", [1, 2])
def test_transposed_and_strided_operands(step: int, threads: int) -> None:
    x, y = randn(75, 50 * step, dtype=BF16)[:, ::step], randn(61, 75 * step, dtype=BF16)[:, ::step]
    run = with_transposes.bind((x, y)).compile_config(helion.Config(block_sizes=[40, 32, 40]))
    check_against(run(x, y), x.double().T @ y.double().T, reduction_length=75)


def test_products_of_fp32_that_were_bf16_keep_denormal_numbers() -> None:
    x = torch.full((16, 32), 2.0**-130, dtype=BF16)
    y, z, w = torch.zeros(32, 1).bfloat16(), torch.zeros(1, 1).bfloat16(), torch.eye(32)
    run = three_products.bind((x, y, z, w)).compile_config(helion.Config(block_sizes=[16, 16, 32]))
    assert torch.equal(run(x, y, z, w)[1], x.float())
