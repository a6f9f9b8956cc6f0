"""Texts of a few instructions, run by the PTX machine and compared with NumPy and torch."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from tools.ptx_machine.machine import Program, run
from tools.ptx_machine.memory import Memory
from tools.ptx_machine.state import Launch
from tools.ptx_machine.text import PtxError, read_kernel

HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry k(.param .u64 x, .param .u64 out) .reqntid {threads}
{{
.reg .pred %p<9>;
.reg .b16 %rs<9>;
.reg .b32 %r<20>;
.reg .b64 %rd<20>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
{body}
ret;
}}
"""
LOADED = "ld.global.b32 %r2, [%rd4];\n"
STORED = "\nst.global.b32 [%rd5], %r9;"


def run_text(
    body: str,
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    threads: int = 64,
    programs: int = 1,
    order: str = "together",
    late: bool = True,
) -> None:
    """Run a body whose registers 1, 4 and 5 are the thread and its places in both tensors."""
    kernel = read_kernel(HEAD.format(body=body, threads=threads))
    pieces = [(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in (x, out)]
    values = {"x": struct.pack("q", x.data_ptr()), "out": struct.pack("q", out.data_ptr())}
    launch = Launch((programs, 1, 1), threads, 4096, values, Memory(pieces, "tensors'"))
    run(Program(kernel), launch, order=order, late=late)


def computed(body: str, x: torch.Tensor) -> torch.Tensor:
    """What a body makes of each element of 64, in register 9."""
    out = torch.zeros(64, dtype=torch.int32)
    run_text(LOADED + body + STORED, x, out)
    return out


def test_signed_fields_and_shifts() -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32)
    assert computed("bfe.s32 %r9, %r2, 5, 9;", x).equal((x << 18) >> 23)
    assert computed("shr.s32 %r9, %r2, 40;", x).equal(x >> 31)
    assert computed("shl.b32 %r9, %r2, 32;", x).equal(torch.zeros_like(x))


@pytest.mark.parametrize("divisor", [3, -7, 1])
def test_quotients_go_towards_zero(divisor: int) -> None:
    x = torch.randint(-1000, 1000, (64,), dtype=torch.int32)
    wanted = torch.div(x, divisor, rounding_mode="trunc")
    assert computed(f"div.s32 %r9, %r2, {divisor};", x).equal(wanted)
    assert computed(f"rem.s32 %r9, %r2, {divisor};", x).equal(x - wanted * divisor)


def test_high_halves_of_products() -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32)
    wanted = ((x.long() * 1431655766) >> 32).int()
    assert computed("mul.hi.s32 %r9, %r2, 1431655766;", x).equal(wanted)
    wide = computed(
        "mul.wide.s32 %rd9, %r2, %r2;\nshr.u64 %rd9, %rd9, 32;\ncvt.u32.u64 %r9, %rd9;", x
    )
    assert wide.equal(((x.long() * x) >> 32).int())


def test_carries_go_on() -> None:
    x = torch.full((64,), -1, dtype=torch.int32)
    body = "add.cc.u32 %r3, %r2, 1;\naddc.u32 %r9, %r2, 5;"
    assert computed(body, x).equal(torch.full_like(x, 5))


@pytest.mark.parametrize("kind", ["rzi", "rni", "rmi", "rpi"])
def test_floats_become_integers(kind: str) -> None:
    special = [float("nan"), float("inf"), -float("inf"), 3e9, -3e9, 2.5, -2.5, 0.49]
    x = torch.tensor(special * 8)
    function = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[kind]
    wanted = np.clip(np.nan_to_num(function(x.double().numpy()), nan=0), -(2**31), 2**31 - 1)
    found = computed(f"cvt.{kind}.s32.f32 %r9, %r2;", x)
    assert found.tolist() == wanted.astype(np.int64).tolist()


