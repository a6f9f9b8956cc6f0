"""Emitted modules compute what torch computes, run by Triton's interpreter on small inputs."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import make, matmul, rows


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 5), (8, 8), (9, 17), (16, 33)])
def test_pointwise_over_partial_tiles(run, m, n):
    text = rows(
        "f32",
        m,
        n,
        f"""
        %two = full() {{value=2.0}} : f32[tile_m, {n}]
        %twice = elementwise(%x_tile, %two) {{fn="mul"}} : f32[tile_m, {n}]
        %r = elementwise(%twice, %x_tile) {{fn="add"}} : f32[tile_m, {n}]
        """,
    )
    x = torch.randn(m, n)
    out = torch.full((m, n), -7.0)
    _, result = run(make(text, symbols={"tile_m": 8}), x, out)
    assert torch.equal(result, x * 2 + x)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (16, 16, 16), (33, 31, 40), (64, 48, 17)])
@pytest.mark.parametrize(
    "pid_type", ["flat", "xyz", "persistent_blocked", "persistent_interleaved"]
)
def test_matmul_with_every_kind_of_program_id(run, m, n, k, pid_type):
    artifact = make(
        matmul(m, n, k), symbols={"tile_m": 16, "tile_n": 16, "tile_k": 16}, pid_type=pid_type
    )
    x, y = torch.randn(m, k, dtype=torch.float16), torch.randn(k, n, dtype=torch.float16)
    out = torch.full((m, n), -7.0, dtype=torch.float16)
    result = run(artifact, x, y, out)[2]
    expected = (x.double() @ y.double()).half()
    torch.testing.assert_close(result, expected, rtol=2e-3, atol=2e-3)
