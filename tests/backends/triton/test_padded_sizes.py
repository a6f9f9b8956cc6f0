"""Runtime sizes are padded as far as matrix instructions need it, and as far as is counted."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact

TARGET = "cuda:90"
BYTES = torch.float8_e4m3fn


@tilesmith.kernel(static_shapes=False)
def product_of_each(x: torch.Tensor, y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    m = x.size(0)
    n = y.size(1)
    out = torch.empty([scales.size(0), m, n], dtype=torch.float32, device=x.device)
    for tile in hl.tile(scales.size(0)):
        found = hl.dot(x[:, :], y[:, :], out_dtype=torch.float32)
        out[tile, :, :] = found[None, :, :] * scales[tile][:, None, None]
    return out


@pytest.mark.parametrize(("dtype", "contracted"), [(torch.float16, 16), (BYTES, 32)], ids=str)
def test_only_the_contracted_axis_of_bytes_is_longer(dtype: torch.dtype, contracted: int):
    m, k, n = 5, 3, 7
    args = (torch.zeros(m, k).to(dtype), torch.zeros(k, n).to(dtype), torch.zeros(4))
    bound = product_of_each.bind(args, target=TARGET)
    artifact = bound.to_artifact(target=TARGET)
    padded = sorted(text for name, text in artifact.constexprs if name.endswith("_PADDED"))
    wanted = [("x_size_0", 16), ("x_size_1", contracted), ("y_size_1", 16)]
    assert padded == [f"max(next_power_of_2({name}), {least})" for name, least in wanted]
    scalars = {"x_size_0": m, "x_size_1": k, "y_size_1": n}
    assert compile_artifact(artifact, scalars=scalars).binary
