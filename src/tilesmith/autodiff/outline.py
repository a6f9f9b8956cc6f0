"""What a derivation asks about the forward function: definitions, activity, loops, memory.

A value is active if it is a float that changes with a tensor of floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import tilesmith.exc as errors
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Select
from tilesmith.ir.traversal import count_uses, walk, walk_function
from tilesmith.ir.types import TensorType, TileType, Value

PAIR = 2


class Outline:
    """One function, looked at from its end."""

    def __init__(self, function: Function, name: str = "") -> None:
        self.function = function
        self.name = name or function.name
        """The kernel's name, as users know it."""
        self._definitions = {v: op for op in walk_function(function) for v in op.results}
        self._homes: dict[Value, Region] = {}
        self._around: dict[int, tuple[Operation, ...]] = {}
        self._note(function.body, ())
        given = [parameter.value for parameter in function.parameters]
        self.tensors = [value for value in given if isinstance(value.type, TensorType)]
        self.scalars = {value for value in given if isinstance(value.type, TileType)}
        self.active = self._find_active()
        self.uses = count_uses(function.body)

    def refusal(self, reason: str) -> errors.AutodiffNotSupported:
        """The error for a kernel that has no gradient."""
        return errors.AutodiffNotSupported(function=self.name, reason=reason)

    def _note(self, region: Region, around: tuple[Operation, ...]) -> None:
        self._homes |= dict.fromkeys(region.args, region)
        for op in region.ops:
            self._homes |= dict.fromkeys(op.results, region)
            self._around[id(op)] = around
            for inner in op.regions():
                self._note(inner, (*around, op))

    def home(self, value: Value) -> Region:
        """The region that defines a value; parameters are the function's."""
        return self._homes.get(value, self.function.body)

    def around(self, op: Operation) -> tuple[Operation, ...]:
        """The loops and branches around an op, outermost first."""
        return self._around[id(op)]

    def definition(self, value: Value) -> Operation | None:
        """The op that gives a value; None for arguments and parameters."""
        return self._definitions.get(value)

    def indices_of(self, loop: Operation) -> tuple[Value, ...]:
        """The arguments of a loop's region that differ from turn to turn."""
        return loop.body.args[: len(loop.blocks)] if isinstance(loop, (Grid, Loop)) else ()

    def loop_of(self, value: Value) -> Loop:
        """The loop that carries an argument of its region."""
        for loop in self.loops:
            if value in loop.carried:
                return loop
        raise self.refusal("a branch or an open loop hands on a value")

    @cached_property
    def loops(self) -> list[Loop]:
        """All sequential loops."""
        return [op for op in walk_function(self.function) if isinstance(op, Loop)]

    def _find_active(self) -> set[Value]:
        found: set[Value] = set()
        count = -1
        while count != len(found):  # what loops carry may need another turn
            count = len(found)
            for op in walk_function(self.function):
                self._mark(op, found)
        return found

    def _mark(self, op: Operation, found: set[Value]) -> None:
        if isinstance(op, Load):
            found |= {op.result} if op.result.tile.dtype.is_float else set()
            return
        if isinstance(op, Loop):
            for k, (init, new) in enumerate(zip(op.init, op.body.yielded)):
                if init in found or new in found:
                    found |= {op.results[k], op.carried[k]}
            return
        if isinstance(op, (If, While)):
            inner = [v for region in op.regions() for v in region.yielded]
            found |= {v for v in op.results if v.tile.dtype.is_float and set(inner) & found}
            return
        if any(v in found for v in op.operand_values()):
            found |= {v for v in op.results if v.tile.dtype.is_float}

    def needed_to_carry(self, loop: Loop, positions: Iterable[int]) -> list[int]:
        """The values that a loop must carry so that these come out."""
        needed: set[int] = set()
        waiting = list(positions)
        while waiting:
            k = waiting.pop()
            if k not in needed:
                needed.add(k)
                used = self._used_for(loop.body.yielded[k], loop.body)
                waiting += [j for j, arg in enumerate(loop.carried) if arg in used]
        return sorted(needed)

    def _used_for(self, value: Value, region: Region) -> set[Value]:
        inside = {v: op for op in region.ops for v in op.results}
        seen: set[Value] = set()
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if item in seen:
                continue
            seen.add(item)
            op = inside.get(item)
            if op is not None:
                waiting += op.operand_values()
                waiting += [v for r in op.regions() for o in walk(r) for v in o.operand_values()]
        return seen

    def only_adds_up(self, loop: Loop, position: int) -> bool:
        """Whether a carried value is a sum of what its turns give, used for nothing else."""
        before, after = loop.carried[position], loop.body.yielded[position]
        if before is after:
            return True
        if self.uses.get(before, 0) != 1:
            return False
        op = self.definition(after)
        if isinstance(op, Dot):
            return op.acc is before
        return isinstance(op, Elementwise) and op.fn == "add" and before in op.args

    def block_size(self, block: str, *, is_own: bool) -> str:
        """What ``block_size=`` says of a block: a number, a registered size, or None."""
        known = self.function.block(block)
        if known.fixed is not None:
            return str(known.fixed)
        return self.registered.get(block, "None") if is_own else "None"

    @cached_property
    def registered(self) -> dict[str, str]:
        """Blocks that several loops share, and the names of their sizes."""
        loops = [op for op in walk_function(self.function) if isinstance(op, (Grid, Loop))]
        named = [block for loop in loops for block in loop.blocks]
        blocks = [block for block in self.function.blocks if block.fixed is None]
        return {b.name: f"size_of_{b.name}" for b in blocks if named.count(b.name) > 1}

    def check_split(self, op: Select) -> None:
        """Raise unless a selection is one half of ``hl.split``."""
        shape = op.x.tile.shape
        if op.axis != len(shape) - 1 or shape[-1].constant != PAIR:
            raise self.refusal("it selects one element of an axis")

    def stores(self, tensor: Value) -> list[Store | Atomic]:
        """What writes to a tensor or to one that shares its memory."""
        alias = tensor.tensor.alias
        ops = [op for op in walk_function(self.function) if isinstance(op, (Store, Atomic))]
        return [op for op in ops if op.tensor is tensor or op.tensor.tensor.alias == alias >= 0]

    def loads(self, tensor: Value) -> list[Load]:
        """The loads of a tensor."""
        ops = walk_function(self.function)
        return [op for op in ops if isinstance(op, Load) and op.tensor is tensor]

    def reads_old(self, tensor: Value) -> bool:
        """Whether loads of a tensor see what was there before the launch.

        They do if they come before all stores; if they come after the only store, they see what is
        there after the launch.
        """
        stores = self.stores(tensor)
        if not stores:
            return True
        order = {id(op): n for n, op in enumerate(walk_function(self.function))}
        places, first = [order[id(op)] for op in self.loads(tensor)], order[id(stores[0])]
        shares_loop = any(
            isinstance(loop, Loop) and loop in self.around(stores[0])
            for load in self.loads(tensor)
            for loop in self.around(load)
        )
        if all(place < first for place in places) and not shares_loop:
            return True
        if len(stores) == 1 and all(place > first for place in places):
            return False
        raise self.refusal(f"`{tensor.name}` is read and written again and again")
