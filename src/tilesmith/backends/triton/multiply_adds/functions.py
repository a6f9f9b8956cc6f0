"""The Gluon of products by multiply-adds: what threads hold, and in which order they multiply.

Registers of a thread lie in two banks, each of which gives one operand a clock. So a multiply-add
takes one clock if it reads two registers, and two if it reads three: on an H200 0.87 of one a clock
were measured where one of eight reads three. An operand may stay where it was read (``.reuse``) if
the next instruction wants it in the same place. Rows of a thread's tile are gone through forward
and back in turn, so that every multiply-add finds one of its operands there. Both operands lie in
shared memory in rows, one for each step of the sum: numbers of a thread that lie beside each other
are one load of 16 bytes, and are there one step at a time. Pieces of four steps at once, as they
come from rows along the sum, leave the assembler no registers for that order.

Stores of 16 bytes want four sums in registers one after the other, which fixes their banks: in half
of the multiply-adds or more the sum is in the bank of the operand. So sums that are stored are
others than those of the loop, as far as the assembler can tell.
"""

from __future__ import annotations

STEPS = 8
"""Of the sum in one piece of shared memory: 17 KB of code. With twice as many 4096^3 took 2 % more;
two such loops side by side no longer fit the instruction cache (1.8 times as long)."""
SIDE = 4
"""Rows and columns of a thread that lie beside each other."""
LANES = (4, 8)
"""Of a warp, below and beside each other."""
WARPS = (2, 2)


def layout(*, is_turned: bool = False) -> str:
    """Where a tile lies in registers; or its rows, as they are read."""
    sides = [[SIDE, SIDE], [*LANES], [*WARPS], [1, 0]]
    return f"gl.BlockedLayout({', '.join(str(x[::-1] if is_turned else x) for x in sides)})"


def places(rows: int, columns: int) -> list[tuple[int, int]]:
    """Row and column of each register of a thread, among its own."""
    down, across = (size // SIDE for size in own_sides(rows, columns))
    return [
        (SIDE * i + row, SIDE * j + column)
        for i in range(down)
        for j in range(across)
        for row in range(SIDE)
        for column in range(SIDE)
    ]


def own_sides(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a tile that a thread has."""
    return rows // (LANES[0] * WARPS[0]), columns // (LANES[1] * WARPS[1])


def multiply_adds(rows: int, columns: int) -> str:
    """The instructions of one step, along one row and back along the next."""
    number = {place: i for i, place in enumerate(places(rows, columns))}
    own_rows, own_columns = own_sides(rows, columns)
    lines: list[str] = []
    for row in range(own_rows):
        for column in range(own_columns)[:: -1 if row % 2 else 1]:
            result = number[row, column]
            operands = (number[row, 0], number[0, column], result)
            named = [f"${(i + 1) * len(number) + operand}" for i, operand in enumerate(operands)]
            lines.append(f"fma.rn.f32 ${result}, {', '.join(named)};")
    return "\n".join(lines)


def constants(rows: int, columns: int) -> str:
    """Of a module: how rows are read, and what adds one step."""
    count = len(places(rows, columns))
    return f'''
READ_ROWS = gl.constexpr({layout(is_turned=True)})
STEP_RESULTS = gl.constexpr({count})
STEP_OPERANDS = gl.constexpr(",".join(["=f"] * {count} + ["f"] * {3 * count}))
STEP = gl.constexpr("""
{multiply_adds(rows, columns)}
""")
'''


FUNCTIONS = '''
@gluon.jit
def _multiply_add(acc, x, y):
    """Add the products of some steps; a row of both is what one step multiplies."""
    kind: gl.constexpr = acc.type.layout
    steps: gl.constexpr = x.shape[0]
    rows: gl.constexpr = acc.shape[0]
    columns: gl.constexpr = acc.shape[1]
    for step in gl.static_range(steps):
        left = x.slice(step, 1, dim=0).load(READ_ROWS).reshape([rows])
        right = y.slice(step, 1, dim=0).load(kind).reshape([columns])
        left, acc = gl.broadcast(gl.convert_layout(left, gl.SliceLayout(1, kind))[:, None], acc)
        right, acc = gl.broadcast(gl.convert_layout(right, gl.SliceLayout(0, kind))[None, :], acc)
        acc = gl.inline_asm_elementwise(
            STEP, STEP_OPERANDS, [left, right, acc], gl.float32, is_pure=True, pack=STEP_RESULTS
        )
    return acc


@gluon.jit
def _to_store(acc):
    """The same sums in any registers: no multiprocessor has a number of 32 bits."""
    never: gl.constexpr = "{ .reg .b32 number; mov.u32 number, %smid; shr.u32 $0, number, 31; }"
    zero = gl.inline_asm_elementwise(
        never, "=r,r", [gl.to_tensor(0)], gl.int32, is_pure=False, pack=1
    )
    return gl.inline_asm_elementwise(
        "xor.b32 $0, $1, $2;", "=r,r,r", [acc, zero], gl.float32, is_pure=True, pack=1
    )
'''
SCATTER_FUNCTIONS = '''
@gluon.jit
def _scatter(x, place, row, step, num_rows, num_steps, STRIDE: gl.constexpr, WIDE: gl.constexpr):
    """Rows along the sum, number by number, to rows of one step each; zeros past an end."""
    lanes: gl.constexpr = gl.BlockedLayout([1, 1], [8, 4], [1, 4], [0, 1])
    depth: gl.constexpr = place.shape[0]
    blocks: gl.constexpr = place.shape[1] // 16
    steps = step + gl.arange(0, depth, gl.SliceLayout(1, lanes))
    for i in gl.static_range(blocks):
        rows = row + 16 * i + gl.arange(0, 16, gl.SliceLayout(0, lanes))
        offsets = rows.to(WIDE)[None, :] * STRIDE + steps[:, None]
        is_inside = (rows < num_rows)[None, :] & (steps < num_steps)[:, None]
        target = place.slice(16 * i, 16, dim=1)
        async_copy.async_copy_global_to_shared(target, x + offsets, mask=is_inside)
'''
