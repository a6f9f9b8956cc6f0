"""The least int16 stays what it is when its sign changes: text that ptxas gets, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact


@tilesmith.kernel(static_shapes=True)
def signs_changed(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        magnitude = torch.abs(v)
        out[0, tile] = magnitude.to(torch.int32)
        out[1, tile] = (-v).to(torch.int32)
        out[2, tile] = (0 - v).to(torch.int32)
        out[3, tile] = (v * -1).to(torch.int32)
        out[4, tile] = (-magnitude).to(torch.int32)
        out[5, tile] = (magnitude > 100).to(torch.int32)
        out[6, tile] = torch.maximum(v, -v).to(torch.int32)
        out[7, tile] = (-1 * v).to(torch.int32)
    return out


def wanted(x: torch.Tensor) -> torch.Tensor:
    bits = torch.iinfo(x.dtype).bits
    wide = x.to(torch.int64)

    def wrapped(values: torch.Tensor) -> torch.Tensor:
        half = 1 << (bits - 1)
        return (values + half) % (2 * half) - half

    magnitude, negative = wrapped(wide.abs()), wrapped(-wide)
    rows = [magnitude, negative, negative, negative, wrapped(-magnitude), magnitude > 100]
    rows += [torch.maximum(wide, negative), negative]
    return torch.stack([row.to(torch.int32) for row in rows])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32], ids=str)
def test_signs_of_integers(run: Callable[..., list[Any]], dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    numbers = [info.min, info.min + 1, -7, -1, 0, 1, 7, 99, 100, 101, info.max - 1, info.max]
    x = torch.tensor(numbers, dtype=dtype)
    out = torch.zeros(8, len(numbers), dtype=torch.int32)
    bound = signs_changed.bind((x, out), target="cuda:90")
    config = bound.config_spec.normalize(bound.default_config())
    artifact = bound.specialization.artifact(config, bound.target)
    found = run(artifact, *({"x": x, "out": out}[p.name] for p in artifact.parameters))
    names = [parameter.name for parameter in artifact.parameters]
    if dtype != torch.int32:  # the greatest int32 has no wider place here
        assert torch.equal(torch.as_tensor(found[names.index("out")]), wanted(x))
    text = compile_artifact(artifact).assembly["ptx"]
    # ptxas leaves out the extension of what these leave in a register of 32 bits; of bytes it does
    # not, since they are cut first.
    if dtype == torch.int16:
        assert "abs.s16" not in text
        assert "neg.s16" not in text
