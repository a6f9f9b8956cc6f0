"""Loads an artifact's module, lets Triton compile it once, then calls the compiled kernel directly.

Triton's own launch path re-derives the specialization from all arguments; here it is decided by the
few things that may change between calls of one artifact (alignment of pointers, divisibility of
runtime integers).
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import (
    EXPRESSION_FUNCTIONS,
    MAX_LAUNCH_SIDE,
    Artifact,
    TensorDescription,
    load_module,
    write_module,
)
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.runtime.arguments import NOT_READ, LaunchOptions, refuse, refuse_without_memory
from tilesmith.runtime.calls.reader import plan_reading
from tilesmith.runtime.device import is_numbered
from tilesmith.runtime.generated import get_num_sm
from tilesmith.runtime.launchers.long_builds import LongBuilds, check_room
from tilesmith.runtime.launchers.unloading import Launches, stream_finder, unload_dropped


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class _CallText:
    """The source of the launch function of one artifact: every call pays for each of its lines.

    What is fixed is a constant in it. Tensors are asked for their address once, and the address is
    what the compiled kernel gets: handed a tensor, Triton would ask again and then have the driver
    look it up. So tensors that host code made are checked here to be on the device; the
    specialization key covers arguments. They live as long as the call, and torch's allocator orders
    their memory behind the launch.

    It calls ``__first(key, grid, arguments, constexprs)`` where no kernel is ready for the key, and
    ``__plain``, ``__elsewhere`` and ``__refuse`` where this function is not the one to launch.
    """

    def __init__(self, artifact: Artifact, captured: Sequence[str], options: LaunchOptions) -> None:
        self._artifact = artifact
        self._captured = ", ".join(captured)
        self._options = options
        self._places = {p.name: f"__{i}" for i, p in enumerate(artifact.parameters)}
        self._tensors = [self._places[p.name] for p in artifact.parameters if p.is_tensor]
        self._plan = plan_reading(artifact.parameters)
        self._read = set(self._plan.positions) if options.reader is not None else set[int]()
        self._grid = self._evaluated(artifact.grid, "__grid")
        self._constexprs = self._evaluated([text for _, text in artifact.constexprs], "__constant")

    @property
    def scope(self) -> dict[str, Any]:
        """The functions that expressions of an artifact may use."""
        reader = self._options.reader
        return {
            **EXPRESSION_FUNCTIONS,
            "__values": reader and self._plan.make_layout(reader, self._options.owner).values,
            "num_sms": get_num_sm(self._options.device),
        }

    def lines(self) -> Iterator[str]:
        yield f"def __launch({self._captured}):"
        for line in self._body():
            yield f"    {line}"

    def _description_key(self, description: TensorDescription) -> str:
        """An expression for what a descriptor depends on: an address, and sizes if they vary."""
        sizes = [self._renamed(size) for size in description.shape if not size.isdigit()]
        address = _address(self._places[description.tensor])
        return f"({', '.join([address, *sizes])})" if sizes else address

    def _body(self) -> Iterator[str]:
        for position, parameter in enumerate(self._artifact.parameters):
            if parameter.is_tensor or position not in self._read:
                yield f"{self._places[parameter.name]} = {parameter.source}"
        yield from self._checks()
        yield from self._readings()
        yield from self._assigned("__grid", self._artifact.grid, self._grid)
        sizes = [size for size in self._grid if not size.isdigit()]
        if sizes or "0" in self._grid:
            yield f"if not ({' and '.join(sizes or ['0'])}): return"
        texts = [text for _, text in self._artifact.constexprs]
        yield from self._assigned("__constant", texts, self._constexprs)
        yield from self._plain_checks()
        yield from self._launch()

    def _checks(self) -> Iterator[str]:
        options, device = self._options, self._options.device
        if device.type == "cuda" and not is_numbered(device):
            yield "__device = __current_device()"
        elif device.type == "cuda" and torch.cuda.device_count() > 1:
            yield f"if __current_device() != {device.index}:"
            yield f"    return __elsewhere({self._captured})"
        tensors = [p for p in self._artifact.parameters if p.is_tensor]
        doubts = [
            f"{self._places[p.name]}.get_device() != {self._index}"
            for p in tensors
            if not (p.is_made_at_launch or options.is_argument(p.source))
        ]
        if doubts:
            yield f"if {' or '.join(doubts)}:"
            yield f"    {self._refusal}"

    def _readings(self) -> Iterator[str]:
        """Addresses, whether all are multiples of 16 (``__low`` is 0 then), sizes and strides."""
        if not self._tensors:
            return
        yield "try:"
        yield from (f"    {line}" for line in self._reading_lines())
        yield "except __not_read:"
        yield f"    {self._refusal}"

    def _reading_lines(self) -> Iterator[str]:
        addresses = [_address(name) for name in self._tensors]
        if self._options.reader is not None:
            names = list(self._places.values())
            read = [names[position] for position in self._plan.positions]
            listed = [_address(name) if name in self._tensors else name for name in read]
            yield f"__low, {', '.join(listed)} = __values({', '.join(self._tensors)})"
            return
        for name, address in zip(self._tensors, addresses):
            yield f"{address} = {name}.data_ptr()"
        held = [f"{a} and not {name}.is_neg()" for name, a in zip(self._tensors, addresses)]
        yield f"if not ({' and '.join(held)}):"
        yield f"    __check_memory({self._sources})"
        yield f"__low = {_any_low_bits(addresses)}"

    @property
    def _sources(self) -> str:
        return ", ".join(parameter.source for parameter in self._artifact.parameters)

    @property
    def _refusal(self) -> str:
        """A call that raises for the first parameter that cannot be handed over."""
        return f"__refuse({self._sources})"

    @property
    def _index(self) -> str:
        device = self._options.device
        if device.type != "cuda":
            return "-1"
        return str(device.index) if is_numbered(device) else "__device"

    def _plain_checks(self) -> Iterator[str]:
        """Descriptors are of tensors aligned to 16 bytes and not empty; later axes are short."""
        doubts = [f"{size} > {MAX_LAUNCH_SIDE}" for size in self._grid[1:] if not size.isdigit()]
        addresses = sorted({_address(self._places[d.tensor]) for d in self._artifact.descriptions})
        if addresses:
            doubts += [_any_low_bits(addresses), f"not ({' and '.join(addresses)})"]
        if doubts:
            yield f"if {' or '.join(doubts)}:"
            yield f"    return __plain({self._captured})"

    def _launch(self) -> Iterator[str]:
        grid = ", ".join([*self._grid, "1", "1"][:3])
        constexprs = "".join(f"{value}, " for value in self._constexprs)
        listed = "".join(f"{name}, " for name in self._places.values())
        values = [_address(n) if n in self._tensors else n for n in self._places.values()]
        yield f"__key = {self._key()}"
        yield "__ready = __kernels.get(__key)"
        yield "if __ready is None:"
        if self._artifact.bytes_of_threads and self._options.find_other:
            yield f"    __other = __find_other({constexprs})"
            yield f"    if __other is not None: return __other({self._captured})"
        yield f"    return __first(__key, ({grid}), ({listed}), ({constexprs}))"
        yield "__run, __function, __metadata = __ready"
        yield f"__on = __stream({self._index})"
        yield "if __on: __launches.may_be_recorded = True"
        for position, item in enumerate(self._artifact.descriptions):
            key = self._description_key(item)
            yield f"__described = {key}"
            yield f"__description{position} = __kept{position}.get(__described)"
            yield f"if __description{position} is None:"
            yield f"    __description{position} = __keep{position}(__described, ({listed}))"
            values.append(f"__description{position}")
        passed = "".join(f"{value}, " for value in [*values, *self._constexprs])
        fixed = "__function, __metadata, None, None, None"
        yield f"__run({grid}, __on, {fixed}, {passed})"

    def _key(self) -> str:
        """What Triton specialises on, of what may change between calls.

        For addresses whether each is a multiple of 16 (0 if all are), for integers also whether
        they are 1 and whether they have 32 bits.
        """
        parts: list[str] = ["__device"] if self._index == "__device" else []
        if self._tensors:
            addresses = [_address(name) for name in self._tensors]
            each = "".join(f"{address} & 15 == 0, " for address in addresses)
            parts.append(f"__low and ({each})")
        for parameter in self._artifact.parameters:
            if not parameter.is_tensor and parameter.dtype[0] in "iu":
                name = self._places[parameter.name]
                parts += [f"{name} == 1 or {name} & 15 and 2", f"-{2**31} <= {name} < {2**31}"]
        parts += [value for value in self._constexprs if value.startswith("__")]
        return parts[0] if len(parts) == 1 else f"({''.join(f'{part}, ' for part in parts)})"

    def _evaluated(self, texts: Sequence[str], prefix: str) -> list[str]:
        """Each expression's value if it is fixed, else the name that it gets."""
        results: list[str] = []
        for position, text in enumerate(texts):
            names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
            is_fixed = names.isdisjoint(self._places)
            results.append(repr(eval(text, self.scope)) if is_fixed else f"{prefix}{position}")
        return results

    def _assigned(self, prefix: str, texts: Sequence[str], names: Sequence[str]) -> Iterator[str]:
        for text, name in zip(texts, names):
            if name.startswith(prefix):
                yield f"{name} = {self._renamed(text)}"

    def _renamed(self, text: str) -> str:
        """An expression over parameters, with the names that they have in the function."""
        tree = _Renaming(self._places).visit(ast.parse(text, mode="eval"))
        return ast.unparse(tree)


