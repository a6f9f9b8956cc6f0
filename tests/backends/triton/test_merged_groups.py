"""Groups of rows that are computed as one: by definition, by Triton's interpreter, and which are.

Offsets are whatever they like: groups may be empty, overlap, leave rows out and come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.grouped_gemm import grouped_gemm
from tests.interpreted import run_function
from tilesmith.analysis.merged_groups.site import (
    MergedGroups,
    Reason,
    find_merged_groups,
    has_known_middle,
)
from tilesmith.artifacts import Artifact
from tilesmith.cli.explain import explain_lines
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

FORM = "merged_groups"
ROWS = 90
OFFSETS = {
    "one after the other": [0, 16, 16, 17, 50, 90],
    "gaps at the ends": [20, 30, 30, 70],
    "descending": [90, 60, 10, 0],
    "to and fro": [33, 5, 60, 60, 20, 80],
    "twice": [0, 90, 0, 90],
    "only between": [5, 9, 5, 9, 4],
    "tiles of their own": [0, 16, 32, 48],
    "no group": [40],
    "more than are looked at together": [*range(10, 80), 30, 75, 2],
}


BLOCKS = {"tile_m": 16, "tile_n": 16, "tile_k": 16, "merged": 64}


def bind(kernel: Any, *args: Any, target: str = "cuda:90") -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target=target)


def inputs(offsets: list[int], *, kind: torch.dtype = torch.int32) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    packed, b = (torch.randn(s, generator=make) / 4 for s in ((ROWS, 48), (48, 40)))
    return [packed.half(), b.half(), torch.tensor(offsets, dtype=kind)]


def rows_of(offsets: list[int]) -> torch.Tensor:
    """Which rows some group has."""
    taken = torch.zeros(ROWS, dtype=torch.bool)
    for begin, end in pairwise(offsets):
        taken[begin : max(begin, end)] = True
    return taken


def of_launch(packed: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> dict[str, Any]:
    """What the launch is given, with a result of which nothing is known."""
    out = torch.full([len(packed), b.size(1)], float("nan"), dtype=packed.dtype)
    given: dict[str, Any] = {"packed": packed, "b": b, "offsets": offsets, "out": out}
    given |= {"packed_size_0": len(packed), "packed_size_1": packed.size(1)}
    given |= {"offsets_size_0": len(offsets), "groups": len(offsets) - 1}
    return given | {"out_size_0": len(packed), "out_size_1": b.size(1), "out_stride_0": b.size(1)}


def found_by(run: Any, artifact: Artifact, given: dict[str, Any]) -> torch.Tensor:
    names = [parameter.name for parameter in artifact.parameters]
    return dict(zip(names, run(artifact, *(given[name] for name in names))))["out"]


@pytest.mark.parametrize("indexing", ["tensor_descriptor", "pointer"])
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=list(OFFSETS))
def test_rows_of_groups_are_stored_and_no_others(
    run: Any, offsets: list[int], indexing: str
) -> None:
    args = inputs(offsets)
    # Numbers of rows that no group has are seen by nobody.
    args[0][~rows_of(offsets)] = float("nan")
    slots = [*["pointer"] * 4, indexing, indexing, "pointer"]
    config = Config(structure=FORM, block_sizes=[16, 16, 16], indexing=slots)
    artifact = bind(grouped_gemm, *inputs([0, 20, ROWS])).to_artifact(config)
    assert ("packed_desc.load" in artifact.source) == (indexing == "tensor_descriptor")
    exact = args[0].double() @ args[1].double()
    found = found_by(run, artifact, of_launch(*args)).double()
    torch.testing.assert_close(found, exact, rtol=2e-3, atol=2e-3, equal_nan=True)


def check_same(bound: BoundKernel, given: dict[str, Any], blocks: dict[str, int]) -> torch.Tensor:
    """What programs for each group give; no row is read that is not there."""
    found: list[torch.Tensor] = []
    spec = bound.config_spec
    for function in (spec.function, spec.forms()[FORM].function):
        out = given["out"].clone()
        run_function(function, {**given, "out": out}, blocks, checked=True)
        found.append(out)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6, equal_nan=True)
    return found[1]


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=list(OFFSETS))
def test_groups_are_merged_by_definition(offsets: list[int], kind: torch.dtype) -> None:
    packed, b, places = inputs(offsets, kind=kind)
    args = (packed.float(), b.float(), places)
    bound = bind(grouped_gemm, *args[:2], inputs([0, 20, ROWS], kind=kind)[2])
    out = check_same(bound, of_launch(*args), BLOCKS)
    assert torch.equal(~out.isnan().all(1), rows_of(offsets))


@tilesmith.kernel(static_shapes=False)
def counted(
    x: torch.Tensor,
    b: torch.Tensor,
    begins: torch.Tensor,
    counts: torch.Tensor,
    wanted: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """Groups anywhere, some of which nobody wants; of the scale there may be fewer rows."""
    n, k = hl.specialize(b.size(1)), hl.specialize(b.size(0))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(begins.size(0)):
        if wanted[group] != 0:
            begin = begins[group].to(torch.int64)
            count = counts[group]
            for tile_m, tile_n in hl.tile([begin, 0], [begin + count, n]):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
                out[tile_m, tile_n] = torch.tanh(acc) * scale[tile_m][:, None]
    return out


COUNTED = {
    "apart": ([50, 3, 20], [10, 7, 20], [1, 1, 1]),
    "unwanted": ([50, 3, 20], [10, 7, 20], [0, 1, 0]),
    "meeting": ([10, 15, 10], [10, 40, 0], [1, 1, 1]),
    "less than none": ([10, 40], [-5, 3], [1, 1]),
    "none": ([], [], []),
}


def bind_counted(dtype: torch.dtype) -> BoundKernel:
    packed, b, places = inputs([0, 0, 0])
    return bind(counted, packed.to(dtype), b.to(dtype), *[places] * 3, torch.rand(61))


@pytest.mark.parametrize("groups", COUNTED.values(), ids=list(COUNTED))
def test_groups_may_be_anywhere(groups: tuple[list[int], ...]) -> None:
    begins, counts, wanted = (torch.tensor(part, dtype=torch.int32) for part in groups)
    packed, b, _ = inputs([0])
    scale = torch.rand(61)
    args = [packed.float(), b.float(), begins, counts, wanted, scale]
    out = torch.full([ROWS, 40], float("nan"))
    given = dict(zip(("x", "b", "begins", "counts", "wanted", "scale", "out"), [*args, out]))
    given |= {"x_size_0": ROWS, "begins_size_0": len(begins), "counts_size_0": len(begins)}
    given |= {"wanted_size_0": len(begins), "scale_size_0": 61, "out_size_0": ROWS}
    given |= {"out_stride_0": 40, "x_size_1": 48, "x_stride_0": 48, "out_size_1": 40}
    given |= {"b_stride_0": 40}
    check_same(bind_counted(torch.float32), given, {**BLOCKS, "begins_size_0": len(begins)})


@pytest.mark.parametrize("groups", COUNTED.values(), ids=list(COUNTED))
def test_groups_anywhere_by_triton(run: Any, groups: tuple[list[int], ...]) -> None:
    begins, counts, wanted = (torch.tensor(part, dtype=torch.int32) for part in groups)
    packed, b, _ = inputs([0])
    args = [packed, b, begins, counts, wanted, torch.rand(61)]
    config = Config(structure=FORM, block_sizes=[16, 16, 16])
    artifact = bind_counted(torch.float16).to_artifact(config)
    out = torch.full([ROWS, 40], float("nan"))
    given: dict[str, Any] = dict(zip(("x", "b", "begins", "counts", "wanted", "scale"), args))
    given |= {"out": out, "x_size_0": ROWS, "begins_size_0": len(begins), "x_stride_0": 48}
    given |= {"out_stride_0": 40, "b_stride_0": 40}
    found = found_by(run, artifact, given).double()
    exact = torch.full([ROWS, 40], float("nan"), dtype=torch.float64)
    for begin, count, is_wanted in zip(*groups):
        rows = slice(begin, begin + max(0, count) * is_wanted)
        scale = args[5][rows].double()[:, None]
        exact[rows] = torch.tanh(args[0][rows].double() @ args[1].double()) * scale
    torch.testing.assert_close(found, exact, rtol=2e-3, atol=2e-3, equal_nan=True)


def kernel_of(body: Callable[..., torch.Tensor]) -> Any:
    return tilesmith.kernel(body, static_shapes=False)


@kernel_of
def own_matrix(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k.index + group, tile_n])
            out[tile_m, tile_n] = acc
    return out


@kernel_of
def meeting(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m, tile_n] = acc - acc.amax(0)
    return out


@kernel_of
def numbered(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m, tile_n] = acc + (tile_m.index - tile_m.begin)[:, None]
    return out


@kernel_of
def elsewhere(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rows begin again with each group, and who comes last is seen."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        begin = offsets[group]
        for tile_m, tile_n in hl.tile([begin, 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m.index + 1, tile_n] = acc
    return out


@kernel_of
def added(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """A row of two groups is added twice."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.zeros([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            hl.atomic_add(out, [tile_m, tile_n], acc)
    return out


