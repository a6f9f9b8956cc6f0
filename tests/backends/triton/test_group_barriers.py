"""Code for programs of one grid that wait for each other: tickets number them, counters hold them.

Nothing of it runs here: under Triton's interpreter, which runs one program after the other, a
program would wait for ever.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.triton.kernels import block, function, make, tensor
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS
from tilesmith.runtime.arguments import make_launch_tensor

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
ROWS, COLUMNS, GROUPS = 100, 500, 25
SIZES = {"rows": 4, "columns": 128}

ZEROED = f"torch.zeros(({GROUPS + 1},), dtype=torch.int32, device=x.device)"
COUNTS = f'param %counts: tensor<i32[{GROUPS + 1}], strides=[1], alias=-1> from "{ZEROED}"'
SECOND = """
          group_barrier(%counts, %group, %eight)
          %again = load(%parts, none, [%r, %k]) {slot=5} : f32[rows, 4]
          %peak = reduce(%again) {axis=1, kind="max"} : f32[rows]
          store(%peaks, %peak, none, [%i]) {slot=6}
"""


def text(*, place: str = "%group", second: str = "") -> str:
    """Rows of ``x`` less their totals, of which each program of a row computes a part."""
    return function(
        "centred",
        tensor("x", "f32", ROWS, COLUMNS),
        tensor("parts", "f32", ROWS, 4),
        tensor("out", "f32", ROWS, COLUMNS),
        tensor("peaks", "f32", ROWS),
        COUNTS,
        block("columns", 0),
        block("rows", 1),
        f"""
        %zero = full() {{value=0}} : i32[]
        %width = full() {{value={COLUMNS}}} : i32[]
        %height = full() {{value={ROWS}}} : i32[]
        %four = full() {{value=4}} : i32[]
        %eight = full() {{value=8}} : i32[]
        %height_of_block = block_size() {{block="rows"}} : i32[]
        %width_of_block = block_size() {{block="columns"}} : i32[]
        grid([%zero, %zero], [%width, %height]) {{blocks=["columns", "rows"], slot=0}}
        (%column: i32[], %row: i32[]) {{
          %group = elementwise(%row, %height_of_block) {{fn="floordiv"}} : i32[]
          %number = elementwise(%column, %width_of_block) {{fn="floordiv"}} : i32[]
          %i = tile_index(%row) {{block="rows"}} : i32[rows]
          %j = tile_index(%column) {{block="columns"}} : i32[columns]
          %r = expand_dims(%i) {{axes=[1]}} : i32[rows, 1]
          %c = expand_dims(%j) {{axes=[0]}} : i32[1, columns]
          %tile = load(%x, none, [%r, %c]) {{slot=0}} : f32[rows, columns]
          %sums = reduce(%tile) {{axis=1, kind="sum"}} : f32[rows]
          store(%parts, %sums, none, [%i, %number]) {{slot=1}}
          group_barrier(%counts, {place}, %four)
          %line = arange() : i32[4]
          %k = expand_dims(%line) {{axes=[0]}} : i32[1, 4]
          %all = load(%parts, none, [%r, %k]) {{slot=2}} : f32[rows, 4]
          %total = reduce(%all) {{axis=1, kind="sum"}} : f32[rows]
          %totals = expand_dims(%total) {{axes=[1]}} : f32[rows, 1]
          %wide = broadcast(%totals) : f32[rows, columns]
          %result = elementwise(%tile, %wide) {{fn="sub"}} : f32[rows, columns]
          store(%out, %result, none, [%r, %c]) {{slot=3}}
          {second}
        }}
        """,
    )


def centred(**options: Any) -> Artifact:
    return make(text(), symbols=SIZES, **options)


def lines_of(artifact: Artifact, word: str) -> list[str]:
    body = artifact.source.partition(f"def {artifact.name}(")[2]
    return [line.strip() for line in body.splitlines() if word in line]


def test_group_barrier(golden) -> None:
    golden(centred().source)


def test_programs_take_a_number_in_the_order_in_which_they_start() -> None:
    artifact = centred()
    (draw,) = lines_of(artifact, "atomic_add")
    assert draw == f'pid = tl.atomic_add(counts + {GROUPS}, 1, sem="relaxed", scope="gpu")'
    assert "tl.program_id" not in artifact.source


def test_a_device_needs_room_for_those_who_wait() -> None:
    assert centred().least_sms == LEAST_SMS_FOR_GROUPS
    alone = text().replace("group_barrier(%counts, %group, %four)", "program_barrier()")
    assert make(alone, symbols=SIZES).least_sms == 0


def test_counts_are_made_at_every_launch() -> None:
    (counts,) = [p for p in centred().parameters if p.is_made_at_launch]
    assert counts.name == "counts"
    assert counts.is_zeroed
    assert counts.made_form == ("int32", GROUPS + 1)
    assert make_launch_tensor(counts, "cpu").tolist() == [0] * (GROUPS + 1)


def test_a_group_waits_at_its_own_count() -> None:
    artifact = centred()
    (wait,) = lines_of(artifact, "_wait_for_arrivals")
    assert wait == "_wait_for_arrivals(counts + offset_rows // ROWS, 4)"
    body = artifact.source.partition(f"def {artifact.name}(")[2]
    assert body.index("tl.store(parts") < body.index(wait) < body.index("tl.load(parts")


def test_the_first_place_needs_no_sum() -> None:
    artifact = make(text(place="%zero"), symbols=SIZES)
    assert lines_of(artifact, "_wait_for") == ["_wait_for_arrivals(counts, 4)"]


def test_a_second_barrier_waits_once_more() -> None:
    artifact = make(text(second=SECOND), symbols=SIZES)
    arrivals = [line.rpartition(", ")[2] for line in lines_of(artifact, "_wait_for")]
    assert arrivals == ["4)", "8)"]
    assert artifact.source.count("def _wait_for_arrivals(") == 1


def test_programs_need_not_be_resident_all_at_once() -> None:
    artifact = centred()
    assert "launch_cooperative_grid" not in artifact.options
    assert "num_sms" not in "".join(artifact.grid)


@pytest.mark.parametrize("pid_type", ["xyz", "persistent_blocked", "persistent_interleaved"])
def test_only_flat_launches_have_tickets(pid_type: str) -> None:
    with pytest.raises(AssertionError):
        centred(pid_type=pid_type)


def test_tickets_are_not_dealt_out_to_chiplets() -> None:
    options: dict[str, Any] = {"target": "hip:gfx942", "backend_options": {"xcd_remap": True}}
    assert "xcd" not in centred(**options).source
    barrier = text().replace("group_barrier(%counts, %group, %four)", "program_barrier()")
    assert "xcd" in make(barrier, symbols=SIZES, **options).source


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("second", ["", SECOND], ids=["one", "two"])
def test_compiles(target: str, second: str) -> None:
    artifact = make(text(second=second), symbols=SIZES, target=target)
    assert compile_artifact(artifact).binary


def test_arrivals_release_and_waits_acquire() -> None:
    assembly = compile_artifact(centred()).assembly["ptx"]
    assert "atom.global.gpu.acq_rel.add" in assembly
    assert "ld.global.gpu.acquire" in assembly or "atom.global.gpu.acquire" in assembly
    assert "atom.global.gpu.relaxed.add" in assembly
