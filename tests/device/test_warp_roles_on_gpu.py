"""Attention with warp roles on a Hopper GPU: right at odd lengths, in any config, always the same.

Cases run in processes side by side: each compiles for a second or two, and one that hangs costs a
time limit and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch

from tests.device.chip import DEVICE, IS_HOPPER, IS_PTX, sized
from tests.device.warp_role_cases import Case, run_case

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not IS_HOPPER, reason="needs a Hopper GPU"),
]
ODD = sized(577, 193)
"""A prime; of several tiles, the last one short."""
LENGTHS = (1, 63, 64, 65, 127, ODD, *sized((1024, 4095, 4097), ()))
LONG, LONGER = sized((1024, 1300), (257, 257))
SEEDS = sized(20, 4)
MOST_SECONDS = 90.0
"""For one case, those before it in the queue included."""
LENGTH_CASES = [
    *(Case(kind, n, d) for kind in ("plain", "causal") for n in LENGTHS for d in (64, 128, 256)),
    *(Case(kind, n, 128) for kind in ("bias", "lse") for n in LENGTHS),
    *(Case(kind, n, d) for kind in ("bias", "lse") for n in (65, LONG) for d in (64, 256)),
    *(
        Case(kind, n, d)
        for kind in ("window", "soft cap")
        for n in (65, sized(1300, LONG))
        for d in (64, 128)
    ),
    *(Case("rounded", n, d) for n in (65, ODD, LONG) for d in (64, 128)),
    *(Case("fp8", n, d) for n in (64, 80, *sized((1024, 4160), (192,))) for d in (64, 128, 256)),
    *(Case(kind, ODD, 64, heads=1) for kind in ("plain", "causal", "lse")),
]
GRADIENT_CASES = [
    *(
        Case(f"{way}{kind}", n, d)
        for way in ("", "causal ")
        for kind, d in (("queries", 128), ("keys and values", 128), ("keys and values", 64))
        for n in LENGTHS
    ),
    *(
        Case(f"{way}{kind}", n, 256)
        for way in ("", "causal ")
        for kind in ("queries", "keys", "values")
        for n in (65, LONG, *sized((4097,), ()))
    ),
    *(
        Case(kind, n, 64, layout)
        for kind in ("causal queries", "causal keys and values")
        for n, layout in ((ODD, "strided"), (129, "sliced"))
    ),
    *(
        Case(kind, ODD, d, seed=seed, repeats=50 if seed < 2 else 3)
        for kind, d in (("queries", 128), ("causal keys and values", 64))
        for seed in range(SEEDS)
    ),
]
LAYOUTS = (
    *((ODD, "strided"), (129, "sliced"), (264, "transposed")),
    *((ODD, "misaligned"), (ODD, "expanded")),
)
LAYOUT_CASES = [
    *(Case(kind, n, 64, layout) for kind in ("lse", "shared") for n, layout in LAYOUTS),
    # These reshape their arguments, which copies what is expanded.
    *(Case(kind, n, 64, layout) for kind in ("plain", "causal") for n, layout in LAYOUTS[:-1]),
    *(Case(kind, ODD, 64, layout) for kind in ("queries", "keys and values")
      for layout in ("misaligned", "expanded")),
]  # fmt: skip
TYPE_CASES = [
    *(
        Case(kind, n, d, dtype=torch.float16)
        for kind in ("plain", "causal", "lse", "window", "soft cap", "shared")
        for n, d in ((65, 64), (ODD, 128), (LONG, 256))
    ),
    *(Case(kind, ODD, 128, dtype=torch.float16) for kind in ("queries", "causal keys and values")),
    *(Case(kind, n, d) for kind in ("shared",) for n in LENGTHS for d in (64, 128)),
    *(Case(kind, ODD, d) for kind in ("plain", "causal", "shared") for d in (8, 16, 80, 96, 112)),
]
"""Also head sizes that are no power of two, which have no roles, and rows that see nothing."""
CONFIG_CASES = [
    Case(kind, n, d, seed=seed, repeats=50 if seed < 2 else 3)
    for kind, n, d in (
        *(("plain", ODD, 128), ("causal", ODD, 64), ("bias", ODD, 64), ("lse", ODD, 128)),
        *(("fp8", sized(640, 128), 128), ("shared", ODD, 128)),
    )
    for seed in range(SEEDS)
]
CASES = [*LENGTH_CASES, *GRADIENT_CASES, *LAYOUT_CASES, *TYPE_CASES, *CONFIG_CASES]


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], str]]:
    """Gives what becomes of a case; on a GPU all are begun at once."""
    if IS_PTX:
        yield lambda case: run_case(replace(case, repeats=2), DEVICE)
        return
    folder = tmp_path_factory.mktemp("caches")
    workers = max(1, min(12, os.cpu_count() or 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILESMITH_CACHE_DIR", str(folder / "tilesmith"))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        pool = get_context("spawn").Pool(workers)
        results = {case: pool.apply_async(run_case, (case,)) for case in CASES}
        yield lambda case: results[case].get(MOST_SECONDS)
        # Not close and join: a kernel that hangs would be waited for.
        pool.terminate()


@pytest.mark.parametrize("case", LENGTH_CASES, ids=str)
def test_boundary_lengths(case, find):
    find(case)


@pytest.mark.parametrize("case", GRADIENT_CASES, ids=str)
def test_gradients(case, find):
    find(case)


@pytest.mark.parametrize("case", LAYOUT_CASES, ids=str)
def test_inputs_that_are_views(case, find):
    find(case)


@pytest.mark.parametrize("case", TYPE_CASES, ids=str)
def test_types_and_heads(case, find):
    find(case)


@pytest.mark.parametrize("case", CONFIG_CASES, ids=str)
def test_random_configs(case, find):
    find(case)


def test_random_configs_differ(find):
    found = {find(case) for case in CONFIG_CASES}
    assert len(found) > len(CONFIG_CASES) // 4
