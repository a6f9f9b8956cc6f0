"""Offsets are 64 bits wide where a tensor reaches beyond 2^31 elements, and 32 bits elsewhere.

Tensors have no memory: strides alone make them large.
"""

from __future__ import annotations

import re

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

FAR = 2**30
LAST = 2**31 - 1
"""The largest offset that 32 bits hold."""
shapes = pytest.mark.parametrize("static_shapes", [True, False])


@helion.kernel
def doubled(x, out):
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] * 2


@helion.kernel
def gathered(x, rows, out):
    for t, u in hl.tile(out.size()):
        out[t, u] = x[rows[t], u]


@helion.kernel
def scattered_sums(x, rows, out):
    for t, u in hl.tile(x.size()):
        hl.atomic_add(out, [rows[t], u], x[t, u])


def tensor(rows: int, columns: int, stride: int, dtype: torch.dtype = torch.float32):
    return torch.empty_strided((rows, columns), (stride, 1), dtype=dtype, device="meta")


def indices(count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.empty([count], dtype=dtype, device="meta")


def code(kernel, *args: torch.Tensor, static_shapes: bool = True, **settings) -> str:
    changed = helion.kernel(kernel.fn, static_shapes=static_shapes, **settings)
    return changed.bind(args, target="cuda:90").to_triton_code(helion.Config(block_sizes=[2, 16]))  # pyright: ignore[reportAttributeAccessIssue]


def names_of_64_bits(source: str) -> set[str]:
    """Names assigned from something converted to 64 bits, and from such names."""
    names: set[str] = set()
    for name, value in re.findall(r"^ +(\w+) = (.*)$", source, re.MULTILINE):
        if ".to(tl.int64)" in value or names & set(re.findall(r"\w+", value)):
            names.add(name)
    return names


@shapes
@pytest.mark.parametrize("is_read", [True, False])
def test_rows_far_apart_are_found_in_64_bits(static_shapes: bool, is_read: bool) -> None:
    far, near = tensor(3, 64, FAR), tensor(3, 64, 64)
    args = (far, near) if is_read else (near, far)
    source = code(doubled, *args, static_shapes=static_shapes)
    stride = str(FAR) if static_shapes else ("x" if is_read else "out") + "_stride_0"
    (row,) = re.findall(rf"(\w+)\[:, None\] \* {stride}", source)
    assert row in names_of_64_bits(source)


@shapes
@pytest.mark.parametrize("stride", [64, FAR, LAST - 63])
def test_what_32_bits_hold_stays_narrow(static_shapes: bool, stride: int) -> None:
    x = tensor(2, 64, stride)
    assert "int64" not in code(doubled, x, tensor(2, 64, 64), static_shapes=static_shapes)


@shapes
def test_one_element_more_is_wide(static_shapes: bool) -> None:
    x = tensor(2, 64, LAST - 62)
    assert "tl.int64" in code(doubled, x, tensor(2, 64, 64), static_shapes=static_shapes)


@pytest.mark.parametrize("kernel", [gathered, scattered_sums], ids=lambda k: k.fn.__name__)
def test_loaded_indices_are_widened_before_the_stride(kernel) -> None:
    far, near = tensor(3, 64, FAR), tensor(5, 64, 64)
    args = (far, indices(5), near) if kernel is gathered else (near, indices(5), far)
    (row,) = re.findall(rf"(\w+)(?:\[:, None\])?\.to\(tl\.int64\) \* {FAR}", code(kernel, *args))
    assert row.startswith("rows")


def test_indices_of_64_bits_need_no_conversion() -> None:
    far, near = tensor(3, 64, FAR), tensor(5, 64, 64)
    assert "rows_tile.to" not in code(gathered, far, indices(5, torch.int64), near)


def test_a_large_tensor_without_large_strides() -> None:
    # 2050 rows of 2^20: each stride is small, the offset of the last row is not.
    x = tensor(2050, 2**20, 2**20, torch.int8)
    source = code(doubled, x, x)
    (row,) = set(re.findall(rf"(\w+)\[:, None\] \* {2**20}", source))
    assert row in names_of_64_bits(source)


def test_the_setting_keeps_positions_narrow() -> None:
    with pytest.raises(helion.exc.IndexOffsetOutOfRangeForInt32):
        code(doubled, tensor(3, 64, FAR), tensor(3, 64, 64), index_dtype=torch.int32)
