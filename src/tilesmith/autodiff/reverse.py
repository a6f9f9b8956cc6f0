"""The backward kernel: the ops of the forward one in reverse, each with its derivative.

Loads add to the gradients of their tensors, stores read them. A loop that only adds up has a
backward loop of any order; another one runs down, and computes what it carried up to each tile
again from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.autodiff.derivatives import DERIVATIVES
from tilesmith.autodiff.outline import Outline
from tilesmith.autodiff.primal import Primal, dtype_text, new_axes
from tilesmith.autodiff.scope import Names, Scope, Text
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, If, Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.reduction import Reduce, Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Value


class Reversal:
    """Writes the backward kernel of one function."""

    def __init__(self, outline: Outline, names: Names, wanted: set[Value]) -> None:
        self.outline = outline
        self.names = names
        self.primal = Primal(outline, names)
        self.wanted = wanted
        """Tensors whose gradients are asked for."""
        doubles = [t for t in outline.tensors if t.tensor.dtype.name == "f64"]
        self.dtype = "f64" if doubles else "f32"
        """In which gradients are computed."""
        self.gradients: dict[Value, str] = {}
        """The tensors whose gradients are read or added to, and what those are called."""

    def write(self) -> list[str]:
        """The statements of the kernel, host code included."""
        host = Scope(self.outline.function.body)
        grids = [op for op in self.outline.function.body.ops if isinstance(op, Grid)]
        for number, grid in enumerate(reversed(grids)):
            body = Scope(grid.body, host)
            header = self.primal.header(grid, body)
            self._reverse(grid.body, body)
            if number and body.lines:
                host.lines.append("hl.barrier()")
            host.add_loop(header, body)
        return host.lines

    def gradient_of(self, tensor: Value) -> str:
        """The name of the gradient of a tensor."""
        wish = f"grad_{tensor.name or 'tensor'}"
        return self.gradients.setdefault(tensor, self.names.fresh(wish))

    def _reverse(self, region: Region, scope: Scope) -> None:
        for op in reversed(region.ops):
            if isinstance(op, (Store, Atomic)):
                self._stored(op, scope)
            elif isinstance(op, Loop):
                self._loop(op, scope)
            elif isinstance(op, (If, While)):
                self._check_branch(op, scope)
            elif isinstance(op, GridBarrier) or not op.results:
                continue
            else:
                self._reverse_op(op, scope)

    def _check_branch(self, op: Operation, scope: Scope) -> None:
        writes = any(isinstance(o, (Store, Atomic)) for r in op.regions() for o in walk(r))
        if writes or any(value in scope.gradients for value in op.results):
            raise self.outline.refusal("gradients pass through a branch or an open loop")

    def _reverse_op(self, op: Operation, scope: Scope) -> None:
        result = op.results[0]
        gradient = scope.gradients.pop(result, None)
        if gradient is None:
            return
        if isinstance(op, Load):
            self._loaded(op, gradient, scope)
            return
        rule = _RULES.get(type(op))
        if rule is None:
            raise self.outline.refusal(f"it uses `{op.name}`")
        rule(self, op, gradient, scope)

    def contribute(self, value: Value, text: Text, scope: Scope) -> None:
        """Add to the gradient of a value, wherever it is defined."""
        if value not in self.outline.active:
            return
        home = scope.of(self.outline.home(value))
        known = home.gradients.get(value)
        wish = f"d_{value.name or 'value'}"
        if home is not scope:
            self._contribute_from_inside(value, text, scope, home)
        elif known is None:
            home.gradients[value] = text
        else:
            code = f"{known.code} + {text.code}"
            is_full = known.is_full or text.is_full
            home.gradients[value] = Text(self.primal.assign(code, wish, scope), is_full)

    def _contribute_from_inside(self, value: Value, text: Text, scope: Scope, home: Scope) -> None:
        known = home.gradients.get(value)
        if known is None or known.code not in home.sums:
            start = self._zeros(value, home) if known is None else self.shaped(known, value, home)
            name = self.primal.assign(start, f"d_{value.name or 'value'}", home)
            home.sums.add(name)
            home.gradients[value] = known = Text(name)
        scope.lines.append(f"{known.code} = {known.code} + {text.code}")

    def _zeros(self, value: Value, scope: Scope) -> str:
        sizes = self.primal.sizes(value.tile.shape, scope)
        return f"hl.zeros([{sizes}], dtype={dtype_text(self.dtype)})"

    def shaped(self, text: Text, value: Value, scope: Scope) -> str:
        """A gradient with all of the value's shape."""
        if text.is_full:
            return text.code
        return f"{text.code}.expand([{self.primal.sizes(value.tile.shape, scope)}])"

    def _stored(self, op: Store | Atomic, scope: Scope) -> None:
        if isinstance(op, Atomic):
            self._check_atomic(op)
        if not op.tensor.tensor.dtype.is_float:
            return
        name = self.gradient_of(op.tensor)
        if op.value in self.outline.active:
            code = self.primal.accesses.read(op, name, scope)
            text = Text(self.primal.assign(code, f"d_{op.value.name or 'out'}", scope))
            self.contribute(op.value, text, scope)
        if isinstance(op, Store) and self._is_read_again(op):
            # What was there before the store does not reach its reader.
            scope.lines.append(self.primal.accesses.write(op, name, "0.0", scope))

    def _check_atomic(self, op: Atomic) -> None:
        if op.kind != AtomicKind.ADD.value or self.outline.uses.get(op.result):
            raise self.outline.refusal(f"it uses hl.atomic_{op.kind}")

    def _is_read_again(self, op: Store) -> bool:
        tensor = op.tensor
        has_others = len(self.outline.stores(tensor)) > 1
        return has_others or tensor in self.wanted or bool(self.outline.loads(tensor))

    def _loaded(self, op: Load, gradient: Text, scope: Scope) -> None:
        tensor = op.tensor
        is_inner = bool(self.outline.stores(tensor))
        if tensor not in self.wanted and not is_inner:
            return
        name = self.gradient_of(tensor)
        code = self.shaped(gradient, op.result, scope)
        accesses = self.primal.accesses
        is_only = len(self.outline.loads(tensor)) == 1 and not is_inner
        if is_only and accesses.is_met_once(op, self.outline.around(op)):
            scope.lines.append(accesses.write(op, name, code, scope))
        else:
            scope.lines.append(accesses.add(op, name, code, scope))

    def _loop(self, loop: Loop, scope: Scope) -> None:
        known = scope.gradients
        given = {k: known.pop(v) for k, v in enumerate(loop.results) if v in known}
        writes = any(isinstance(op, (Store, Atomic)) for op in walk(loop.body))
        if not given and not writes:
            return
        if self._is_plain(loop, given):
            self._plain_loop(loop, given, scope)
        else:
            self._ordered_loop(loop, given, scope)

    def _is_plain(self, loop: Loop, given: dict[int, Text]) -> bool:
        """Whether no turn's gradient depends on what another turn has computed."""
        for k, arg in enumerate(loop.carried):
            if not self.outline.only_adds_up(loop, k) and self.outline.uses.get(arg, 0):
                return False
            if k in given and not self.outline.only_adds_up(loop, k):
                return False
        return True

    def _plain_loop(self, loop: Loop, given: dict[int, Text], scope: Scope) -> None:
        body = Scope(loop.body, scope)
        header = self.primal.header(loop, body)
        sums = {k: Text(self._named(given[k], loop.results[k], scope)) for k in given}
        for k, text in sums.items():
            if loop.body.yielded[k] is not loop.carried[k]:
                self.contribute(loop.body.yielded[k], text, body)
        self._reverse(loop.body, body)
        scope.add_loop(header, body)
        for k, text in sums.items():
            self.contribute(loop.init[k], text, scope)

    def _named(self, text: Text, value: Value, scope: Scope) -> str:
        code = self.shaped(text, value, scope)
        return self.primal.assign(code, f"d_{value.name or 'sum'}", scope)

    def _ordered_loop(self, loop: Loop, given: dict[int, Text], scope: Scope) -> None:
        if loop.rank != 1 or not loop.blocks[0]:
            raise self.outline.refusal("a loop over several axes carries more than sums")
        positions = [k for k, arg in enumerate(loop.carried) if arg in self.outline.active]
        kept: dict[int, str] = {}
        for k in positions:
            value = loop.results[k]
            code = self.shaped(given[k], value, scope) if k in given else self._zeros(value, scope)
            kept[k] = self.primal.assign(code, f"d_{value.name or 'carried'}", scope)
        body = Scope(loop.body, scope)
        header = self.primal.header(loop, body, is_reversed=True)
        for k in positions:
            self.contribute(loop.body.yielded[k], Text(kept[k]), body)
        self._reverse(loop.body, body)
        news = [self._carried_gradient(loop.carried[k], body) for k in positions]
        if positions:
            body.lines.append(f"{', '.join(kept.values())} = {', '.join(news)}")
        scope.add_loop(header, body)
        for k in positions:
            self.contribute(loop.init[k], Text(kept[k]), scope)

    def _carried_gradient(self, value: Value, scope: Scope) -> str:
        text = scope.gradients.pop(value, None)
        return self._zeros(value, scope) if text is None else self.shaped(text, value, scope)


