"""The backward kernel as text: host code that makes the gradients around the device loops."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from tilesmith.gradients.gradient_tensors import BackwardProgram, Buffer
from tilesmith.gradients.grids.placement import Mode
from tilesmith.gradients.recurrences import Bound, Extent, KeptState
from tilesmith.gradients.source.device_code import INDENT, DeviceCode, block_places, shared_blocks
from tilesmith.gradients.source.expressions import Expressions
from tilesmith.gradients.source.scope import Scope, tensor_dtype
from tilesmith.gradients.source.texts import LINE, Identifiers, Text, listed, returned, wrapped
from tilesmith.gradients.stages import stores_of
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.traversal import definitions, shape_symbols, walk
from tilesmith.ir.types import ONE, TensorType, Value

HEADER = "import torch\n\nimport tilesmith as helion\nimport tilesmith.language as hl\n\n\n"
LARGEST_UNKNOWN_BLOCK = 128
"""Of a block whose loop ends at a number that only device code knows."""


class Role(Enum):
    """Where an argument of the backward kernel comes from."""

    COTANGENT = "the cotangent of what the forward kernel wrote"
    CAPTURED = "a launch expression of the forward kernel"


@dataclass(frozen=True)
class Argument:
    """One parameter of the backward kernel."""

    name: str
    role: Role
    source: str
    """The name of the written tensor, or a launch expression."""


@dataclass(frozen=True)
class BackwardSource:
    """The text of a backward kernel, and how to call it."""

    name: str
    text: str
    arguments: tuple[Argument, ...]
    gradients: tuple[str, ...]
    """Launch expressions of the tensors whose gradients it returns, in order."""
    is_staged: bool = False
    """Whether it has two launches."""


@dataclass(frozen=True)
class Options:
    """Settings that the backward kernel shares with the forward one."""

    static_shapes: bool = True
    others: tuple[tuple[str, str], ...] = ()
    """More of them, as they are written."""


class HostSizes:
    """Sizes that host code computes: of blocks, of loops, of what is kept."""

    def __init__(self, function: Function, scope: Scope) -> None:
        self._function = function
        self._scope = scope

    def most(self, op: Grid | Loop, axis: int) -> str:
        """The largest block that an axis has a use for."""
        if op.body.args[axis] in self._scope.ends:
            return self._scope.ends[op.body.args[axis]]
        end = op.ends[axis]
        known = self._scope.definitions.get(end)
        if isinstance(known, Full) or end in self._scope.texts:
            return Expressions(self._scope).text(end).code
        return str(LARGEST_UNKNOWN_BLOCK)

    def register_blocks(self, wanted: Collection[str]) -> list[str]:
        """Lines that name blocks: those of several loops, of none, and those that are wanted."""
        function, lines = self._function, list[str]()
        places = shared_blocks(function)
        for block, place in block_places(function):
            if block in wanted and function.block(block).fixed is None:
                places.setdefault(block, place)
        for block, (op, axis) in places.items():
            low, most = function.block(block).low, self.most(op, axis)
            lines.append(self._register(block, f"{low}, {most}" if low > 1 else most))
        for block in self._loose_blocks():
            most = block.high or block.extent or LARGEST_UNKNOWN_BLOCK
            lines.append(self._register(block.name, f"{block.low}, {most}"))
        return lines

    def _register(self, block: str, bounds: str) -> str:
        name = self._scope.identifiers.make(re.sub(r"^tile", "block", block))
        self._scope.blocks[block] = name
        return f"{name} = hl.register_block_size({bounds})"

    def _loose_blocks(self) -> list[Block]:
        """Tuned blocks that no loop steps by: numbers made with ``hl.arange`` have them."""
        stepped = {block for block, _ in block_places(self._function)}
        ops = list(walk(self._function.body))
        used = {symbol for op in ops for symbol in shape_symbols(op)}
        used |= {op.block for op in ops if isinstance(op, BlockSize)}
        tuned = [block for block in self._function.blocks if block.fixed is None]
        return [block for block in tuned if block.name in used - stepped]

    def count(self, end: Bound, block: str) -> str:
        """How many tiles a loop has."""
        text = self.end(end, block)
        fixed = self._function.block(block).fixed
        size = self._scope.blocks.get(block) or str(fixed)
        return f"helion.cdiv({text}, {size})"

    def extent(self, extent: Extent) -> str:
        """How long a kept state is along one axis."""
        if extent.end is None:
            return self._scope.dim(extent.dim or ONE)
        if extent.block:
            return self.count(extent.end, extent.block)
        return self.end(extent.end)

    def end(self, end: Bound, block: str = "") -> str:
        """The end of a loop, as the loop itself has it."""
        if not isinstance(end, Value):
            return self._scope.extent(end)
        for name, (op, axis) in block_places(self._function):
            arg = op.body.args[axis]
            if op.ends[axis] is end and arg in self._scope.ends and block in ("", name):
                return self._scope.ends[arg]
        return Expressions(self._scope).text(end).code


class KernelText:
    """Writes one backward kernel."""

    def __init__(self, program: BackwardProgram, options: Options) -> None:
        self._program = program
        self._options = options
        known = definitions(program.function.body)
        self._scope = Scope(program.function, known, Identifiers())
        self._sizes = HostSizes(program.function, self._scope)
        self._arguments: list[Argument] = []
        self._host: list[str] = []
        self._made: list[Value] = []
        """Tensors that host code makes."""
        used = {parameter.value for parameter in program.function.parameters}
        self._states = [state for state in program.states if state.tensor in used]

    def write(self) -> BackwardSource:
        """The whole text."""
        name = self._scope.identifiers.make(self._program.function.name)
        self._name_tensors()
        self._name_numbers()
        self._scope.name_ends()
        self._name_made()
        wanted = {block for buffer in self._program.buffers for _, block in buffer.parts}
        wanted |= {extent.block for state in self._states for extent in state.shape}
        self._host += self._sizes.register_blocks(wanted)
        states = [self._state_allocation(state) for state in self._states]
        first, second = self._stages()
        buffers = self._program.buffers
        written = {tensor for op in first.ops for tensor in stores_of(op)}
        early = [self._allocation(b) for b in buffers if not second.ops or b.value in written]
        late = [self._allocation(b) for b in buffers if second.ops and b.value not in written]
        # A statement of the host between loops makes them two launches.
        late += [self._view(*view) for view in self._program.views]
        code = DeviceCode(self._scope, self._program.reversed_loops)
        code.write(first, 1)
        code.lines += [text for line in late for text in wrapped(line, INDENT)]
        code.write(second, 1)
        results = [self._result(buffer) for buffer in self._program.buffers]
        body = [*self._host, *early, *states]
        lines = [
            *self._decorator(),
            *self._header(name),
            *(text for line in body for text in wrapped(line, INDENT)),
            *code.lines,
            f"{INDENT}return {returned(results)}",
        ]
        parameters = {p.value: p.source for p in self._program.forward.parameters}
        gradients = tuple(parameters[buffer.like] for buffer in self._program.buffers)
        text = HEADER + code.combinations.text() + "\n".join(lines) + "\n"
        return BackwardSource(name, text, tuple(self._arguments), gradients, bool(second.ops))

    def _stages(self) -> tuple[Region, Region]:
        """The loops of the first launch, and those of the second if there is one."""
        body = self._program.function.body
        handed = self._program.handed
        places = [i for i, op in enumerate(body.ops) if handed & stores_of(op)]
        end = places[-1] + 1 if places else len(body.ops)
        return body.with_ops(body.ops[:end]), body.with_ops(body.ops[end:])

    def _decorator(self) -> list[str]:
        settings = [f"static_shapes={self._options.static_shapes}"]
        settings += [f"{key}={value}" for key, value in self._options.others]
        is_computed = any(map(self._is_finished_on_host, self._program.buffers))
        if is_computed or self._program.consumed:
            settings.append("ignore_warnings=[helion.exc.TensorOperationInWrapper]")
        return [f"@helion.kernel({', '.join(settings)})"]

    def _signature(self) -> str:
        kinds = {p.source: p.value.type for p in self._program.forward.parameters}
        parts: list[str] = []
        for argument in self._arguments:
            kind = kinds[argument.source] if argument.role is Role.CAPTURED else None
            if kind is None or isinstance(kind, TensorType):
                parts.append(f"{argument.name}: torch.Tensor")
            else:
                parts.append(f"{argument.name}: {'float' if kind.dtype.is_float else 'int'}")
        return ", ".join(parts)

    def _header(self, name: str) -> list[str]:
        """The ``def``, with a line for each parameter where one is too short."""
        signature, returns = self._signature(), self._returns()
        line = f"def {name}({signature}){returns}:"
        if len(line) <= LINE:
            return [line]
        parts = [f"{INDENT}{part}," for part in signature.split(", ")]
        return [f"def {name}(", *parts, f"){returns}:"]

    def _returns(self) -> str:
        count = len(self._program.buffers)
        one = "torch.Tensor"
        return f" -> {one}" if count == 1 else f" -> tuple[{', '.join([one] * count)}]"

    def _add(self, value: Value, role: Role, source: str, wish: str = "") -> None:
        name = self._scope.identifiers.make(wish or value.name)
        self._scope.texts[value] = Text(name)
        self._arguments.append(Argument(name, role, source))

    def _name_tensors(self) -> None:
        consumed = self._program.consumed
        for written, cotangent in self._program.cotangents:
            self._add(cotangent, Role.COTANGENT, written.name)
            if cotangent in consumed:
                given = self._scope.texts[cotangent].code
                left = self._scope.identifiers.make(f"{given}_left")
                self._host.append(f"{left} = {given}.clone()")
                self._scope.texts[cotangent] = Text(left)
        needed = {parameter.value for parameter in self._program.function.parameters}
        needed |= {self._model_of(buffer, needed) for buffer in self._program.buffers}
        kept = {state.tensor for state in self._program.states}
        made = {buffer.value for buffer in self._program.buffers}
        for parameter in self._program.forward.parameters:
            is_needed = parameter.value in needed and parameter.value not in kept
            if isinstance(parameter.value.type, TensorType) and is_needed:
                self._add(parameter.value, Role.CAPTURED, parameter.source)
        made |= {state.tensor for state in self._states}
        made |= {view for view, _, _ in self._program.views}
        self._made = sorted(made, key=lambda value: value.name)

    def _model_of(self, buffer: Buffer, there: Collection[Value]) -> Value:
        """The tensor that a gradient is made like: of those that are there anyway, if one fits."""
        like = buffer.like.tensor
        forward = [parameter.value for parameter in self._program.forward.parameters]
        fitting = (
            value
            for value in (buffer.like, *forward)
            if value in there
            and isinstance(value.type, TensorType)
            and (value.type.dtype, value.type.shape) == (like.dtype, like.shape)
        )
        return next(fitting, buffer.like)

    def _name_made(self) -> None:
        for value in self._made:
            self._scope.texts[value] = Text(self._scope.identifiers.make(value.name))

    def _name_numbers(self) -> None:
        """Sizes of tensors that are arguments are read from those; other numbers are arguments."""
        sources = {p.value: p.source for p in self._program.forward.parameters}
        tensors = {
            sources[value]: self._scope.texts[value].code
            for value in sources
            if isinstance(value.type, TensorType) and value in self._scope.texts
        }
        for written, cotangent in self._program.cotangents:
            tensors.setdefault(sources[written], self._scope.texts[cotangent].code)
        for parameter in self._program.function.parameters:
            value, source = parameter.value, parameter.source
            if isinstance(value.type, TensorType) or value in self._scope.texts:
                continue
            match = re.fullmatch(r"(.+)\.(size\(\d+\))", source)
            if match is not None and match[1] in tensors:
                self._scope.texts[value] = Text(f"{tensors[match[1]]}.{match[2]}")
            elif ".stride(" not in source:
                self._add(value, Role.CAPTURED, source)

    def _allocation(self, buffer: Buffer) -> str:
        there = {parameter.value for parameter in self._program.function.parameters}
        model = self._model_of(buffer, there)
        name, like = (self._scope.tensor(value) for value in (buffer.value, model))
        is_filled = buffer.placement.mode is Mode.STORE and buffer.placement.covers
        make = "empty" if is_filled else "zeros"
        is_same = buffer.value.tensor.dtype == buffer.like.tensor.dtype
        dtype = f"{like}.dtype" if is_same else tensor_dtype(buffer.value)
        if buffer.value in self._program.handed:
            # In another shape it is a view of this one, whatever the strides of the tensor are.
            return f"{name} = torch.{make}({like}.size(), dtype={dtype}, device={like}.device)"
        if not buffer.parts:
            given = "" if is_same else f", dtype={dtype}"
            return f"{name} = torch.{make}_like({like}{given})"
        counts = [self._sizes.count(*part) for part in buffer.parts]
        shape = listed([*counts, f"*{like}.size()"])
        return f"{name} = torch.{make}({shape}, dtype={dtype}, device={like}.device)"

    def _view(self, view: Value, whole: Value, like: Value) -> str:
        """A gradient in another shape."""
        sizes = [self._scope.extent(size) for size in like.tensor.shape]
        shape = "-1" if len(sizes) == 1 else listed(sizes)
        return f"{self._scope.tensor(view)} = {self._scope.tensor(whole)}.view({shape})"

    def _state_allocation(self, state: KeptState) -> str:
        name = self._scope.tensor(state.tensor)
        shape = listed(self._sizes.extent(extent) for extent in state.shape)
        device = self._scope.tensor(self._program.cotangents[0][1])
        dtype = tensor_dtype(state.tensor)
        return f"{name} = torch.empty({shape}, dtype={dtype}, device={device}.device)"

    def _is_finished_on_host(self, buffer: Buffer) -> bool:
        return bool(buffer.parts) or buffer.value.tensor.dtype != buffer.like.tensor.dtype

    def _result(self, buffer: Buffer) -> str:
        text = self._scope.tensor(buffer.value)
        if buffer.parts:
            axes = list(range(len(buffer.parts)))
            text = f"{text}.sum({axes[0] if len(axes) == 1 else axes})"
        if buffer.like in self._program.passed:
            text = f"({text} + {self._scope.tensor(self._program.passed[buffer.like])})"
        if buffer.value.tensor.dtype != buffer.like.tensor.dtype:
            text = f"{text}.to({tensor_dtype(buffer.like)})"
        return text


def write_kernel(program: BackwardProgram, options: Options | None = None) -> BackwardSource:
    """The source of a backward program."""
    return KernelText(program, options or Options()).write()