def test_lanes_exchange_words() -> None:
    x = torch.arange(64, dtype=torch.int32)
    found = computed("shfl.sync.bfly.b32 %r9, %r2, 5, 31, -1;", x)
    assert found.equal(x ^ 5)
    found = computed("shfl.sync.up.b32 %r9, %r2, 3, 0, -1;", x)
    assert found.equal(torch.where(x % 32 < 3, x, x - 3))
    found = computed("shfl.sync.idx.b32 %r9, %r2, 7, 31, -1;", x)
    assert found.equal(x // 32 * 32 + 7)


def test_branches_part_and_meet() -> None:
    """Collatz: each lane loops as long as it must."""
    body = """
mov.b32 %r9, 0;
$loop:
setp.eq.s32 %p1, %r2, 1;
@%p1 bra $done;
add.s32 %r9, %r9, 1;
and.b32 %r3, %r2, 1;
setp.eq.s32 %p2, %r3, 0;
@%p2 bra $even;
mad.lo.s32 %r2, %r2, 3, 1;
bra.uni $loop;
$even:
shr.u32 %r2, %r2, 1;
bra.uni $loop;
$done:
"""

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    x = torch.arange(1, 65, dtype=torch.int32)
    assert computed(body, x).tolist() == [steps(n) for n in range(1, 65)]


TURNED = """
mov.b32 %r3, global_smem;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
st.shared.b32 [%r5], %r2;
{barrier}
sub.s32 %r6, %r3, %r4;
ld.shared.b32 %r9, [%r6+252];
"""


@pytest.mark.parametrize("order", ["together", "apart"])
def test_words_that_another_warp_stored_need_a_barrier(order: str) -> None:
    x = torch.arange(64, dtype=torch.int32) + 1
    out = torch.zeros_like(x)
    run_text(LOADED + TURNED.format(barrier="bar.sync 0;") + STORED, x, out, order=order)
    assert out.equal(x.flip(0))
    with pytest.raises(PtxError, match="a race"):
        run_text(LOADED + TURNED.format(barrier="") + STORED, x, out, order=order)


ARRIVED = """
mov.b32 %r3, global_smem;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
setp.eq.s32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [global_smem+1024], {count};
bar.sync 0;
st.shared.b32 [%r5], %r2;
mbarrier.arrive.shared::cta.b64 _, [global_smem+1024];
{{
.reg .pred complete;
waitLoop:
mbarrier.try_wait.parity.shared.b64 complete, [global_smem+1024], 0;
@!complete bra.uni waitLoop;
}}
sub.s32 %r6, %r3, %r4;
ld.shared.b32 %r9, [%r6+252];
"""


@pytest.mark.parametrize("order", ["together", "apart"])
def test_barriers_in_memory_count(order: str) -> None:
    x = torch.arange(64, dtype=torch.int32) + 1
    out = torch.zeros_like(x)
    run_text(LOADED + ARRIVED.format(count=64) + STORED, x, out, order=order)
    assert out.equal(x.flip(0))
    with pytest.raises(PtxError, match="wait for others"):
        run_text(LOADED + ARRIVED.format(count=65) + STORED, x, out, order=order)


COPIED = """
mov.b32 %r3, global_smem;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
cp.async.ca.shared.global [%r5], [%rd4], 4;
cp.async.commit_group;
{wait}
ld.shared.b32 %r9, [%r5];
"""


@pytest.mark.parametrize("late", [True, False])
def test_copies_are_there_when_they_were_waited_for(late: bool) -> None:
    x = torch.arange(64, dtype=torch.int32) + 1
    out = torch.zeros_like(x)
    run_text(COPIED.format(wait="cp.async.wait_group 0;") + STORED, x, out, late=late)
    assert out.equal(x)
    run_text(COPIED.format(wait="") + STORED, x, out, late=late)
    assert out.equal(x) != late


def test_sums_in_memory_reach_all() -> None:
    x, out = torch.zeros(128), torch.zeros(1)
    body = "mov.b32 %r3, 0f3F800000;\natom.global.gpu.acq_rel.add.f32 %r4, [%rd2], %r3;"
    run_text(body, x, out, threads=128, programs=9)
    assert out.item() == 9 * 128


def test_addresses_outside_of_tensors_are_told() -> None:
    x, out = torch.zeros(63, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    with pytest.raises(PtxError, match="outside of tensors"):
        run_text(LOADED, x, out)
    with pytest.raises(PtxError, match="outside of shared memory"):
        run_text("mov.b32 %r3, global_smem;\nst.shared.b32 [%r3+4096], %r1;", out, out)


def test_threads_that_wait_for_those_that_ended_are_told() -> None:
    x = torch.zeros(64, dtype=torch.int32)
    body = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $end;\nbar.sync 0;\n$end:"
    with pytest.raises(PtxError, match="wait for others that have ended"):
        run_text(body, x, x)


def test_memory_of_a_thread_is_its_own() -> None:
    """Addresses may have 32 bits there."""
    x = torch.arange(64, dtype=torch.int32)
    body = """
.local .align 4 .b8 __local_depot0[8];
mov.b64 %rd7, __local_depot0;
cvt.u32.u64 %r3, %rd7;
st.local.b32 [%r3+4], %r2;
st.local.b32 [%rd7], 5;
bar.sync 0;
ld.local.b32 %r4, [%rd7+4];
ld.local.b32 %r5, [%r3];
mad.lo.s32 %r9, %r4, 2, %r5;
"""
    assert computed(body, x).equal(2 * x + 5)


def test_all_nan_are_one() -> None:
    """Whatever made them, so that warps that compute the same store the same."""
    x = torch.tensor([float("inf"), -float("nan"), float("nan"), 1.0] * 16)
    found = computed("sub.f32 %r9, %r2, %r2;", x)
    assert found.tolist() == [0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0] * 16


def test_programs_that_wait_with_barriers_let_others_pass() -> None:
    """The first program looks again and again, its threads together; the second stands behind."""
    body = """
mov.u32 %r3, %ctaid.x;
setp.ne.u32 %p1, %r3, 0;
@%p1 bra $second;
$wait:
bar.sync 0;
ld.global.gpu.acquire.b32 %r9, [%rd2];
bar.sync 0;
setp.eq.s32 %p2, %r9, 0;
@%p2 bra $wait;
ret;
$second:
mov.b32 %r9, 7;
bar.sync 0;
atom.global.gpu.release.exch.b32 %r4, [%rd2], %r9;
"""
    out = torch.zeros(64, dtype=torch.int32)
    run_text(body, torch.zeros(64, dtype=torch.int32), out, programs=2)
    assert out[0] == 7


@pytest.mark.parametrize("order", ["together", "apart"])
def test_parts_of_warps_wait_for_lanes_that_come_back(order: str) -> None:
    """Odd lanes stand behind the exchange, and all lanes of a warp take part in it."""
    body = """
ld.global.b32 %r2, [%rd4];
and.b32 %r3, %r1, 1;
setp.ne.u32 %p1, %r3, 0;
@%p1 bra $behind;
$meet:
shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1;
bra.uni $done;
$behind:
add.s32 %r2, %r2, 100;
bra.uni $meet;
$done:
"""
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    run_text(body + STORED, x, out, order=order)
    others = x ^ 1
    assert out.equal(others + 100 * (others % 2))