Rule = Callable[[Reversal, Any, Text, Scope], None]


def _elementwise(reversal: Reversal, op: Elementwise, gradient: Text, scope: Scope) -> None:
    templates = DERIVATIVES.get(op.fn)
    if templates is None:
        raise reversal.outline.refusal(f"`{op.fn}` has no derivative")
    named = {**dict(zip("abc", op.args)), "r": op.result}
    for template, arg in zip(templates, op.args):
        if not template or arg not in reversal.outline.active:
            continue
        used = {name: value for name, value in named.items() if f"{{{name}}}" in template}
        parts = {name: reversal.primal.value(value, scope) for name, value in used.items()}
        is_full = gradient.is_full or any(part.is_full for part in parts.values())
        codes = {name: part.code for name, part in parts.items()}
        code = template.format(g=gradient.code, **codes)
        if template != "{g}":
            code = reversal.primal.assign(code, f"d_{arg.name or 'value'}", scope)
        reversal.contribute(arg, Text(code, is_full), scope)


def _passed_on(reversal: Reversal, op: Cast | Mask, gradient: Text, scope: Scope) -> None:
    if isinstance(op, Cast) and op.bitcast:
        raise reversal.outline.refusal("bits of a value are taken for another type")
    reversal.contribute(op.x, gradient, scope)


