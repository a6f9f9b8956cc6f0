"""What a random program consists of: tensors, values with axes, and the places of loads and stores.

An axis is the name of a tile (``t0``), or of a whole dimension taken by ``:`` (``K``). The meaning
of a value is a whole tensor over the full ranges of its axes: there are no tiles in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from tests.fuzzing.tracked import Tracked


class UndecidedError(Exception):
    """Rounding errors decide which way the program goes: nothing can be compared."""


@dataclass(frozen=True)
class Value:
    """A device value: ``axes`` are names of tiles and of whole dimensions."""

    name: str
    dtype: torch.dtype
    axes: tuple[str, ...]

    def aligned(self, axes: tuple[str, ...]) -> str:
        """Text of the value with its axes in the places of ``axes``, and new axes for others."""
        text, order = self.name, [self.axes.index(axis) for axis in axes if axis in self.axes]
        if not self.axes or self.axes == axes:
            return text
        if order != sorted(order):
            text += f".permute({', '.join(map(str, order))})"
        places = [":" if axis in self.axes else "None" for axis in axes]
        return text if set(places) == {":"} else f"{text}[{', '.join(places)}]"

    def align(self, whole: torch.Tensor, axes: tuple[str, ...]) -> torch.Tensor:
        """The whole tensor with its axes in the places of ``axes``; 0-d ones promote as such."""
        if not self.axes:
            return whole
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        turned = whole.permute(order)
        for place, axis in enumerate(axes):
            if axis not in self.axes:
                turned = turned.unsqueeze(place)
        return turned


@dataclass
class Meaning:
    """What names mean while a program is evaluated."""

    sizes: Mapping[str, int]
    tensors: dict[str, Tracked]
    values: dict[str, Tracked] = field(default_factory=dict[str, Tracked])
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])

    def extent(self, axis: str) -> tuple[int, int]:
        """First index and end of an axis."""
        return self.ranges[axis] if axis in self.ranges else (0, self.sizes[axis])

    def length(self, axis: str) -> int:
        """Elements of an axis."""
        first, end = self.extent(axis)
        return max(0, end - first)


def size_of(text: str, sizes: Mapping[str, int]) -> int:
    """A size, or one with a number added to it or taken from it: ``M``, ``M - 1``, ``M + 1``."""
    name, *rest = text.split()
    return sizes[name] + (int("".join(rest)) if rest else 0)


class Statement(Protocol):
    """A statement of device code: its text, and what it does to whole tensors."""

    def lines(self) -> list[str]:
        """The text, not indented."""
        ...

    def evaluate(self, meaning: Meaning) -> None:
        """Run it on whole tensors."""
        ...


Grown = list[Statement]


def indented(statements: tuple[Statement, ...] | list[Statement]) -> list[str]:
    """The text of a block."""
    lines = [line for statement in statements for line in statement.lines()]
    return [f"    {line}" for line in lines or ["pass"]]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument, or an output that the kernel allocates.

    Attributes:
        dims: for each dimension the name of its size, or the size.
        layout: how it lies in memory (see ``layouts``).
        content: "integers", "numbers", "low" (negative integers), "wide" (all that bytes hold, and
            numbers of many sizes), "fill" (all ``limit``), "index" (below ``limit``), "hostile"
            (indices, half of them out of range) or "order" (each index once).
        limit: a number, or the text of one made of a size.
        is_allocated: whether host code makes and returns it.
        shares: the name of the tensor whose memory this is, if it has none of its own.
        is_turned: whether it is that tensor with its dimensions the other way round.
    """

    name: str
    dtype: torch.dtype
    dims: tuple[str | int, ...]
    layout: str = "contiguous"
    content: str = "integers"
    limit: int | str = 0
    is_output: bool = False
    is_allocated: bool = False
    shares: str = ""
    is_turned: bool = False

    @property
    def is_data(self) -> bool:
        """Whether it holds numbers to compute with."""
        return self.content in ("integers", "numbers", "low", "wide")

    def shape(self, sizes: Mapping[str, int]) -> list[int]:
        """Sizes of the dimensions."""
        return [sizes[dim] if isinstance(dim, str) else dim for dim in self.dims]

    def bound(self, sizes: Mapping[str, int]) -> int:
        """The number that ``limit`` stands for."""
        return self.limit if isinstance(self.limit, int) else size_of(self.limit, sizes)


