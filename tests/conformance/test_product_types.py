"""Element types of products, as device code sees them while it is traced."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tilesmith.backends.triton.build import compile_artifact


@helion.kernel
def products(x: torch.Tensor, y: torch.Tensor, note) -> torch.Tensor:
    out = torch.zeros([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        note(
            hl.dot(x[t, :], y[:, u]),
            hl.dot(x[t, :], y[:, u], out_dtype=torch.float16),
            x[t, :] @ y[:, u],
            torch.addmm(hl.zeros([t, u]), x[t, :], y[:, u]),
            torch.mm(x[t, :], y[:, u], torch.float32),
        )
        out[t, u] = hl.dot(x[t, :], y[:, u])
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_result_types(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def note(*values):
        seen.extend(value.dtype for value in values)

    products(randn(16, 16, dtype=dtype), randn(16, 16, dtype=dtype), note)
    assert seen == [torch.float32, torch.float16, dtype, torch.float32, torch.float32]


@helion.kernel(config={"block_sizes": [16, 16, 16], "num_warps": 4})
def accumulated(x: torch.Tensor, y: torch.Tensor, dtype: hl.constexpr) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        acc = hl.zeros([t, u], dtype=dtype)
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[t, k], y[k, u])
        out[t, u] = acc
    return out


@pytest.mark.parametrize(
    ("operands", "acc"),
    [
        (torch.float64, torch.float32),
        (torch.float64, torch.float16),
        (torch.float32, torch.float64),
        (torch.int8, torch.float32),
    ],
    ids=str,
)
def test_accumulators_of_another_width_or_kind(operands, acc) -> None:
    x, y = torch.randint(-3, 4, (17, 40)).to(operands), torch.randint(-3, 4, (40, 5)).to(operands)
    result = accumulated(x, y, acc)
    assert result.dtype == acc
    assert torch.equal(result.double(), x.double() @ y.double())
    bound = accumulated.bind((x, y, acc), target="cuda:90")
    assert compile_artifact(bound.to_artifact(bound.configs[0])).binary


def test_products_of_floats_are_not_added_to_integers() -> None:
    with pytest.raises(helion.exc.InvalidArgumentKind, match="acc is i32, expected float32"):
        accumulated(randn(16, 16), randn(16, 16), torch.int32)
