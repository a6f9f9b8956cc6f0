"""Atomic maxima and minima keep NaN, as torch's scatters do."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact

TARGET = "cuda:90"


@helion.kernel(static_shapes=True)
def greatest(out: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        hl.atomic_max(out, [index[tile]], x[tile])
    return out


@helion.kernel(static_shapes=True)
def least(out: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        hl.atomic_min(out, [index[tile]], x[tile])
    return out


KERNELS = pytest.mark.parametrize(
    ("kernel", "reduce", "start"), [(greatest, "amax", -inf), (least, "amin", inf)], ids=str
)


def values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """NaN of either sign before, between and after numbers of either sign."""
    bad = torch.tensor([nan, -nan], dtype=dtype)
    bad[1] = -bad[0]
    assert bad.signbit().tolist() == [False, True]
    rows = [
        [one, *numbers][place:] + [one, *numbers][:place]
        for one in bad.unbind()
        for numbers in ([1.0, 2.0], [-1.0, -2.0], [inf, -inf], [0.0, 3.0])
        for place in range(3)
    ]
    flat = torch.stack([torch.as_tensor(value, dtype=dtype) for row in rows for value in row])
    index = torch.arange(len(rows)).repeat_interleave(3)
    plain = torch.tensor([4.0, -5.0, inf, -inf, 0.5, -0.5], dtype=dtype)
    return torch.cat([index, torch.full([6], len(rows))]), torch.cat([flat, plain])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@KERNELS
def test_not_a_number_wins_on_every_backend(
    interpreter: Any, kernel: Any, reduce: str, start: float, dtype: torch.dtype
) -> None:
    index, x = values(dtype)
    out = torch.full([int(index.max()) + 2], start, dtype=dtype)
    exact = out.clone().scatter_reduce(0, index, x, reduce)
    assert exact.isnan().sum() == 24
    interpreted = helion.kernel(
        kernel.fn, ref_mode=helion.RefMode.EAGER, config=helion.Config(block_sizes=[16])
    )
    for called in (kernel, interpreted):
        torch.testing.assert_close(called(out.clone(), index, x), exact, equal_nan=True)
    artifact = kernel.bind((out, index, x), target=TARGET).to_artifact()
    given = {"out": out, "index": index, "x": x}
    names = [parameter.name for parameter in artifact.parameters]
    ran = interpreter.interpret(artifact, *(given[name] for name in names))
    torch.testing.assert_close(ran[names.index("out")], exact, equal_nan=True)


@KERNELS
def test_code_for_gpus_chooses_the_sign_of_a_nan(kernel: Any, reduce: str, start: float) -> None:
    index, x = values(torch.float32)
    out = torch.full([64], start)
    artifact = kernel.bind((out, index, x), target=TARGET).to_artifact()
    ptx = compile_artifact(artifact).assembly["ptx"]
    # All bits set, without and with the sign: beyond every number when compared as integers.
    assert any(
        bits in ptx
        for bits in {"amax": ("0f7FFFFFFF", "2147483647"), "amin": ("0fFFFFFFFF", ", -1;")}[reduce]
    )


def test_integers_are_updated_as_they_are() -> None:
    index = torch.arange(8)
    code = greatest.bind((index, index, index), target=TARGET).to_triton_code()
    assert "atomic_max" in code
    assert "tl.where" not in code
