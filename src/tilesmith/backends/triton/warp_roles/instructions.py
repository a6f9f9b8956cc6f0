"""What lies between products in fewer instructions than the compiler finds by itself.

Left alone it rounds some tiles one number at a time, on units that serve a sixteenth of the threads
at once and takes pairs of 16-bit numbers apart where two loops hand a tile on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, triton_dtype
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.dtypes import BF16, F8E4M3, F16, F32, DType
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast

_PTX_NAMES = {BF16: "bf16", F16: "f16"}
SHORT_FUNCTIONS = {
    "_pack": '''
@gluon.jit
def _pack(x):
    """Neighbours as one number of 32 bits: what loops hand on stays in whole registers."""
    low, high = gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))
    return gl.inline_asm_elementwise(
        "mov.b32 $0, {$1, $2};", "=r,h,h", [low, high], gl.int32, is_pure=True, pack=1
    )
''',
    **{
        f"_unpack_{name}": f'''
@gluon.jit
def _unpack_{name}(x, LAYOUT: gl.constexpr):
    """What was packed, in the layout of an operand."""
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {{$0, $1}}, $2;",
        "=h,=h,r",
        [x],
        ({triton_dtype(dtype)}, {triton_dtype(dtype)}),  # in a variable, Triton 3.9 fails
        is_pure=True,
        pack=1,
    )
    return gl.convert_layout(gl.join(low, high).reshape([x.shape[0], 2 * x.shape[1]]), LAYOUT)
'''
        for dtype, name in _PTX_NAMES.items()
    },
    "_unpack_fp8": '''
@gluon.jit
def _unpack_fp8(x, LAYOUT: gl.constexpr):
    """What was packed, in the layout of an operand."""
    first = (x & 255).to(gl.uint8).to(gl.float8e4nv, bitcast=True)
    second = ((x >> 8) & 255).to(gl.uint8).to(gl.float8e4nv, bitcast=True)
    third = ((x >> 16) & 255).to(gl.uint8).to(gl.float8e4nv, bitcast=True)
    fourth = ((x >> 24) & 255).to(gl.uint8).to(gl.float8e4nv, bitcast=True)
    pairs = gl.join(gl.join(first, third), gl.join(second, fourth))
    whole: gl.constexpr = [x.shape[0], 16 * x.shape[1]]
    return gl.convert_layout(pairs.reshape(whole), LAYOUT)
''',
    "_count": '''
@gluon.jit
def _count(TURNS: gl.constexpr):
    """Turns that the assembler must not know: it would count them in eight bits.

    Of three groups, ptxas 12.8 then lets the last one read wrong tiles.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [TURNS], gl.int32, is_pure=False, pack=1
    )
''',
    "_hold": '''
@gluon.jit
def _hold(x):
    """The same sums, computed before the wait that follows: the assembler would move them past it.

    It does not move what might be stored. No sum has these bits, so that nothing ever is.
    """
    pinned: gl.constexpr = """{
        .reg .pred never;
        .reg .b32 nowhere;
        mov.b32 nowhere, 0;
        setp.eq.b32 never, $1, 0x7fc12345;
        @never st.volatile.shared.b32 [nowhere], $1;
        mov.b32 $0, $1;
    }"""
    return gl.inline_asm_elementwise(pinned, "=r,r", [x], gl.float32, is_pure=False, pack=1)
''',
    "_through_bf16": '''
@gluon.jit
def _through_bf16(x):
    """Numbers rounded to bf16, as fp32."""
    rounded: gl.constexpr = """{
        .reg .b32 pair;
        cvt.rn.bf16x2.f32 pair, $3, $2;
        shl.b32 $0, pair, 16;
        and.b32 $1, pair, 0xffff0000;
    }"""
    return gl.inline_asm_elementwise(rounded, "=r,=r,r,r", [x], gl.float32, is_pure=True, pack=2)
''',
    **{
        f"_round_to_{name}": f'''
@gluon.jit
def _round_to_{name}(x):
    """Two numbers with one instruction."""
    rounded: gl.constexpr = "cvt.rn.{name}x2.f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(
        rounded, "=r,r,r", [x], {triton_dtype(dtype)}, is_pure=True, pack=2
    )
'''
        for dtype, name in _PTX_NAMES.items()
    },
}
"""Functions of a module, by name."""


def is_paired(dtype: DType) -> bool:
    """Whether two numbers of a type share a register."""
    return dtype in _PTX_NAMES


def pack_name(dtype: DType) -> str:
    """The function that puts numbers of a type together."""
    return "_pack_fp8" if dtype == F8E4M3 else "_pack"


def unpack_name(dtype: DType) -> str:
    """The function that takes them apart."""
    return "_unpack_fp8" if dtype == F8E4M3 else f"_unpack_{_PTX_NAMES[dtype]}"


def is_rounding(op: Operation) -> bool:
    """Whether an op rounds a tile to such a type."""
    if not isinstance(op, Cast) or op.bitcast:
        return False
    return op.x.tile.rank > 0 and op.x.tile.dtype == F32 and is_paired(op.dtype)


def guard_slow_ops(emitter: RoleEmitter, ops: Sequence[Operation]) -> None:
    """Have tiles that are read again rounded in pairs.

    Operands of products are left to the compiler, which puts them where products want them.
    """
    for op in ops:
        source = emitter.uses.defining.get(op.x) if isinstance(op, Cast) else None
        if source is None or not is_rounding(source):
            continue
        emitter.guarded[source] = emit_rounding
        if isinstance(op, Cast) and op.dtype == F32 and op.x.tile.dtype == BF16:
            emitter.guarded[op] = emit_widening
            # Mostly nothing else reads it.
            emitter.uses.inlined.add(op.x)


def emit_rounding(emitter: Emitter, op: Cast) -> None:
    """Round two numbers at a time."""
    name = emitter.spelling.helper(f"_round_to_{_PTX_NAMES[op.dtype]}")
    emitter.define(op.result, call(name, emitter.exact(op.x), shape=op.result.tile.shape))


def emit_widening(emitter: Emitter, op: Cast) -> None:
    """Round numbers that are wanted in fp32 again, without taking pairs apart twice."""
    rounding = emitter.uses.defining[op.x]
    assert isinstance(rounding, Cast)
    name = emitter.spelling.helper("_through_bf16")
    emitter.define(op.result, call(name, emitter.exact(rounding.x), shape=op.result.tile.shape))
