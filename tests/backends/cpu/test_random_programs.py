"""Programs nobody wrote by hand: native code gives the interpreter's bits.

Trees of exactly rounded functions over tensors of any layout, cut into tiles of any size; and
loads and stores that get in each other's way within one program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend
from tilesmith.numerics.inputs import random_tensor

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)

# Rounded once or not at all, so that there is one right result.
OF_ALL: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, z: x + y,
    "sub": lambda x, y, z: x - y,
    "mul": lambda x, y, z: x * y,
    "max": lambda x, y, z: torch.maximum(x, y),
    "min": lambda x, y, z: torch.minimum(x, y),
    "where": lambda x, y, z: torch.where(x > y, y, z),
    "both": lambda x, y, z: torch.where((x <= z) & (y != z), x, z),
    "number": lambda x, y, z: x * 3 - 1,
}
OF_FLOATS: dict[str, Callable[..., Any]] = {
    **OF_ALL,
    "div": lambda x, y, z: x / y,
    "abs": lambda x, y, z: x.abs(),
    "neg": lambda x, y, z: -x,
    "floor": lambda x, y, z: torch.floor(x),
    "through_half": lambda x, y, z: x.to(torch.float16).to(x.dtype),
    "through_bf16": lambda x, y, z: x.to(torch.bfloat16).to(x.dtype),
}
OF_INTEGERS: dict[str, Callable[..., Any]] = {
    **OF_ALL,
    "and": lambda x, y, z: x & y,
    "xor": lambda x, y, z: x ^ y,
    "shift": lambda x, y, z: x >> 1,
    "divided": lambda x, y, z: x // 3,
    "rest": lambda x, y, z: x % 5,
    "through_bytes": lambda x, y, z: x.to(torch.int8).to(x.dtype),
}
OF_ROWS: dict[str, Callable[..., Any]] = {
    "less_peak": lambda x, y, z: y - x.amax(1, keepdim=True),
    "least": lambda x, y, z: torch.maximum(y, x.amin(1, keepdim=True)),
}


@dataclass(frozen=True)
class Tree:
    """Functions one after the other, each of three earlier values; the last two are results."""

    steps: tuple[tuple[str, int, int, int], ...]
    table: dict[str, Callable[..., Any]] = field(repr=False)

    def apply(self, *values: Any) -> tuple[Any, Any]:
        known = list(values)
        for name, *places in self.steps:
            known.append(self.table[name](*(known[place % len(known)] for place in places)))
        return known[-1], known[-2]


@helion.kernel
def by_tiles(x, y, z, first, second, fn):
    for t, u in hl.tile(x.size()):
        first[t, u], second[t, u] = fn(x[t, u], y[t, u], z[t, u])


@helion.kernel
def by_rows(x, y, z, first, second, fn):
    for t in hl.tile(x.size(0)):
        first[t, :], second[t, :] = fn(x[t, :], y[t, :], z[t, :])


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(2 * x.size(0), 3 * x.size(1), dtype=x.dtype)
    wide[::2, ::3] = x
    return wide[::2, ::3]


def one_row(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape)


def one_column(x: torch.Tensor) -> torch.Tensor:
    return x[:, :1].expand(x.shape)


Layout = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: tuple[Layout, ...] = (contiguous, turned, with_gaps, one_row, one_column)


@dataclass(frozen=True)
class Example:
    """A tree with the tensors it is applied to and how they are cut up."""

    tree: Tree
    dtype: torch.dtype
    shape: tuple[int, int]
    layouts: tuple[Layout, ...]
    blocks: tuple[int, ...]
    static_shapes: bool

    @property
    def inputs(self) -> list[torch.Tensor]:
        whole = [random_tensor(self.shape, self.dtype, seed=n, scale=4.0) for n in range(3)]
        return [layout(x) for layout, x in zip(self.layouts, whole)]

    def run(self, backend: str) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = [torch.zeros(self.shape, dtype=self.dtype) for _ in range(2)]
        tree = self.tree

        # What a function refers to is compiled in; fields of an object would be arguments.
        def fn(*values: Any) -> tuple[Any, Any]:
            return tree.apply(*values)

        args = (*self.inputs, *outputs, fn)
        form = by_rows if len(self.blocks) == 1 else by_tiles
        kernel = on_backend(form, backend, static_shapes=self.static_shapes)
        kernel.bind(args).compile_config(helion.Config(block_sizes=list(self.blocks)))(*args)
        return outputs[0], outputs[1]


@st.composite
def examples(draw: Callable[..., Any]) -> Example:
    dtype = draw(st.sampled_from(FLOATS + INTEGERS))
    is_by_rows = draw(st.booleans())
    table = dict(OF_FLOATS if dtype.is_floating_point else OF_INTEGERS)
    if is_by_rows:
        table |= OF_ROWS
    place = st.integers(0, 8)
    steps = st.tuples(st.sampled_from(sorted(table)), place, place, place)
    tree = Tree(tuple(draw(st.lists(steps, min_size=2, max_size=8))), table)
    shape = draw(st.tuples(st.integers(1, 9), st.sampled_from((1, 2, 7, 15, 16, 17, 33, 70))))
    layouts = tuple(draw(st.sampled_from(LAYOUTS)) for _ in range(3))
    sizes = st.sampled_from((1, 2, 8, 32))
    blocks = draw(st.tuples(sizes)) if is_by_rows else draw(st.tuples(sizes, sizes))
    return Example(tree, dtype, shape, layouts, blocks, draw(st.booleans()))


@given(examples())
def test_trees_of_functions(example: Example) -> None:
    reference, native = (example.run(backend) for backend in BACKENDS)
    for wanted, found in zip(reference, native):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@dataclass(frozen=True)
class Statement:
    """A load, a store or a function of what is known, at positions shifted or turned round."""

    kind: str
    tensor: int
    shift: int
    places: tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Statements about two tensors that may be one; gives the last value."""

    statements: tuple[Statement, ...]

    def run(self, tensors: tuple[Any, Any], tile: Any, state: Any, last: int) -> Any:
        known = [state]
        for statement in self.statements:
            tensor = tensors[statement.tensor]
            first, second = (known[place % len(known)] for place in statement.places)
            index = tile.index + statement.shift
            if statement.kind == "load":
                known.append(tensor[index])
            elif statement.kind == "load_turned":
                known.append(tensor[last - index])
            elif statement.kind == "store":
                tensor[index] = first
            elif statement.kind == "total":
                known.append(first - second.sum() % 10)
            else:
                known.append(first * 2 - second + 1)
        return known[-1]


