"""Removes what no effect depends on: ops, carried values, branch results and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesmith.analysis.effects import is_removable
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.traversal import value_symbols, values_defined_in, values_used_by, walk
from tilesmith.ir.types import TensorType, Value


def eliminate_dead_code(function: Function) -> Function:
    """Keep the ops that effects depend on.

    Before::

        %a = load(%x, none, [%i]) : f32[t]
        %b = elementwise(%a) {fn="exp"} : f32[t]
        store(%out, %a, none, [%i])

    After::

        %a = load(%x, none, [%i]) : f32[t]
        store(%out, %a, none, [%i])

    Carried values and branch results that nothing needs leave their loop or branch; so do
    parameters that are neither used nor name a size or stride of what is.
    """
    return _drop_parameters(function.with_body(_prune(function.body, _Liveness(function))))


class _Liveness:
    """The values and ops that some effect depends on."""

    def __init__(self, function: Function) -> None:
        self._sources: dict[Value, tuple[Operation, tuple[Value, ...]]] = {}
        self._parents: dict[Operation, Operation] = {}
        self.values: set[Value] = set()
        self.ops: set[Operation] = set()
        self._waiting: list[Value] = []
        for op in list(filter(_is_root, self._index(function.body, None))):
            self._mark_op(op)
        while self._waiting:
            self._mark_value(self._waiting.pop())

    def _index(self, region: Region, parent: Operation | None) -> Iterator[Operation]:
        for op in region.ops:
            if parent is not None:
                self._parents[op] = parent
            for value, needed in _value_sources(op):
                self._sources[value] = (op, needed)
            yield op
            for inner in op.regions():
                yield from self._index(inner, op)

    def _mark_op(self, op: Operation) -> None:
        if op in self.ops:
            return
        self.ops.add(op)
        self._waiting.extend(_always_needed(op))
        if op in self._parents:
            self._mark_op(self._parents[op])

    def _mark_value(self, value: Value) -> None:
        if value not in self.values and value in self._sources:
            op, needed = self._sources[value]
            self._mark_op(op)
            self._waiting.extend(needed)
        self.values.add(value)


def _is_root(op: Operation) -> bool:
    # A while loop that looks at memory may wait for another program.
    if isinstance(op, While):
        return any(Trait.READS in inner.traits for inner in walk(op.condition))
    is_structure = isinstance(op, (Grid, Loop, If)) or Trait.TERMINATOR in op.traits
    return not is_structure and not is_removable(op)


def _always_needed(op: Operation) -> Iterator[Value]:
    """What a live op needs whichever of its results are used."""
    if isinstance(op, (Grid, Loop)):
        yield from (*op.begins, *op.ends)
        yield from op.steps if isinstance(op, Loop) else ()
    elif isinstance(op, While):
        yield from op.condition.yielded
    elif isinstance(op, If):
        yield op.condition
    else:
        yield from op.operand_values()
        for region in op.regions():
            yield from region.yielded


def _value_sources(op: Operation) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """For each value an op introduces, the values it is handed from inside or outside the op."""
    if isinstance(op, Loop):
        yield from _carried_sources(op.init, op.body, (op.carried, op.results))
        for arg in op.body.args[: op.rank]:
            yield arg, ()
    elif isinstance(op, While):
        yield from _carried_sources(op.init, op.body, (op.condition.args, op.body.args, op.results))
    elif isinstance(op, If):
        yield from zip(op.results, zip(op.then.yielded, op.otherwise.yielded))
    else:
        for result in op.results:
            yield result, ()


def _carried_sources(
    init: tuple[Value, ...], body: Region, places: tuple[tuple[Value, ...], ...]
) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    for i, pair in enumerate(zip(init, body.yielded)):
        for values in places:
            yield values[i], pair


def _prune(region: Region, live: _Liveness) -> Region:
    kept = [op for op in region.ops if op in live.ops or Trait.TERMINATOR in op.traits]
    return region.with_ops([_prune_op(op, live) for op in kept])


def _prune_op(op: Operation, live: _Liveness) -> Operation:
    op = op.with_regions(tuple(_prune(region, live) for region in op.regions()))
    if not isinstance(op, (Loop, While, If)):
        return op
    # A carried value is needed when its result or any argument is: all share one source.
    if isinstance(op, Loop):
        places = zip(op.results, op.carried)
    else:
        places = zip(op.results, *(region.args for region in op.regions() if region.args))
    kept = [not live.values.isdisjoint(values) for values in places]
    return op if all(kept) else _keep_results(op, kept)


def _select(values: tuple[Value, ...], kept: list[bool]) -> tuple[Value, ...]:
    return tuple(value for value, keep in zip(values, kept) if keep)


def _yield_kept(region: Region, kept: list[bool]) -> Region:
    end = region.terminator
    values = _select(tuple(end.operand_values()), kept)
    return Region(region.args, (*region.ops[:-1], Yield(values=values, loc=end.loc)))


def _keep_results(op: Loop | While | If, kept: list[bool]) -> Operation:
    results = _select(op.results, kept)
    if isinstance(op, If):
        then, otherwise = _yield_kept(op.then, kept), _yield_kept(op.otherwise, kept)
        return replace(op, results=results, then=then, otherwise=otherwise)
    init = _select(op.init, kept)
    body = _yield_kept(op.body, kept)
    if isinstance(op, Loop):
        body = Region((*body.args[: op.rank], *_select(op.carried, kept)), body.ops)
        return replace(op, results=results, init=init, body=body)
    body = Region(_select(body.args, kept), body.ops)
    condition = Region(_select(op.condition.args, kept), op.condition.ops)
    return replace(op, results=results, init=init, body=body, condition=condition)


def _drop_parameters(function: Function) -> Function:
    values = {*values_used_by(function.body.ops), *values_defined_in(function.body)}
    values |= {p.value for p in function.before.parameters} if function.before else set[Value]()
    named = set(value_symbols(values))
    for value in values:
        if isinstance(value.type, TensorType):
            extents = (*value.type.shape, *value.type.strides)
            named.update(extent for extent in extents if isinstance(extent, str))
    kept = tuple(p for p in function.parameters if p.value in values or p.value.name in named)
    sizes = tuple(size for size in function.sizes if size.name in named)
    if (len(kept), len(sizes)) == (len(function.parameters), len(function.sizes)):
        return function
    return replace(function, parameters=kept, sizes=sizes)
