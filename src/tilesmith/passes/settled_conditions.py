"""Comparisons that hold at every position of a loop, for tiles that end where their loop ends.

Lengths of ragged rows are compared with each position though the loop goes no further. Where a
program has one row, nothing is left to ask: the mask of a load and the selection after it go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.analysis.affine import AffineIndex, add_terms, find_affine
from tilesmith.dtypes import I32, I64
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import (
    Definitions,
    Replacement,
    apply_rules,
    bound_blocks,
    definitions,
    walk,
    walk_function,
)
from tilesmith.ir.types import Dim, Value
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.simplify import fold_constants, simplify_algebra

_MOST = {"lt": -1, "le": 0}
"""How far the left side may be above the right one."""
_TURNED = {"gt": "lt", "ge": "le"}


def settle_conditions(function: Function) -> Function:
    """Drop comparisons with the end of a loop, and the masks and selections that ask for them.

    Before::

        loop %begin = %zero to %n by @t:
            %i = tile_index(%begin) {block="t"} : i32[t]
            %within = elementwise(%i, %ends) {fn="lt"} : bool[t]
            %v = load(%x, %within, [%i]) : f32[t]

    After::

        loop %begin = %zero to %n by @t:
            %i = tile_index(%begin) {block="t"} : i32[t]
            %v = load(%x, [%i]) : f32[t]

    where ``%ends`` is ``%n`` in all lanes. Only for backends that crop tiles: lanes beyond the
    end, where others have them, were told apart by these masks.
    """
    proof = _Proof.of(function)

    def settle(op: Operation, _: Definitions) -> Replacement | None:
        if not isinstance(op, Elementwise) or not proof.always_holds(op):
            return None
        return (Full(value=True, results=op.results, loc=op.loc),)

    settled = apply_rules(function, (settle,))
    if settled is function:
        return function
    simpler = simplify_algebra(fold_constants(settled))
    return eliminate_dead_code(apply_rules(simpler, (_without_mask,)))


def _without_mask(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, (Load, Store, Atomic)) or op.mask is None:
        return None
    filled = defined_by(op.mask)
    is_open = isinstance(filled, Full) and filled.value is True
    return (replace(op, mask=None),) if is_open else None


@dataclass(frozen=True)
class _Proof:
    """Where loops end: of each index, and the block whose lanes it begins."""

    defined: Mapping[Value, Operation]
    ends: Mapping[Value, tuple[Value, str]]

    @staticmethod
    def of(function: Function) -> _Proof:
        loops = [op for op in walk_function(function) if isinstance(op, (Grid, Loop))]
        # Lanes of a block inside of two of its loops are those of the inner one.
        nested = {
            block
            for op in loops
            for inner in walk(op.body)
            for block in bound_blocks(op) & bound_blocks(inner)
        }
        ends = {
            arg: (end, block)
            for op in loops
            for arg, end, block in zip(op.body.args, op.ends, op.blocks)
            if block not in nested
        }
        return _Proof(definitions(function.body), ends)

    def always_holds(self, op: Elementwise) -> bool:
        """Whether a comparison of integers holds in all lanes of every iteration."""
        fn = _TURNED.get(op.fn, op.fn)
        if fn not in _MOST or not all(map(self._is_wide, op.args)):
            return False
        low, high = (find_affine(arg, self.defined) for arg in op.args[:: 1 if fn == op.fn else -1])
        if low is None or high is None or high.axis is not None or low.scale not in (0, 1):
            return False
        terms = add_terms(dict(low.base), high.base, -1)
        offset = low.offset - high.offset
        return any(
            self._is_at_most(_MOST[fn], index, low, terms, offset)
            for index, factor in terms.items()
            if factor == 1 and index in self.ends
        )

    def _is_wide(self, value: Value) -> bool:
        """Whether nothing was computed in small or unsigned integers, which wrap soon."""
        op = self.defined.get(value)
        if op is None or Trait.PURE not in op.traits:
            return True
        is_computed = isinstance(op, (Elementwise, Cast))
        is_wide = not is_computed or value.tile.dtype in (I32, I64)
        return is_wide and all(map(self._is_wide, op.operand_values()))

    def _is_at_most(
        self, most: int, index: Value, low: AffineIndex, terms: Mapping[Value, int], offset: int
    ) -> bool:
        """Whether terms and lanes stay so low where an index is one before its loop's end."""
        end, block = self.ends[index]
        if low.scale and (not block or low.dim != Dim.of(block)):
            return False
        last = find_affine(end, self.defined) or AffineIndex(base=((end, 1),))
        rest = add_terms(add_terms(terms, ((index, -1),)), last.base)
        return not any(rest.values()) and offset + last.offset - 1 <= most