@dataclass(frozen=True)
class Scalar:
    """A number among the arguments."""

    name: str
    value: int | float
    is_constant: bool


@dataclass(frozen=True)
class Outer:
    """A top-level loop: over tiles or over indices.

    Attributes:
        axes: for each dimension its name, size, first index, and how many are left out at the end.
    """

    kind: str
    axes: tuple[tuple[str, str, int, int], ...]
    block_size: int | None
    body: tuple[Statement, ...]
    is_after_barrier: bool = False

    def lines(self) -> list[str]:
        """The text of the loop."""
        begins = [str(begin) for _, _, begin, _ in self.axes]
        ends = [end_text(size, left) for _, size, _, left in self.axes]
        names = ", ".join(name for name, *_ in self.axes)
        arguments = [_grouped(begins)] if any(int(x) for x in begins) else []
        arguments.append(_grouped(ends))
        if self.block_size is not None:
            arguments.append(f"block_size={_grouped([str(self.block_size)] * len(ends))}")
        head = f"for {names} in hl.{self.kind}({', '.join(arguments)}):"
        before = ["hl.barrier()"] if self.is_after_barrier else []
        return [*before, head, *indented(self.body)]


def end_text(size: str, left: int) -> str:
    """A size without the last so many."""
    return f"{size} - {left}" if left else size


def walk(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Statements and those inside of them."""
    for statement in statements:
        yield statement
        yield from walk((*getattr(statement, "body", ()), *getattr(statement, "orelse", ())))


def _grouped(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


@dataclass(frozen=True)
class Program:
    """A kernel with its arguments.

    Attributes:
        sizes: the named sizes.
        seed: of the contents of inputs.
        data: "" for contents as tensors say, "special" for NaN, infinities and numbers near the
            ends of float types among them, "ends" for the ends of integer types.
    """

    sizes: Mapping[str, int]
    tensors: tuple[TensorSpec, ...]
    scalars: tuple[Scalar, ...]
    loops: tuple[Outer, ...]
    static_shapes: bool
    seed: int
    data: str = ""

    @property
    def free_sizes(self) -> list[str]:
        """Sizes that arguments have, so that one kernel can be called with others."""
        named = {dim for spec in self.arguments for dim in spec.dims}
        return [name for name in self.sizes if name in named and not self.static_shapes]

    @property
    def arguments(self) -> list[TensorSpec]:
        """Tensors the caller makes."""
        return [spec for spec in self.tensors if not spec.is_allocated]

    @property
    def outputs(self) -> list[TensorSpec]:
        """What is compared, arguments first, in the order of the text."""
        return sorted(
            (spec for spec in self.tensors if spec.is_output), key=lambda spec: spec.is_allocated
        )

    def source(self) -> str:
        """The kernel as Python text, without its decorator."""
        constant = {True: ": hl.constexpr", False: ""}
        parameters = [
            *(spec.name for spec in self.arguments),
            *(f"{scalar.name}{constant[scalar.is_constant]}" for scalar in self.scalars),
        ]
        lines = [f"def kernel({', '.join(parameters)}):", *self._host_lines()]
        for loop in self.loops:
            lines += [f"    {line}" for line in loop.lines()]
        returned = [spec.name for spec in self.outputs if spec.is_allocated]
        lines.append(f"    return ({', '.join(returned)},)" if returned else "    return ()")
        inside = walk(statement for loop in self.loops for statement in loop.body)
        before = [line for x in inside for line in getattr(x, "definition", ())]
        return "\n".join([*before, *lines]) + "\n"

    def _host_lines(self) -> list[str]:
        lines: list[str] = []
        named: set[str] = set()
        for spec in self.arguments:
            for place, dim in enumerate(spec.dims):
                text = f"{spec.name}.size({place})"
                if isinstance(dim, str):
                    lines.append(
                        f"    assert {text} == {dim}" if dim in named else f"    {dim} = {text}"
                    )
                    named.add(dim)
        lines += [f"    {name} = {size}" for name, size in self.sizes.items() if name not in named]
        device = f"device={self.arguments[0].name}.device"
        for spec in self.outputs:
            if spec.is_allocated:
                shape = ", ".join(map(str, spec.dims))
                options = f"dtype={spec.dtype}, {device}"
                lines.append(f"    {spec.name} = torch.full([{shape}], {spec.limit}, {options})")
        return lines
