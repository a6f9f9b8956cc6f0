"""Constants of eight bits, and what is reduced in such types, are what torch makes of them."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.workarounds import narrow_conversions
from tilesmith.backends.triton.workarounds.special_values import constant, neutral
from tilesmith.dtypes import F8E4M3, F8E5M2, F16, F32

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TARGET = "cuda:90"


@helion.kernel(static_shapes=True)
def filled(x: torch.Tensor, value: hl.constexpr, dtype: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.full([tile], value, dtype=dtype).view(torch.uint8)
    return out


@helion.kernel(static_shapes=True)
def chosen(x: torch.Tensor, value: hl.constexpr, dtype: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        kept = torch.where(tile.index % 2 == 0, x[tile].view(dtype), value)
        out[tile] = kept.view(torch.uint8)
    return out


@helion.kernel(static_shapes=True)
def carried(x: torch.Tensor, value: hl.constexpr, dtype: hl.constexpr) -> torch.Tensor:
    """A constant that a loop begins with, and gives back where it does not run."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        last = hl.full([tile], value, dtype=dtype)
        for _ in hl.grid(tile.begin):
            last = x[tile].view(dtype)
        out[tile] = last.view(torch.uint8)
    return out


KERNELS = pytest.mark.parametrize("kernel", [filled, chosen, carried], ids=lambda k: k.name)
VALUES = [1e6, -1e6, inf, -inf, 448.0, 464.0, 480.0, 57344.0, -61439.0, 61439.9999999, 61440.0]


def is_held(source: str, dtype: torch.dtype) -> bool:
    """Whether all constants of the type are small enough for the conversions of a GPU."""
    largest = {E4M3: 464.0, E5M2: 61440.0}[dtype]
    written = map(float, re.findall(r"-?\d+\.\d+", source))
    return "inf" not in source and all(abs(number) <= largest for number in written)


def expected(kernel: Any, x: torch.Tensor, value: float, dtype: torch.dtype) -> torch.Tensor:
    made = torch.full(x.shape, value).to(dtype).view(torch.uint8)
    is_kept = (torch.arange(9) % 2 == 0) & (kernel is chosen)
    return torch.where(is_kept, x, made)


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@KERNELS
def test_constants_are_what_torch_converts_them_to_on_every_backend(
    run: Any, kernel: Any, dtype: torch.dtype
) -> None:
    x = torch.randn(9, generator=torch.Generator().manual_seed(0)).to(dtype).view(torch.uint8)
    interpreted = helion.kernel(
        kernel.fn, ref_mode=helion.RefMode.EAGER, config=helion.Config(block_sizes=[16])
    )
    for value in VALUES:
        args, exact = (x, value, dtype), expected(kernel, x, value, dtype)
        assert torch.equal(kernel(*args), exact), value
        assert torch.equal(interpreted(*args), exact), value
        artifact = kernel.bind(args, target=TARGET).to_artifact(helion.Config(block_sizes=[16]))
        if not torch.tensor(value).to(dtype).float().isinf():
            # Triton's interpreter takes numbers of eight bits for their bits.
            assert is_held(artifact.source, dtype), value
            continue
        given = {"x": x, "out": torch.zeros_like(x)}
        names = [parameter.name for parameter in artifact.parameters]
        found = run(artifact, *(given[name] for name in names))[names.index("out")]
        assert torch.equal(found, exact), value


@helion.kernel(static_shapes=True)
def filled_bytes(x: torch.Tensor, value: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.where(tile.index % 2 == 0, x[tile], value)
    return out


def test_no_conversion_of_a_gpu_makes_an_infinity_finite() -> None:
    x = torch.zeros(256).to(E5M2)
    for value in (1e6, -inf):
        artifact = filled_bytes.bind((x, value), target=TARGET).to_artifact()
        # Hardware converts an infinity to the largest finite number.
        assert "satfinite" not in compile_artifact(artifact).assembly["ptx"]


@helion.kernel(static_shapes=True)
def greatest(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].amax(-1)
    return out


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_maxima_of_short_rows(dtype: torch.dtype) -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    x[0, :], x[1, 3], x[2, :] = -inf, inf, -400.0
    x = x.to(dtype)
    assert torch.equal(greatest(x).float(), x.float().amax(-1))
    code = greatest.bind((x,), target=TARGET).to_triton_code().partition("def _greatest(")[2]
    # Triton's interpreter takes infinities of e5m2 for numbers: both ends are by their bits.
    assert 'float("-inf")' not in code
    assert ("_to_e5m2(" in code) == (dtype == E5M2)
    assert ("-448.0" in code) == (dtype == E4M3)


@pytest.mark.parametrize("saturates", [False, True])
def test_too_large_as_the_installed_torch_has_it(
    saturates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrow_conversions, "saturates", lambda: saturates)
    assert str(constant(-1e6, F8E4M3)) == ("-448.0" if saturates else 'float("nan")')
    assert str(constant(464, F8E4M3)) == "464.0"
    # A lane that must not count is the lowest number, whatever a conversion gives.
    assert str(neutral(-inf, F8E4M3)) == "-448.0"
    for dtype in (F16, F32):
        assert str(constant(1e6, dtype)) == "1000000.0"
    assert "124" in str(constant(1e6, F8E5M2))
