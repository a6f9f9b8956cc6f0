"""Axes of what a group computes: their indices are written at each use, in the layout of that use.

Where columns come in parts, each part has an axis, which begins inside of the tile's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from typing_extensions import override

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.axes import Axis, AxisScope
from tilesmith.backends.triton.emission.spelling import Expr, Spelling, axis_suffix, call
from tilesmith.backends.triton.warp_roles.columns.splitting import Part, Parts
from tilesmith.ir.types import Dim


@dataclass
class InlineAxis(Axis):
    """An axis whose indices are written at each use: every use may have its own layout."""

    offset: str = ""
    """What the group adds to the first index."""
    order: Callable[[Expr], Expr] = lambda lanes: lanes
    """Which index each lane has, counted from there."""

    @override
    def indices(self, spelling: Spelling) -> Expr:
        start = self.start if not self.offset else self.start + Expr(self.offset)
        lanes = self.order(call("tl.arange", 0, spelling.dim(self.dim)))
        return (start + lanes).with_shape((self.dim,))

    @override
    def mask(self, spelling: Spelling) -> Expr:
        return self.indices(spelling).infix("<", self.end)


class InlineScope(AxisScope):
    """The axes at the place being emitted, those of parts among them."""

    def __init__(self, spelling: Spelling, writer: SourceWriter) -> None:
        super().__init__(spelling, writer)
        self.parts: Parts = {}

    @override
    @contextmanager
    def binding(self, axes: dict[str, Axis]) -> Iterator[None]:
        parts = {
            part.block: _of_part(axes[block], part)
            for block, found in self.parts.items()
            for part in found
            if block in axes
        }
        with super().binding({**axes, **parts}):
            yield

    @override
    def is_partial(self, dim: Dim) -> bool:
        return not self.has_narrow_starts and super().is_partial(dim)

    @override
    def slice_axis(self, dim: Dim) -> Axis:
        found = super().slice_axis(dim)
        return inline(found, "")


def inline(axis: Axis, offset: str) -> InlineAxis:
    """The same axis, ``offset`` further on."""
    return InlineAxis(
        axis.dim,
        axis.suffix,
        axis.start,
        axis.end,
        axis.is_partial,
        axis.place,
        axis.moment,
        axis.start_value,
        axis.end_value,
        offset=offset,
    )


def _of_part(axis: Axis, part: Part) -> Axis:
    return replace(
        axis,
        dim=Dim.of(part.block),
        suffix=axis_suffix(part.block),
        start=axis.start + part.offset,
        start_value=part.begin,
    )
