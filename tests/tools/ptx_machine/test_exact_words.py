"""What single instructions do at the ends of their ranges, and that no word is passed over."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.tools.ptx_machine.test_small_texts import LOADED, STORED, computed, run_text
from tools.ptx_machine.arithmetic import greatest, least
from tools.ptx_machine.kinds import KINDS
from tools.ptx_machine.text import PtxError

NAN = float("nan")


@pytest.mark.parametrize(
    "line",
    [
        "prmt.b32.f4e %r9, %r2, %r2, 1;",
        "cvt.pack.sat.u8.s32.b32 %r9, %r2, %r2, 0;",
        "cvt.rm.f32.s32 %r9, %r2;",
        "cvt.rz.tf32.f32 %r9, %r2;",
        "cvt.rna.f32.f64 %r9, %rd4;",
        "cvt.rz.f32.s64 %r9, %rd4;",
        "min.xorsign.abs.f32 %r9, %r2, %r2;",
        "add.sat.s32 %r9, %r2, %r2;",
        "mad.hi.sat.s32 %r9, %r2, %r2, %r2;",
        "add.rz.f64 %rd9, %rd4, %rd4;",
        "sqrt.rz.f32 %r9, %r2;",
        "bar.red.popc.u32 %r9, 0, %p1;",
        "vote.sync.uni.pred %p2, %p1, -1;",
        "redux.sync.min.abs.f32 %r9, %r2, -1;",
        "mbarrier.arrive_drop.shared.b64 %rd9, [global_smem];",
        "red.async.relaxed.cluster.shared::cluster.add.u32 [%r2], %r2, [%r3];",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.xor.bulk_group [x, {%r1}], [%r3];",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r9}, {%r2}, {%r2}, {%r2};",
        "cp.async.ca.shared.global [%r3], [%rd4], 4, %p1;",
        *(f"{name}.s32 %r9, %r2, %r2, %r2;" for name in ("sad", "slct", "mul24.lo", "dp4a.s32")),
        "set.lt.u32.s32 %r9, %r2, %r2;",
        "testp.finite.f32 %p1, %r2;",
        "fns.b32 %r9, %r2, 0, 1;",
    ],
)
def test_what_is_not_known_is_refused(line: str) -> None:
    x = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(PtxError):
        computed(line, x)


def rounded(exact: Fraction, direction: str) -> float:
    """The nearest float of 32 bits on one side."""
    near = np.float32(float(exact))
    if np.isinf(near):
        near = np.copysign(np.finfo(np.float32).max, near)
    above = exact > Fraction(float(near))
    below = exact < Fraction(float(near))
    up = direction == "rp" or (direction == "rz" and exact < 0)
    if above and up:
        near = np.nextafter(near, np.float32(np.inf))
    if below and not up:
        near = np.nextafter(near, np.float32(-np.inf))
    return float(near)


@pytest.mark.parametrize("direction", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_roundings_in_a_direction(name: str, direction: str) -> None:
    x = (torch.randn(64) * 2.0 ** torch.randint(-30, 30, (64,))).float()
    y = np.float32(1.2345678)
    word = f"0f{y.view(np.uint32):08X}"
    operands = f"%r2, {word}" + (", %r2" if name == "fma" else "")
    found = computed(f"{name}.{direction}.f32 %r9, {operands};", x).view(torch.float32)
    other = Fraction(float(y))
    for each, result in zip(x.tolist(), found.tolist()):
        exact = Fraction(each)
        wanted = {
            "add": exact + other,
            "sub": exact - other,
            "mul": exact * other,
            "fma": exact * other + exact,
        }[name]
        assert result == rounded(wanted, direction)


def test_multiply_adds_are_rounded_once() -> None:
    """In 64 bits the sum is half a step of 32: what was lost decides."""
    x = torch.full((64,), 1 + 2.0**-23)
    body = f"fma.rn.f32 %r9, %r2, %r2, 0f{np.float32(2.0**30 + 2**7).view(np.uint32):08X};"
    lost = Fraction(1 + 2.0**-23) ** 2 + 2**30 + 2**7
    assert computed(body, x).view(torch.float32).tolist() == [float(np.float32(float(lost)))] * 64
    # 1 + 2**-24 is a tie, and 2**-60 more is not.
    body = f"mov.b32 %r3, 0f{np.float32(2.0**-30).view(np.uint32):08X};\n"
    body += f"mov.b32 %r4, 0f{np.float32(1.0).view(np.uint32):08X};\n"
    small = torch.full((64,), 2.0**-24 * 1.5)
    tie = computed(f"{body}fma.rn.f32 %r9, %r3, %r3, %r4;", small).view(torch.float32)
    assert tie.tolist() == [1.0] * 64
    x = torch.full((64,), 2.0**-12 + 2.0**-35)
    body = "mov.b32 %r4, 0f3F800000;\nfma.rn.f32 %r9, %r2, %r3, %r4;"
    body = f"mov.b32 %r3, 0f{np.float32(2.0**-12 * (1 - 2.0**-23)).view(np.uint32):08X};\n{body}"
    exact = Fraction(float(x[0])) * Fraction(float(np.float32(2.0**-12 * (1 - 2.0**-23)))) + 1
    assert exact < 1 + Fraction(1, 2**24)
    assert computed(body, x).view(torch.float32).tolist() == [1.0] * 64


def test_numbers_that_cancel_leave_a_zero_of_the_direction() -> None:
    x = torch.ones(64)
    for direction, bits in (("rm", -(2**31)), ("rz", 0), ("rp", 0)):
        found = computed(f"fma.{direction}.f32 %r9, %r2, 0fBF800000, %r2;", x)
        assert found.tolist() == [bits] * 64


def test_products_saturate() -> None:
    x = torch.tensor([-2.0, 0.5, 3.0, NAN] * 16)
    found = computed("mul.sat.f32 %r9, %r2, 0f3F800000;", x).view(torch.float32)
    assert found.tolist() == [0.0, 0.5, 1.0, 0.0] * 16


def test_extremes_are_no_less_than_zero() -> None:
    x = torch.arange(-32, 32, dtype=torch.int32)
    assert computed("min.relu.s32 %r9, %r2, 5;", x).equal(x.clamp(0, 5))
    assert computed("max.relu.s32 %r9, %r2, -5;", x).equal(x.clamp(min=0))


def test_the_last_bit_is_the_sign_of_fields_behind_it() -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32)
    assert computed("bfe.s32 %r9, %r2, 28, 8;", x).equal(x >> 28)
    assert computed("bfe.u32 %r9, %r2, 28, 8;", x).equal((x >> 28) & 15)
    assert computed("bfe.s32 %r9, %r2, 40, 3;", x).equal(x >> 31)
    assert computed("bfi.b32 %r9, %r2, %r1, 256, 264;", x).equal(
        (torch.arange(64, dtype=torch.int32) & ~255) | (x & 255)
    )


@pytest.mark.parametrize(
    ("to", "bits", "wanted"), [("s64", 64, -(2**63)), ("u64", 64, -(2**63)), ("s32", 32, 0)]
)
def test_nan_as_an_integer(to: str, bits: int, wanted: int) -> None:
    x = torch.full((64,), NAN)
    register = "%rd9" if bits == 64 else "%r9"
    lines = [f"cvt.rzi.{to}.f32 {register}, %r2;"]
    if bits == 64:
        lines.append("shr.u64 %rd9, %rd9, 32;\ncvt.u32.u64 %r9, %rd9;")
        wanted >>= 32
    assert computed("\n".join(lines), x).tolist() == [wanted] * 64
    body = "cvt.f64.f32 %rd9, %r2;\ncvt.rzi.s32.f64 %r9, %rd9;"
    assert computed(body, x).tolist() == [-(2**31)] * 64


def test_nan_has_one_pattern() -> None:
    x = torch.tensor([float("inf"), NAN] * 32)
    found = computed("sub.f32 %r9, %r2, %r2;", x)
    assert found.tolist() == [0x7FFFFFFF] * 64


def test_doubles_are_not_flushed() -> None:
    x = torch.full((64,), 2.0**100)
    body = """
