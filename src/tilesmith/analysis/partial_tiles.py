"""Which loop axes may end with a tile that is not full, for given block sizes.

An axis has full tiles only when its length is certain to be a multiple of its block. Lengths are
followed through constants, block sizes, enclosing tiles and the ``min`` in a tile's end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.analysis.affine import AffineIndex, add_terms, find_affine
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Value


def find_partial_axes(
    function: Function, sizes: Mapping[str, int]
) -> dict[Operation, tuple[bool, ...]]:
    """For each grid and loop, whether the last tile of each axis may be partial.

    ``sizes`` gives the blocks; fixed ones may be left out. Axes without a block are False.
    """
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    proof = _Proof(function, {**fixed, **sizes})
    loops = [op for op in walk_function(function) if isinstance(op, (Grid, Loop))]
    return {op: tuple(proof.is_partial(op, i) for i in range(len(op.blocks))) for op in loops}


class _Proof:
    """Decides whether scalar expressions are multiples of a number."""

    def __init__(self, function: Function, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._is_block = function.is_block
        self._defined_by = definitions(function.body)
        self._steps: dict[Value, tuple[Value, int]] = {}
        """Where each loop index starts and by how much it moves."""
        for op in walk_function(function):
            if isinstance(op, (Grid, Loop)):
                self._record_steps(op)

    def _record_steps(self, op: Grid | Loop) -> None:
        steps = iter(op.steps if isinstance(op, Loop) else ())
        for arg, begin, block in zip(op.body.args, op.begins, op.blocks):
            if block:
                size = self._sizes[block] if self._is_block(block) else 1
            else:
                step = self._defined_by.get(next(steps)) if isinstance(op, Loop) else None
                size = int(step.value) if isinstance(step, Full) else 1
            self._steps[arg] = begin, size

    def is_partial(self, op: Grid | Loop, axis: int) -> bool:
        if not op.blocks[axis]:
            return False
        if not self._is_block(op.blocks[axis]):
            # A tile of a runtime size: what it is at trace time proves nothing.
            return True
        end, begin = self._form(op.ends[axis]), self._form(op.begins[axis])
        terms = add_terms(dict(end.base), begin.base, -1)
        size = self._sizes[op.blocks[axis]]
        return not self._is_multiple(terms, end.offset - begin.offset, size)

    def _form(self, value: Value) -> AffineIndex:
        return find_affine(value, self._defined_by) or AffineIndex(base=((value, 1),))

    def _is_multiple(self, terms: Mapping[Value, int], offset: int, divisor: int) -> bool:
        rest = {value: c for value, c in terms.items() if c % divisor}
        if not rest:
            return offset % divisor == 0
        # A minimum or maximum may be made of the other terms, so it is taken apart first.
        value = next((v for v in rest if self._is_extreme(v)), next(iter(rest)))
        factor = rest.pop(value)
        forms = self._alternatives(value, factor, divisor)
        return forms is not None and all(
            self._is_multiple(
                add_terms(rest, form.base, factor), offset + factor * form.offset, divisor
            )
            for form in forms
        )

    def _is_extreme(self, value: Value) -> bool:
        op = self._defined_by.get(value)
        return isinstance(op, Elementwise) and op.fn in ("minimum", "maximum")

    def _alternatives(
        self, value: Value, coefficient: int, divisor: int
    ) -> list[AffineIndex] | None:
        """Forms of which a value is always one, up to multiples of the divisor; None if unknown."""
        op = self._defined_by.get(value)
        if isinstance(op, BlockSize):
            return [AffineIndex(offset=self._sizes[op.block])]
        if isinstance(op, Elementwise) and self._is_extreme(value):
            return [self._form(arg) for arg in op.args]
        begin, size = self._steps.get(value, (value, 1))
        is_known = value in self._steps and coefficient * size % divisor == 0
        return [self._form(begin)] if is_known else None