def _contribute_new(reversal: Reversal, value: Value, code: str, scope: Scope) -> None:
    if value in reversal.outline.active:
        name = reversal.primal.assign(code, f"d_{value.name or 'value'}", scope)
        reversal.contribute(value, Text(name), scope)


def _reduced(reversal: Reversal, op: Reduce, gradient: Text, scope: Scope) -> None:
    back = f"[{new_axes(op.x.tile.rank, (op.axis,))}]"
    code = f"{reversal.shaped(gradient, op.result, scope)}{back}"
    if op.kind == "sum":
        reversal.contribute(op.x, Text(code, is_full=False), scope)
        return
    x, result = reversal.primal.full(op.x, scope), reversal.primal.value(op.result, scope).code
    if op.kind == "prod":
        _contribute_new(reversal, op.x, f"{code} * {result}{back} / {x}", scope)
        return
    if op.kind not in ("max", "min"):
        return
    dtype = dtype_text(reversal.dtype)
    ties = reversal.primal.assign(f"({x} == {result}{back}).to({dtype})", "ties", scope)
    count = f"torch.sum({ties}, dim={op.axis}){back}"
    _contribute_new(reversal, op.x, f"{code} * {ties} / {count}", scope)


def _scanned(reversal: Reversal, op: Scan, gradient: Text, scope: Scope) -> None:
    if op.kind != "sum":
        raise reversal.outline.refusal(f"it uses a running {op.kind}")
    code = reversal.shaped(gradient, op.result, scope)
    code = f"hl.cumsum({code}, {op.axis}, reverse={not op.reverse})"
    _contribute_new(reversal, op.x, code, scope)


