"""Kernels with several top-level loops: those whose programs take longest start first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
from examples.matmul import matmul_bwd, reference_bwd
from tilesmith.numerics.compare import check_against

CONFIG = helion.Config(block_sizes=[32, 32, 32, 32, 32, 32])


def gradients(m: int, k: int, n: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(m, n), torch.randn(m, k), torch.randn(k, n)


def first_arm(code: str) -> str:
    body = code[code.index("if pid < end_0:") :]
    return body[: body.index("else:")]


@pytest.mark.parametrize(
    ("m", "n", "first"), [(512, 64, "grad_y"), (64, 512, "grad_x"), (64, 96, "grad_x")]
)
def test_the_loop_with_the_longer_sum_has_the_first_numbers(m: int, n: int, first: str) -> None:
    # Sums over 64 and 96 differ by less than a factor of two: loops stay as they are written.
    code = matmul_bwd.bind(gradients(m, 64, n)).to_triton_code(CONFIG, target="cuda:90")
    assert f"{first} +" in first_arm(code)


@pytest.mark.parametrize("m", [1, 95, 130])
def test_results_do_not_depend_on_who_starts_first(run: Any, m: int) -> None:
    grad_out, x, y = gradients(m, 40, 33)
    artifact = matmul_bwd.bind((grad_out, x, y)).to_artifact(CONFIG, target="cuda:90")
    given = {"grad_out": grad_out, "x": x, "y": y}
    given |= {"grad_x": torch.full_like(x, 7.0), "grad_y": torch.full_like(y, 7.0)}
    names = [parameter.name for parameter in artifact.parameters]
    results = dict(zip(names, run(artifact, *(given[name] for name in names))))
    wanted = reference_bwd(grad_out, x, y)
    for name, exact, length in zip(("grad_x", "grad_y"), wanted, (33, m)):
        check_against(results[name], exact, reduction_length=length)