@kernel_of
def twice(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """What a row has been is part of what it becomes."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.zeros([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m, tile_n] = out[tile_m, tile_n] + acc
    return out


@kernel_of
def counting(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Each group leaves a note."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.zeros([x.size(0), n], dtype=torch.float32, device=x.device)
    notes = torch.zeros([offsets.size(0)], dtype=torch.int32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        notes[group] = 1
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m, tile_n] = acc
    return out


APART = {
    own_matrix: "what is computed for a row depends on its group",
    meeting: "what is computed for a row depends on others",
    numbered: "what is computed for a row depends on others",
    elsewhere: "rows are not stored to places of their own",
    added: "it reads what it writes",
    twice: "it reads what it writes",
    counting: "more is done for a group than to find its rows",
}


@pytest.mark.parametrize(("kernel", "reason"), APART.items(), ids=[k.__name__ for k in APART])
def test_groups_that_differ_in_more_than_rows_stay_apart(kernel: Any, reason: str) -> None:
    bound = bind(kernel, *inputs([0, 16, 90]))
    assert FORM not in bound.config_spec.forms()
    found = find_merged_groups(bound.config_spec.function)
    assert isinstance(found, Reason)
    assert found.text == reason
    assert any(f"without    {FORM}: {reason}" in line for line in explain_lines(bound, 1))


def test_explain_says_why_warps_have_no_roles() -> None:
    lines = [*explain_lines(bind_counted(torch.float16), 1)]
    reason = "without    merged_roles: a group does not end where the next one begins"
    assert any(reason in line for line in lines)
    lines = [*explain_lines(bind(with_bias, *inputs([0, 9, 90]), torch.rand(3), 0), 1)]
    assert any("without    merged_roles: bias may have fewer rows" in line for line in lines)


def test_what_is_no_loop_over_groups_has_no_reason() -> None:
    from examples.matmul import matmul

    x, y = (torch.empty(64, 64, dtype=torch.float16, device="meta") for _ in range(2))
    assert find_merged_groups(bind(matmul, x, y).config_spec.function) is None


def site_of(bound: BoundKernel) -> MergedGroups:
    found = find_merged_groups(bound.config_spec.function)
    assert isinstance(found, MergedGroups)
    return found


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_a_row_between_first_and_last_group_needs_no_search(kind: torch.dtype) -> None:
    """Only where each group ends where the next one begins, and none is left out."""
    chained = bind(grouped_gemm, *inputs([0, 9, 90], kind=kind))
    assert site_of(chained).chain is not None
    assert has_known_middle(chained.config_spec.forms()[FORM].function)
    free = bind_counted(torch.float16)
    assert site_of(free).chain is None
    assert not has_known_middle(free.config_spec.forms()[FORM].function)
    assert free.config_spec.default_config()["structure"] == "spread_loops"
    assert [load.tensor.name for load in site_of(free).hidden] == ["scale"]


@kernel_of
def with_bias(
    x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, bias: torch.Tensor, has_bias: int
) -> torch.Tensor:
    """The bias may be a tensor without rows."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            if has_bias > 0:
                acc = acc + bias[tile_m][:, None]
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
            out[tile_m, tile_n] = acc
    return out


def test_only_what_is_loaded_for_certain_says_how_many_rows_there_are() -> None:
    found = site_of(bind(with_bias, *inputs([0, 9, 90]), torch.rand(3), 0))
    assert found.length == "x_size_0"
    assert [load.tensor.name for load in found.hidden] == ["bias"]


@kernel_of
def divided(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Groups with a size of zero are not asked for."""
    n, k = hl.specialize((b.size(1), b.size(0)))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for group in hl.grid(offsets.size(0)):
        size = offsets[group]
        if size > 0:
            for tile_m, tile_n in hl.tile([0, 0], [x.size(0) // size, n]):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    acc = torch.addmm(acc, x[tile_m, tile_k], b[tile_k, tile_n])
                out[tile_m, tile_n] = acc
    return out


def test_nobody_divides_by_groups_that_are_not_asked_for() -> None:
    found = find_merged_groups(bind(divided, *inputs([0, 9, 90])).config_spec.function)
    assert isinstance(found, Reason)
    assert found.text == "more is done for a group than to find its rows"