def _dot(reversal: Reversal, op: Dot, gradient: Text, scope: Scope) -> None:
    code = reversal.shaped(gradient, op.result, scope)
    dtype = dtype_text(reversal.dtype)
    for value, other, is_left in ((op.lhs, op.rhs, True), (op.rhs, op.lhs, False)):
        if value in reversal.outline.active:
            flipped = f"{reversal.primal.full(other, scope)}.to({dtype}).transpose(-2, -1)"
            operands = f"{code}, {flipped}" if is_left else f"{flipped}, {code}"
            _contribute_new(reversal, value, f"hl.dot({operands})", scope)
    if op.acc is not None:
        reversal.contribute(op.acc, Text(code), scope)


def _expanded(reversal: Reversal, op: ExpandDims, gradient: Text, scope: Scope) -> None:
    code = reversal.shaped(gradient, op.result, scope)
    for axis in sorted(op.axes, reverse=True):
        code = f"{code}.squeeze({axis})"
    _contribute_new(reversal, op.x, code, scope)


def _broadcast(reversal: Reversal, op: Broadcast, gradient: Text, scope: Scope) -> None:
    code = reversal.shaped(gradient, op.result, scope)
    for axis, (old, new) in enumerate(zip(op.x.tile.shape, op.result.tile.shape)):
        if old != new:
            code = f"torch.sum({code}, dim={axis}, keepdim=True)"
    _contribute_new(reversal, op.x, code, scope)


def _reshaped(reversal: Reversal, op: Reshape, gradient: Text, scope: Scope) -> None:
    code = reversal.shaped(gradient, op.result, scope)
    sizes = reversal.primal.sizes(op.x.tile.shape, scope)
    _contribute_new(reversal, op.x, f"{code}.reshape([{sizes}])", scope)


def _permuted(reversal: Reversal, op: Permute, gradient: Text, scope: Scope) -> None:
    back = ", ".join(str(op.order.index(axis)) for axis in range(len(op.order)))
    code = f"{reversal.shaped(gradient, op.result, scope)}.permute({back})"
    _contribute_new(reversal, op.x, code, scope)


def _joined(reversal: Reversal, op: Join, gradient: Text, scope: Scope) -> None:
    code = reversal.shaped(gradient, op.result, scope)
    for position, value in enumerate((op.lhs, op.rhs)):
        _contribute_new(reversal, value, f"hl.split({code})[{position}]", scope)


def _selected(reversal: Reversal, op: Select, gradient: Text, scope: Scope) -> None:
    reversal.outline.check_split(op)
    code = reversal.shaped(gradient, op.result, scope)
    halves = [code, f"torch.zeros_like({code})"]
    first, second = halves if op.position == 0 else reversed(halves)
    _contribute_new(reversal, op.x, f"hl.join({first}, {second})", scope)


_RULES: dict[type[Operation], Rule] = {
    Elementwise: _elementwise, Cast: _passed_on, Mask: _passed_on, Reduce: _reduced,
    Scan: _scanned, Dot: _dot, ExpandDims: _expanded, Broadcast: _broadcast, Reshape: _reshaped,
    Permute: _permuted, Join: _joined, Select: _selected,
}  # fmt: skip