cvt.f64.f32 %rd9, %r2;
mul.f64 %rd9, %rd9, %rd9;
rcp.approx.ftz.f64 %rd9, %rd9;
mul.f64 %rd9, %rd9, 0d4C60000000000000;
cvt.rn.f32.f64 %r9, %rd9;
"""
    wanted = 2.0**-200 * float(np.uint64(0x4C60000000000000).view(np.float64))
    assert computed(body, x).view(torch.float32).tolist() == [float(np.float32(wanted))] * 64
    body = "cvt.f64.f32 %rd9, %r2;\nmul.f64 %rd9, %rd9, 0d3EF0000000000000;\n"
    body += "cvt.rn.ftz.f32.f64 %r9, %rd9;"
    assert computed(body, torch.full((64,), 2.0**-120)).tolist() == [0] * 64


def test_long_integers_become_bfloat16_by_one_rounding() -> None:
    """2**62 + 2**54 is a tie, and one more is not; 53 bits do not tell."""
    x = torch.tensor([0, 1, -1] + [0] * 61, dtype=torch.int32)
    body = """
cvt.s64.s32 %rd9, %r2;
add.s64 %rd9, %rd9, 4629700416936869888;
cvt.rn.bf16.s64 %rs1, %rd9;
cvt.u32.u16 %r9, %rs1;
"""
    even = int(torch.tensor(2.0**62).bfloat16().view(torch.int16))
    assert computed(body, x).tolist()[:3] == [even, even + 1, even]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=str)
def test_zeros_have_an_order(dtype: type) -> None:
    plus, minus = np.zeros(33, dtype), -np.zeros(33, dtype)
    for x, y in ((plus, minus), (minus, plus)):
        assert not np.signbit(greatest(x, y)).any()
        assert np.signbit(least(x, y)).all()


def test_operands_of_tf32_have_ten_bits() -> None:
    bits = np.array([0x3F801FFF, 0x3F803FFF], np.uint32)
    assert KINDS["tf32"].decode(bits).tolist() == [1.0, 1 + 2.0**-10]


def test_several_words_begin_where_all_of_them_do() -> None:
    x = torch.zeros(130, dtype=torch.int32)
    with pytest.raises(PtxError, match="no multiple of 8 bytes"):
        run_text("ld.global.v2.b32 {%r2, %r9}, [%rd4];" + STORED, x, x)
    with pytest.raises(PtxError, match="no multiple of 16 bytes"):
        run_text("mov.b32 %r3, global_smem;\nst.shared.v4.b32 [%r3+8], {%r1, %r1, %r1, %r1};", x, x)
    body = "mov.b32 %r3, global_smem;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r3+8];"
    with pytest.raises(PtxError, match="no multiple of 16 bytes"):
        run_text(body, x, x)


def test_barriers_have_the_numbers_of_those_that_come() -> None:
    """Two pairs of warps, each with a number of its own in a register; lane 0 has another one."""
    x = torch.arange(128, dtype=torch.int32)
    body = """
mov.b32 %r3, global_smem;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
st.shared.b32 [%r5], %r2;
shr.u32 %r6, %r1, 6;
add.s32 %r7, %r6, 1;
setp.lt.u32 %p1, %r1, 64;
@%p1 bra $first;
bar.sync %r7, 64;
bra.uni $both;
$first:
bar.sync %r7, 64;
$both:
xor.b32 %r8, %r4, 252;
add.s32 %r8, %r3, %r8;
ld.shared.b32 %r9, [%r8];
"""
    out = torch.zeros_like(x)
    run_text(LOADED + body + STORED, x, out, threads=128)
    assert out.equal(x ^ 63)
