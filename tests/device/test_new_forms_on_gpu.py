"""Forms that no default takes yet, on a GPU: right at boundary sizes, the same in every call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
from examples.blackwell_attention import blackwell_attention, reference
from examples.int4_gemm import int4_gemm, pack, unpack
from tests.device.chip import DEVICE, IS_HOPPER, sized
from tilesmith import Config
from tilesmith.numerics.compare import check_against

REPEATS = sized(5, 2)


def run(kernel: Any, args: tuple[Any, ...], config: Config) -> torch.Tensor:
    """The result of a config; calls after the first give the same bits."""
    made = tilesmith.kernel(kernel.fn, config=config, static_shapes=True)
    found = made(*args).clone()
    for _ in range(REPEATS - 1):
        assert torch.equal(found, made(*args))
    return found


@pytest.mark.skipif(not IS_HOPPER, reason="warps have roles on compute capability 9.0")
@pytest.mark.parametrize("pid", ["flat", "persistent_interleaved"])
@pytest.mark.parametrize(
    ("groups", "columns", "stages"), [(1, 64, 2), (2, 128, 2), (2, 64, 3), (3, 64, 3)]
)
@pytest.mark.parametrize("length", [2, 63, 64, 65, 127, 128, *sized((577, 1024), (193,))])
def test_heads_laid_end_to_end(
    length: int, groups: int, columns: int, stages: int, pid: str
) -> None:
    torch.manual_seed(length)
    args = tuple(torch.randn(1, 5, length, 64, device=DEVICE).bfloat16() for _ in range(3))
    config = Config(
        structure="warp_roles",
        block_sizes=[64 * groups, columns],
        num_warps=4 * groups,
        num_stages=stages,
        pid_type=pid,
    )
    checked: dict[str, Any] = {"reduction_length": length, "intermediate": [torch.bfloat16] * 2}
    q, k, v = args
    wanted = reference(q, k, v)
    check_against(run(blackwell_attention, args, config), wanted, **checked)
    for tensor in args:
        tensor[:, 2] = float("nan")
    found = run_once(args, config)
    for head in (0, 1, 3, 4):
        check_against(found[:, head], wanted[:, head], **checked)


def run_once(args: tuple[Any, ...], config: Config) -> torch.Tensor:
    made = tilesmith.kernel(blackwell_attention.fn, config=config, static_shapes=True)
    return made(*args)


LARGE_PRODUCTS = ((64, 4096, 256), (65, 2050, 127), (128, 1024, 1021))
PRODUCTS = [[16, 16, 32], [16, 32, 128], [64, 32, 64], [128, 64, 64]]


@pytest.mark.parametrize("blocks", PRODUCTS, ids=str)
@pytest.mark.parametrize("form", ["pair_products", "pair_parts"])
@pytest.mark.parametrize(
    "shape",
    [(1, 2048, 65), (63, 1030, 31), *sized(LARGE_PRODUCTS, ())],
    ids=str,
)
def test_products_of_pairs(shape: tuple[int, int, int], form: str, blocks: list[int]) -> None:
    m, k, n = shape
    torch.manual_seed(k)
    x = torch.randn(m, k, device=DEVICE).bfloat16()
    packed = pack(torch.randint(-8, 8, [k, n], device=DEVICE))
    sizes = blocks if form == "pair_products" else [*blocks, 512]
    exact = x.double() @ unpack(packed).double()
    found = run(int4_gemm, (x, packed), Config(structure=form, block_sizes=sizes))
    check_against(found, exact, reduction_length=k)
