"""Products with warp roles on a Hopper GPU: tiles of any columns, odd sizes, always the same bits.

Each case runs in a process of its own: one that hangs costs a time limit and no more.
"""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

import tilesmith
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tilesmith.numerics.compare import check_against

IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not IS_HOPPER, reason="needs a Hopper GPU"),
]
MOST_SECONDS = 120.0
TILES = [
    ([192, 96, 64], 3, 5),
    ([128, 144, 64], 2, 5),
    ([128, 320, 64], 2, 4),
    ([256, 160, 64], 2, 4),
    ([192, 128, 64], 3, 5),
    ([192, 256, 64], 3, 3),
    ([128, 256, 64], 2, 4),
    ([64, 96, 32], 1, 2),
    ([128, 160, 64], 2, 5),
]
# One row is no tile to share: such products have no roles (test_warp_role_plans.py).
SIZES = [
    (2, 64, 8),
    (127, 72, 152),
    (577, 1000, 328),
    (300, 160, 296),
    (1536, 1536, 1536),
    (2500, 200, 2504),
]
CASES = [
    (size, *tile, pid)
    for size in SIZES
    for tile in TILES
    for pid in ("flat", "persistent_interleaved")
]


def run(case) -> None:
    """Raise where a result is wrong, or another one the next time."""
    (m, k, n), blocks, groups, stages, pid = case
    torch.manual_seed(0)
    shapes = ((m, k), (k, n), (n,))
    x, y, bias = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
    finish = bias_relu(bias)
    config = tilesmith.Config(
        structure="warp_roles",
        block_sizes=blocks,
        num_warps=4 * groups,
        num_stages=stages,
        pid_type=pid,
    )
    kernel = tilesmith.kernel(matmul.fn, static_shapes=True, config=config)
    found = kernel(x, y, finish)
    check_against(found, matmul_reference(x, y, finish), reduction_length=k)
    assert all(torch.equal(kernel(x, y, finish), found) for _ in range(20))


@pytest.fixture(scope="module")
def results():
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        yield {str(case): pool.submit(run, case) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case, results: dict[str, Future[None]]):
    results[str(case)].result(timeout=MOST_SECONDS)
