"""Products with warp roles on a Hopper GPU: tiles of any columns, odd sizes, always the same bits.

Each case runs in a process of its own: one that hangs costs a time limit and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

import tilesmith
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.device.chip import DEVICE, IS_HOPPER, IS_PTX, sized
from tilesmith.numerics.compare import check_against

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
]
# One row is no tile to share: such products have no roles (test_warp_role_plans.py).
SIZES = [
    *((2, 64, 8), (127, 72, 152)),
    *sized(((577, 1000, 328), (1536, 1536, 1536), (2500, 200, 2504)), ((257, 136, 328),)),
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
    x, y, bias = (torch.randn(shape, device=DEVICE).bfloat16() for shape in shapes)
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
    assert all(torch.equal(kernel(x, y, finish), found) for _ in range(sized(20, 1)))


@pytest.fixture(scope="module")
def finish():
    """Waits for a case; on a GPU all are begun at once."""
    if IS_PTX:
        yield run
        return
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        results = {str(case): pool.submit(run, case) for case in CASES}
        yield lambda case: results[str(case)].result(timeout=MOST_SECONDS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case, finish: Callable[..., None]):
    finish(case)
