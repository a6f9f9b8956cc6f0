"""LLVM text to object code and assembly, for this machine and for others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import tilesmith.exc as errors
from tests.runtime.native.programs import ECHO, TEAM
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.targets import parse_target

ADD_LANES = """
define void @add(ptr %x, ptr %y) {
  %a = load <16 x float>, ptr %x, align 4
  %b = load <16 x float>, ptr %y, align 4
  %c = fadd <16 x float> %a, %b
  store <16 x float> %c, ptr %x, align 4
  ret void
}
"""


@pytest.mark.parametrize(
    ("target", "register", "times"),
    [("avx512", "zmm", 1), ("avx2", "ymm", 2), ("sse", "xmm", 4), ("neon", "fadd\tv", 4)],
)
def test_code_uses_the_registers_of_its_target(target: str, register: str, times: int):
    text = code_maker(parse_target(f"cpu:{target}")).make_assembly(ADD_LANES)
    adds = [line for line in text.splitlines() if "add" in line and register in line]
    assert len(adds) == times
    wider = {"avx2": "zmm", "sse": "ymm"}.get(target, "no such register")
    assert wider not in text


def test_objects_are_made_for_machines_we_are_not_on():
    for name in ("avx512", "avx2", "sse", "neon"):
        assert code_maker(parse_target(f"cpu:{name}")).make_object(ADD_LANES).startswith(b"\x7fELF")


def test_one_maker_per_target():
    assert code_maker(host_target()) is code_maker(host_target())
    makers = {code_maker(parse_target(f"cpu:{n}")).identity for n in ("avx512", "avx2", "neon")}
    assert len(makers) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define i32 @f() {\n  ret i32 %x\n}", "use of undefined value"),
        ("define void @f() {\n  %x = add i32 1, 2.0\n  ret void\n}", "floating point constant"),
        (
            "define i32 @f() {\n  br label %b\nb:\n  %x = phi i32 [ %x, %b ]\n  ret i32 %x\n}",
            "PHI",
        ),
    ],
)
def test_broken_text_is_our_mistake_and_says_where(text: str, message: str):
    with pytest.raises(errors.InternalError, match=message):
        code_maker(host_target()).make_object(text)
    assert code_maker(host_target()).make_object(ECHO.replace("COUNT", "1")), "still usable"


def test_threads_may_compile_at_the_same_time():
    texts = [ECHO.replace("COUNT", str(n)) for n in range(1, 9)]
    maker = code_maker(host_target())
    expected = [maker.make_object(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(maker.make_object, texts)) == expected


def test_the_same_text_gives_the_same_object():
    maker = code_maker(host_target())
    assert maker.make_object(TEAM) == maker.make_object(TEAM)