@helion.kernel
def in_order(x, y, block, steps: int, last: int):
    for _ in hl.grid(1):
        for t in hl.tile(x.size(0) - 4):
            state = x[t]
            for _ in range(steps):
                state = block((x, y), t, state, last)
            y[t] = state


@st.composite
def blocks_of_statements(draw: Callable[..., Any]) -> Block:
    kinds = st.sampled_from(("load", "load", "load_turned", "store", "store", "total", "combine"))
    statement = st.builds(
        Statement,
        kinds,
        st.integers(0, 1),
        st.integers(0, 3),
        st.tuples(st.integers(0, 6), st.integers(0, 6)),
    )
    return Block(tuple(draw(st.lists(statement, min_size=2, max_size=7))))


@given(
    blocks_of_statements(),
    st.sampled_from((5, 19, 20, 21, 40)),
    st.sampled_from((1, 4, 16, 64)),
    st.integers(0, 3),
    st.sampled_from(("apart", "same", "overlapping")),
)
def test_loads_and_stores_keep_their_order(
    block: Block, length: int, size: int, steps: int, aliasing: str
) -> None:
    found: list[torch.Tensor] = []
    for backend in BACKENDS:
        memory = torch.arange(2 * length + 2) * 7 % 31
        x = memory[:length]
        y = {"apart": memory[length : 2 * length], "same": x, "overlapping": memory[1 : length + 1]}

        def fn(*values: Any) -> Any:
            return block.run(*values)

        args = (x, y[aliasing], fn, steps, length - 1)
        bound = on_backend(in_order, backend).bind(args)
        bound.compile_config(helion.Config(block_sizes=[size]))(*args)
        found.append(memory)
    assert torch.equal(*found)


OF_MATRICES: dict[str, Callable[..., Any]] = {
    "turn": lambda x, y: x.t(),
    "combine": lambda x, y: x * 2 - y,
    "choose": lambda x, y: torch.where(x > y.t(), y, x + 1),
    "row_sums": lambda x, y: x - y.sum(1, keepdim=True) % 10,
    "column_peaks": lambda x, y: torch.minimum(x, y.amax(0, keepdim=True)),
    "places": lambda x, y: x + torch.argmax(y, 1)[:, None],
    "running": lambda x, y: torch.cumsum(x, 1) % 100 - y,
    "pairs": lambda x, y: x.reshape(x.size(0) * x.size(1)).reshape(x.size(1), x.size(0)) + y,
}


def follow(steps: tuple[tuple[str, int, int], ...], tensors: Any, state: Any) -> Any:
    """Loads and stores of whole matrices (``load0``, ``store1``, ...) and functions of values."""
    known = [state]
    for name, *places in steps:
        first, second = (known[place % len(known)] for place in places)
        if name in OF_MATRICES:
            known.append(OF_MATRICES[name](first, second))
        elif name.startswith("load"):
            known.append(tensors[int(name[-1])][:, :])
        else:
            tensors[int(name[-1])][:, :] = first
    return known[-1]


@helion.kernel
def with_matrices(x, y, fn, rounds: int):
    for _ in hl.grid(1):
        state = x[:, :]
        for _ in range(rounds):
            state = fn((x, y), state)
        y[:, :] = state


MATRIX_STEPS = st.tuples(
    st.sampled_from(("load0", "load1", "store0", "store1", *OF_MATRICES)),
    st.integers(0, 6),
    st.integers(0, 6),
)


@given(
    st.lists(MATRIX_STEPS, min_size=2, max_size=8),
    st.sampled_from((2, 7, 16, 17)),
    st.integers(0, 3),
    st.sampled_from(("apart", "same", "turned")),
)
def test_whole_matrices_in_one_program(
    steps: list[tuple[str, int, int]], size: int, rounds: int, aliasing: str
) -> None:
    found: list[torch.Tensor] = []
    for backend in BACKENDS:
        memory = torch.arange(2 * size * size) * 7 % 31
        x, other = memory.view(2, size, size)
        y = {"apart": other, "same": x, "turned": x.t()}[aliasing]
        # Only powers of two are merged and split.
        fixed = tuple(step for step in steps if step[0] != "pairs" or size in (2, 16))

        def fn(*values: Any, fixed: Any = fixed) -> Any:
            return follow(fixed, *values)

        on_backend(with_matrices, backend)(x, y, fn, rounds)
        found.append(memory)
    assert torch.equal(*found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tree_is_what_torch_makes_of_it(backend: str) -> None:
    tree = Tree((("mul", 0, 1, 0), ("less_peak", 3, 2, 0)), OF_FLOATS | OF_ROWS)
    layouts = (contiguous, turned, with_gaps)
    example = Example(tree, torch.float32, (5, 17), layouts, (2,), True)
    assert all(map(torch.equal, example.run(backend), tree.apply(*example.inputs)))