def _address(name: str) -> str:
    return f"{name}_address"


def _any_low_bits(addresses: Sequence[str]) -> str:
    """An expression that is 0 if all addresses are multiples of 16."""
    return f"({' | '.join(addresses)}) & 15"


COMPILE, LAUNCH = topic_log("compile"), topic_log("launch")
MAX_KEPT = 512
"""Addresses repeat, since allocators reuse memory; a table that still grows is emptied."""


def _descriptors(artifact: Artifact) -> list[Descriptors]:
    if not artifact.descriptions:
        return []
    from triton.tools.tensor_descriptor import TensorDescriptor

    scope: dict[str, Any] = {"TensorDescriptor": TensorDescriptor}
    if any(item.layout for item in artifact.descriptions):
        from triton.experimental.gluon import language as gl
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor

        scope = {"TensorDescriptor": GluonDescriptor, "gl": gl}
    names = [parameter.name for parameter in artifact.parameters]
    return [Descriptors(item, names, scope) for item in artifact.descriptions]


class TritonLauncher:
    """Launches one artifact; ``launch`` is a function of the captured values."""

    def __init__(
        self,
        artifact: Artifact,
        captured: Sequence[str],
        constants: Sequence[Any],
        options: LaunchOptions,
        make_plain: Callable[[], Callable[..., None]] | None = None,
    ) -> None:
        check_room(artifact, options.device, get_num_sm)
        self.artifact = artifact
        self._make_plain = make_plain and cache(make_plain)
        """Makes the same kernel's launcher with plain pointers and one launch axis."""
        self.path = write_module(artifact, options.cache_dir)
        self._device = options.device
        self._function = getattr(load_module(self.path), artifact.name)
        # Triton 3.7 keeps functions for good; what it has compiled for one goes with its launcher.
        weakref.finalize(self, getattr(self._function, "device_caches", {}).clear).atexit = False
        self._compiled: dict[Hashable, Any] = {}
        self._launches = Launches()
        self._ready: dict[Hashable, tuple[Any, Any, Any]] = {}
        """What a launch needs of what was compiled."""
        self._descriptors = _descriptors(artifact)
        self._scope: dict[str, Any] = {}
        self.launch: Callable[..., None] = self._make_launch(captured, constants, options)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """What Triton has compiled for the calls so far."""
        return tuple(self._compiled.values())

    def _launch_plain(self, *values: Any) -> None:
        """Launch where a tensor cannot be described, or a launch axis would be too long."""
        if self._make_plain is None:
            raise errors.InternalError(problem="a misaligned tensor, or too many programs")
        self._make_plain()(*values)

    def _make_launch(
        self, captured: Sequence[str], constants: Sequence[Any], options: LaunchOptions
    ) -> Callable[..., None]:
        text = _CallText(self.artifact, captured, options)
        self._scope |= {
            **text.scope,
            "__constants__": tuple(constants),
            "torch": torch,
            "__kernels": self._ready,
            "__first": self._first_launch,
            "__launches": self._launches,
            "__plain": self._launch_plain,
            "__elsewhere": self._launch_elsewhere,
            "__refuse": lambda *values: refuse(self.artifact.parameters, values, self._device),
            "__not_read": NOT_READ,
            "__check_memory": lambda *values: refuse_without_memory(
                self.artifact.parameters, values, self._device
            ),
            "__current_device": torch.cuda.current_device,
        }
        if self.artifact.bytes_of_threads and options.find_other:
            builds = LongBuilds(self.artifact, self.path, options.find_other)
            self._scope["__find_other"] = builds.find
        for position, item in enumerate(self._descriptors):
            self._scope |= {f"__kept{position}": item.kept, f"__keep{position}": item.keep}
        exec("\n".join(text.lines()), self._scope)
        return self._scope["__launch"]

    def _launch_elsewhere(self, *values: Any) -> None:
        """The caller's current device is another one."""
        with torch.cuda.device(self._device):
            self.launch(*values)

    def _first_launch(
        self,
        key: Hashable,
        grid: tuple[int, ...],
        arguments: tuple[Any, ...],
        constexprs: tuple[int, ...],
    ) -> None:
        name, watch = self.artifact.kernel_name, Stopwatch()
        LAUNCH.info("%s: first launch on %s, programs %s", name, self._device, grid)
        described = [item.construct(*arguments) for item in self._descriptors]
        names = [name for name, _ in self.artifact.constexprs]
        unload_dropped()
        try:
            with torch.cuda.device(self._device):
                compiled = self._function[grid](
                    *arguments, *described, **dict(zip(names, constexprs)), **self.artifact.options
                )
        except Exception as error:
            raise errors.TritonError.wrapping(
                error, function=self.artifact.name.lstrip("_"), path=str(self.path)
            ) from error
        COMPILE.info("%s: Triton and first launch %s", name, watch.lap())
        self._compiled[key] = compiled
        find_stream = self._scope["__stream"] = stream_finder()
        self._launches.watch(compiled, self._device, find_stream)
        self._ready[key] = (compiled.run, compiled.function, compiled.packed_metadata)


class Address:
    """Stands for a tensor in a descriptor: Triton asks for its address only."""

    __slots__ = ("data_ptr",)

    def __init__(self, address: int) -> None:
        self.data_ptr = lambda: address


class Descriptors:
    """Descriptors of one parameter; ``scope`` has Triton's class of them.

    Triton checks what it is given, which takes longer than all else about a launch: descriptors
    that passed serve again wherever address and sizes are the same. No tensor is kept alive.
    """

    def __init__(
        self, description: TensorDescription, names: Sequence[str], scope: dict[str, Any]
    ) -> None:
        text = f"lambda {', '.join(names)}: {description.call}"
        self.construct = eval(text, scope)
        """A descriptor of the tensor itself, made from all parameters."""
        self.kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, arguments: Sequence[Any]) -> Any:
        """The descriptor for these parameters, from now on also found in ``kept``."""
        made = self.construct(*arguments)
        made.base = Address(made.base.data_ptr())
        if len(self.kept) >= MAX_KEPT:
            self.kept.clear()
        self.kept[key] = made
        return made
