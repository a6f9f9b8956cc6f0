"""Every tile is computed exactly once, whatever the order, grouping and launch."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import block, function, make, tensor
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.schedule import GridOptions, LoopOptions
from tilesmith.targets import parse_target

PID_TYPES = ("flat", "xyz", "persistent_blocked", "persistent_interleaved")


def counting(*extents: int, begin: int = 0) -> str:
    """Adds 1 to every element of a tensor, by atomics, so that a tile visited twice shows."""
    rank = len(extents)
    blocks = [f"tile_{axis}" for axis in "abc"[:rank]]
    names = ", ".join(f"%{name}0: i32[]" for name in blocks)
    lines = [f"%e{i} = full() {{value={n}}} : i32[]" for i, n in enumerate(extents)]
    ends = ", ".join(f"%e{i}" for i in range(rank))
    begins = ", ".join(["%begin"] * rank)
    quoted = ", ".join(f'"{name}"' for name in blocks)
    body: list[str] = []
    for i, name in enumerate(blocks):
        body.append(f'%i{i} = tile_index(%{name}0) {{block="{name}"}} : i32[{name}]')
        others = [axis for axis in range(rank) if axis != i]
        shape = ", ".join(name if axis == i else "1" for axis in range(rank))
        if others:
            body.append(f"%x{i} = expand_dims(%i{i}) {{axes={others}}} : i32[{shape}]")
    indices = ", ".join(f"%x{i}" if rank > 1 else f"%i{i}" for i in range(rank))
    shape = ", ".join(blocks)
    body.append(f"%one = full() {{value=1}} : i32[{shape}]")
    body.append(
        f'%old = atomic(%out, %one, none, [{indices}]) {{kind="add", slot=0}} : i32[{shape}]'
    )
    return function(
        "counting",
        tensor("out", "i32", *extents),
        *(block(name, i) for i, name in enumerate(blocks)),
        f"%begin = full() {{value={begin}}} : i32[]",
        *lines,
        f"grid([{begins}], [{ends}]) {{blocks=[{quoted}], slot=0}}",
        f"({names}) {{",
        *body,
        "}",
    )


@pytest.mark.parametrize("pid_type", PID_TYPES)
@pytest.mark.parametrize("grouping", [1, 2, 8])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_three_axes_in_any_order(run, pid_type, grouping, order):
    artifact = make(
        counting(3, 13, 9),
        symbols={"tile_a": 1, "tile_b": 4, "tile_c": 2},
        pid_type=pid_type,
        grids={0: GridOptions(order, grouping)},
    )
    (out,) = run(artifact, torch.zeros(3, 13, 9, dtype=torch.int32))
    assert (out == 1).all()


@pytest.mark.parametrize("pid_type", PID_TYPES)
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17])
def test_one_axis_of_any_length(run, pid_type, n):
    artifact = make(counting(n), symbols={"tile_a": 16}, pid_type=pid_type)
    (out,) = run(artifact, torch.zeros(n, dtype=torch.int32))
    assert (out == 1).all()


@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_a_grid_that_does_not_begin_at_zero(run, pid_type):
    artifact = make(counting(11, 6, begin=3), symbols={"tile_a": 4, "tile_b": 2}, pid_type=pid_type)
    (out,) = run(artifact, torch.zeros(11, 6, dtype=torch.int32))
    expected = torch.zeros(11, 6, dtype=torch.int32)
    expected[3:, 3:] = 1
    assert torch.equal(out, expected)


def test_fastest_axis_comes_first_in_the_launch():
    symbols = {"tile_a": 4, "tile_b": 2}
    artifact = make(
        counting(8, 10), symbols=symbols, pid_type="xyz", grids={0: GridOptions((1, 0))}
    )
    assert artifact.grid == ("5", "2")


def test_persistent_loop_takes_its_options():
    options = LoopOptions(num_stages=3, flatten=True, warp_specialize=True)
    artifact = make(
        counting(64), symbols={"tile_a": 16}, pid_type="persistent_interleaved",
        persistent_loop=options, num_sm_multiplier=2, reserved_sms=8,
    )  # fmt: skip
    options_text = "num_stages=3,flatten=True,warp_specialize=True"
    assert f"tl.range(pid,num_pid_a,NUM_SMS*2,{options_text},):" in "".join(artifact.source.split())
    assert artifact.grid == ("min(max(num_sms - 8, 1) * 2, 4)",)
    assert artifact.constexprs == (("NUM_SMS", "max(num_sms - 8, 1)"),)


def test_persistent_launch_without_tiles_starts_no_program():
    artifact = make(counting(0), symbols={"tile_a": 16}, pid_type="persistent_blocked")
    assert eval(artifact.grid[0], {"num_sms": 132, "min": min}) == 0


TWO_GRIDS = function(
    "two_grids",
    tensor("a", "i32", 10),
    tensor("b", "i32", 7, 3),
    block("tile_m", 0),
    block("tile_n", 1),
    """
    %zero = full() {value=0} : i32[]
    %three = full() {value=3} : i32[]
    %seven = full() {value=7} : i32[]
    %ten = full() {value=10} : i32[]
    grid([%zero], [%ten]) {blocks=["tile_m"], slot=0}
    (%m0: i32[]) {
      %rows = tile_index(%m0) {block="tile_m"} : i32[tile_m]
      %one = full() {value=1} : i32[tile_m]
      %old = atomic(%a, %one, none, [%rows]) {kind="add", slot=0} : i32[tile_m]
    }
    grid([%zero, %zero], [%seven, %three]) {blocks=["tile_n", ""], slot=1}
    (%n0: i32[], %j: i32[]) {
      %i = tile_index(%n0) {block="tile_n"} : i32[tile_n]
      %two = full() {value=2} : i32[tile_n]
      %old1 = atomic(%b, %two, none, [%i, %j]) {kind="add", slot=1} : i32[tile_n]
    }
    grid([%zero], [%seven]) {blocks=[""], slot=2}
    (%k: i32[]) {
      %five = full() {value=5} : i32[]
      %old2 = atomic(%b, %five, none, [%k, %zero]) {kind="add", slot=2} : i32[]
    }
    """,
)


@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_several_top_level_loops_share_one_launch(run, pid_type):
    artifact = make(TWO_GRIDS, symbols={"tile_m": 4, "tile_n": 2}, pid_type=pid_type)
    a, b = run(artifact, torch.zeros(10, dtype=torch.int32), torch.zeros(7, 3, dtype=torch.int32))
    assert (a == 1).all()
    assert b.tolist() == [[7, 2, 2]] * 7
    if pid_type == "flat":
        assert artifact.grid == (str(3 + 4 * 3 + 7),)


def test_chiplets_get_neighbouring_tiles():
    artifact = make(
        counting(640), target="hip:gfx942", symbols={"tile_a": 16},
        backend_options={"xcd_remap": True, "waves_per_eu": 2, "matrix_instr_nonkdim": 16},
    )  # fmt: skip
    assert "xcd = pid % 8" in artifact.source
    assert artifact.options["waves_per_eu"] == 2
    assert artifact.options["matrix_instr_nonkdim"] == 16
    compile_artifact(artifact, parse_target("hip:gfx942"))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 23])
def test_chiplet_order_still_visits_every_tile_once(run, n):
    artifact = make(
        counting(n * 4), target="hip:gfx942", symbols={"tile_a": 4},
        backend_options={"xcd_remap": True},
    )  # fmt: skip
    (out,) = run(artifact, torch.zeros(n * 4, dtype=torch.int32))
    assert (out == 1).all()


def test_amd_options_are_not_passed_on_nvidia():
    artifact = make(
        counting(64), symbols={"tile_a": 16}, maxnreg=128, backend_options={"waves_per_eu": 2}
    )
    assert artifact.options == {"num_warps": 4, "num_stages": 1, "maxnreg": 128}
