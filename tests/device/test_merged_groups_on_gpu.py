"""Groups of rows computed as one, with offsets of any kind: right rows, and no others written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
import torch

from examples.grouped_gemm import grouped_gemm
from tests.device.chip import DEVICE, HAS_CHIP, IS_HOPPER
from tilesmith import Config
from tilesmith.numerics.compare import check_against

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not HAS_CHIP, reason="needs a GPU"),
]
ROWS, INNER, COLUMNS = 389, 136, 200
PRIMES = (2, 61, 3, 67, 1, 127, 5, 31, 83)
OFFSETS = {
    "one after the other": [0, 128, 128, 129, 257, ROWS],
    "groups of one row": list(range(ROWS + 1)),
    "all rows in one group": [0, ROWS],
    "all rows in the last of many": [*[0] * 200, ROWS],
    "all rows in the first of many": [0, *[ROWS] * 200],
    "many empty groups between": [0, *[65] * 70, *[66] * 70, *[192] * 70, ROWS],
    "primes": [0, *accumulate(PRIMES)],
    "one row at a tile's end": [127, 128],
    "one row at a tile's begin": [128, 129],
    "the last row": [ROWS - 1, ROWS],
    "gaps at the ends": [70, 130, 130, 250],
    "nothing but empty groups": [64] * 130,
    "descending": [ROWS, 200, 64, 0],
    "to and fro": [100, 5, 200, 200, 64, 380],
    "twice": [0, ROWS, 0, ROWS],
    "only between": [65, 70, 65, 70, 66],
    "found after many": [*range(300, 230, -1), 10, 150, 20],
}
TILES = {
    "tile of 128x128": ([128, 128, 64], 8, 3),
    "tile of 192x128": ([192, 128, 64], 12, 3),
    "tile of 128x256": ([128, 256, 64], 8, 3),
    "tile of 64x64": ([64, 64, 32], 4, 2),
}


@pytest.fixture(autouse=True)
def _new_tensors_are_nan() -> Iterator[None]:
    """So that rows that are not written are seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def taken(offsets: list[int], rows: int) -> torch.Tensor:
    """Which rows some group has."""
    found = torch.zeros(rows, dtype=torch.bool)
    for begin, end in pairwise(offsets):
        found[begin : max(begin, end)] = True
    return found


def placed_by(args: list[torch.Tensor], moved: int = -1) -> list[torch.Tensor]:
    """The same on the device, one of them an element from where tensors begin."""
    placed = [x.to(DEVICE) for x in args]
    if moved >= 0:
        x = placed[moved]
        memory = torch.empty(x.numel() + 1, dtype=x.dtype, device=DEVICE)
        placed[moved] = memory[1:].view_as(x).copy_(x)
    return placed


def inputs(
    offsets: list[int], kind: torch.dtype = torch.int32, dtype: torch.dtype = torch.bfloat16
) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    packed, b = (torch.randn(s, generator=make) for s in ((ROWS, INNER), (INNER, COLUMNS)))
    # Numbers of rows that no group has are seen by nobody.
    packed[~taken(offsets, ROWS)] = float("nan")
    return [packed.to(dtype), b.to(dtype), torch.tensor(offsets, dtype=kind)]


def check(args: list[torch.Tensor], config: Config, moved: int = -1) -> None:
    """Rows of groups are products, others keep what was there; twice the same."""
    packed, b, offsets = args
    placed = placed_by(args, moved)
    bound = grouped_gemm.bind(grouped_gemm.normalize_args(*placed))
    run = bound.compile_config(config)
    found = run(*placed).cpu()
    rows = taken(offsets.tolist(), len(packed))
    exact = packed.double() @ b.double()
    check_against(found[rows], exact[rows], reduction_length=packed.size(1))
    assert found[~rows].isnan().all()
    again = run(*placed).cpu()
    assert torch.equal(again[rows], found[rows])
    assert again[~rows].isnan().all()


@pytest.mark.parametrize("rows", [0, 1, 2, 193])
def test_default_of_few_rows(rows: int) -> None:
    packed, b = (torch.randn(s).bfloat16() for s in ((rows, 512), (512, 520)))
    for offsets in ([0, rows // 3, rows // 3, rows], [0, rows], [rows, rows], [rows]):
        args = [packed, b, torch.tensor(offsets, dtype=torch.int32)]
        found = grouped_gemm(*(x.to(DEVICE) for x in args)).cpu()
        held = taken(offsets, rows)
        exact = packed[held].double() @ b.double()
        check_against(found[held], exact, reduction_length=512)
        assert found[~held].isnan().all()


def config_of(form: str, tile: str, pid: str) -> Config:
    blocks, warps, stages = TILES[tile]
    options: dict[str, Any] = {"block_sizes": blocks, "num_warps": warps, "num_stages": stages}
    return Config(structure=form, pid_type=pid, **options)


ROLES = [
    ("merged_roles", "tile of 128x128", "persistent_interleaved"),
    ("merged_roles", "tile of 192x128", "persistent_interleaved"),
    ("merged_roles", "tile of 192x128", "flat"),
    ("merged_roles", "tile of 128x256", "flat"),
]
FORMS = [
    ("merged_groups", "tile of 128x128", "flat"),
    ("merged_groups", "tile of 64x64", "persistent_interleaved"),
    *(ROLES if IS_HOPPER else ()),
]
by_form = pytest.mark.parametrize(("form", "tile", "pid"), FORMS)


@by_form
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=list(OFFSETS))
def test_rows_of_groups_are_stored_and_no_others(
    offsets: list[int], form: str, tile: str, pid: str
) -> None:
    check(inputs(offsets), config_of(form, tile, pid))


@by_form
@pytest.mark.parametrize("moved", [0, 1], ids=["rows", "matrix"])
def test_misaligned_tensors(moved: int, form: str, tile: str, pid: str) -> None:
    """They cannot be described to the copy engine."""
    check(inputs(OFFSETS["to and fro"]), config_of(form, tile, pid), moved)


@by_form
@pytest.mark.parametrize("rows", [2, 63, 64, 127, 128, 129, 193])
def test_few_rows(rows: int, form: str, tile: str, pid: str) -> None:
    packed, b, _ = inputs([0, ROWS])
    for offsets in ([0, rows // 3, rows // 3, rows], [0, rows]):
        args = [packed[:rows].clone(), b, torch.tensor(offsets, dtype=torch.int32)]
        check(args, config_of(form, tile, pid))


@by_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_offsets_of_64_bits(dtype: torch.dtype, form: str, tile: str, pid: str) -> None:
    for name in ("to and fro", "primes", "found after many"):
        check(inputs(OFFSETS[name], torch.int64, dtype), config_of(form, tile, pid))


@pytest.mark.skipif(not IS_HOPPER, reason="roles")
@pytest.mark.parametrize("seed", range(12))
def test_random_configs_and_offsets(seed: int) -> None:
    random = Random(seed)
    offsets = [random.randint(0, ROWS) for _ in range(random.choice((2, 9, 66, 130)))]
    args = inputs(sorted(offsets) if seed % 2 else offsets)
    placed = placed_by(args)
    form = random.choice(("merged_groups", "merged_roles"))
    spec = grouped_gemm.bind(grouped_gemm.normalize_args(*placed)).config_spec.forms()[form]
    check(args, spec.random_config(random).updated(structure=form))
