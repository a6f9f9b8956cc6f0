"""Values that cross from host to device code.

Tensors become references, runtime numbers parameters. Everything else (ints, strings, dtypes, None,
functions) is a constant of the trace and guarded, so a later call whose host code computes another
value is traced anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, F64
from tilesmith.frontend.containers import cell_contents, items_of, plain_number, rebuilt
from tilesmith.frontend.device_forms import MAX_ITEMS, DeviceForms
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.read_values.attributes import Attributes
from tilesmith.frontend.read_values.global_reads import globals_read, place_of
from tilesmith.frontend.read_values.host_objects import HostObjectView
from tilesmith.frontend.source.checks import check_helper
from tilesmith.frontend.source.names import is_library
from tilesmith.frontend.tracing.guards import has_device_form
from tilesmith.frontend.tracing.host_session import BlockSizeInt, RuntimeFloat, RuntimeInt
from tilesmith.frontend.tracing.tensors import readable_name, reference, size_dim
from tilesmith.frontend.tracing.tracer import INT32_LIMIT, WIDE_LIMIT, Tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue, size_of_dim
from tilesmith.ir.types import Dim, scalar


class CapturedValues:
    """Wraps captured values for one trace and notes what the trace depends on."""

    def __init__(
        self,
        tracer: Tracer,
        forms: DeviceForms,
        volatile: frozenset[str] = frozenset(),
        host_objects: Sequence[object] = (),
    ) -> None:
        self._tracer = tracer
        self._forms = forms
        self._guards = tracer.guards
        self._volatile = volatile
        """Sources of numbers that were constants once and changed: now they are parameters."""
        self._host_objects = host_objects
        """Arguments that only host code knows: device code reads their attributes."""
        self._noted: dict[FunctionType, str] = {}
        self._attributes = Attributes(self, self._guards)

    @contextmanager
    def running(self, device_code: CodeType) -> Iterator[None]:
        """Run device code within; then guards stand for what it read by itself."""
        with self._attributes.recording():
            yield
        for key, known in self._tracer.tensor_refs.items():
            self._tracer.closure_sources.setdefault(key, (known.host_tensor, known.source))
        self._attributes.settle(device_code)

    def wrap(self, value: Any, source: str) -> Any:
        """The device-side form of a host value that the launcher finds at ``source``."""
        if isinstance(value, torch.Tensor):
            return reference(self._tracer, value, source)
        if isinstance(value, constexpr):
            return self.wrap(value.value, f"{source}.value")
        if isinstance(value, (bool, int, float)):
            return self._wrap_number(value, source)
        if isinstance(value, FunctionType):
            check_helper(value)
            self.note_function(value, source)
            return self._forms.of(value)
        if any(value is known for known in self._host_objects):
            return HostObjectView(self, value, source)
        return self._wrap_other(value, source)

    def _wrap_other(self, value: Any, source: str) -> Any:
        if isinstance(value, partial):
            check_helper(cast("partial[Any]", value).func)
            return self._forms.of(self._note_partial(cast("partial[Any]", value), source))
        number = plain_number(value)
        if number is not value:
            return self.wrap(number, f"{source}.item()")
        items = items_of(value)
        if items is None:
            if not has_device_form(value):
                raise errors.CantReadOnDevice(name=source, kind=kind_of(value))
            return self._forms.of(self._note_leaf(value, source))
        self._guards.container(value, source)
        self._attributes.reach(value, source)
        wrapped = [self.wrap(item.value, f"{source}{item.suffix}") for item in items]
        return CapturedList(wrapped, source) if type(value) is list else rebuilt(value, wrapped)

    def _wrap_number(self, value: Any, source: str) -> Any:
        if isinstance(value, BlockSizeInt):
            return size_of_dim(Dim.of(self._block(value, source)))
        if not isinstance(value, bool) and not self._guards.is_found_by_code(source):
            is_runtime = source in self._volatile
            if isinstance(value, RuntimeInt) or (is_runtime and isinstance(value, int)):
                return self._runtime_int(value, source)
            if isinstance(value, RuntimeFloat) or is_runtime:
                return self._runtime_float(source)
        self._guards.constant(value, source)
        return value

    def _block(self, value: BlockSizeInt, source: str) -> str:
        for known in self._tracer.blocks:
            if known.slot == value.slot:
                return known.name
        registered = self._tracer.host.registered[value.slot]
        hint = source if source.isidentifier() else "block"
        high = None if registered.is_runtime_size else registered.high
        block = self._tracer.new_block(
            hint, slot=value.slot, extent=registered.high, low=registered.low, high=high
        )
        return block.name

    def declare_registered(self) -> None:
        """Every registered block size has its config entry, also one that device code lacks."""
        for registered in self._tracer.host.registered:
            self._block(registered.value, "registered")

    def _runtime_int(self, value: int, source: str) -> Scalar | int:
        constant_sizes = self._tracer.host.constant_sizes
        if not self._tracer.options.static_shapes and constant_sizes.is_constant(source, value):
            self._tracer.equal_sizes.append((source, str(int(value))))
            return int(value)
        dtype = self._tracer.integer_dtype(int(value))
        fits = f"-{INT32_LIMIT} <= {source} <= {WIDE_LIMIT}"
        self._guards.require(fits, -INT32_LIMIT <= value <= WIDE_LIMIT, source=source)
        parameter = self._tracer.parameter(readable_name(source), source, scalar(dtype))
        self._tracer.arguments.setdefault(parameter, value)
        self._tracer.observed[parameter.name] = int(value)
        result = Scalar(parameter)
        if not self._tracer.options.static_shapes:
            result.as_dim = size_dim(parameter.name, int(value))
        return result

    def _runtime_float(self, source: str) -> Scalar:
        name = readable_name(source)
        tracer = self._tracer
        result = Scalar(lambda: tracer.parameter(name, source, scalar(F32)), tile_type=scalar(F32))
        # Device code computes in fp32; the whole double is read only where fp64 asks for it.
        result.double = lambda: TileValue(
            tracer.parameter(f"{name}_f64", f"float({source})", scalar(F64))
        )
        return result

    def method(self, method: MethodType, source: str, owner: HostObjectView) -> MethodType:
        """A method of an object that device code sees as ``owner``."""
        function: Any = method.__func__
        if isinstance(function, FunctionType):
            check_helper(function)
            self.note_function(function, f"{source}.__func__")
        return MethodType(self._forms.of(function), owner)

    def note_function(self, function: FunctionType, source: str) -> None:
        """What a function holds and reads is an input or a constant when device code calls it."""
        self._guards.constant(function, source)
        if is_library(function):
            return
        if function in self._noted:
            self._guards.same(self._noted[function], source)
            return
        self._noted[function] = source
        outer, self._attributes.reader = self._attributes.reader, function.__code__
        for position, cell in enumerate(function.__closure__ or ()):
            held = cell_contents(cell)
            where = f"{source}.__closure__[{position}].cell_contents"
            known = self.note(held, where)
            if known is not held:
                self._forms.cell_values[id(cell)] = known
        for name in ("__defaults__", "__kwdefaults__"):
            held = getattr(function, name)
            known = self.note(held, f"{source}.{name}") if held else held
            if known is not held:
                self._forms.default_values[function, name] = known
        self.note_globals(function.__code__, function.__globals__)
        self._attributes.reader = outer

    def note_globals(self, code: CodeType, scope: dict[str, Any]) -> None:
        """Globals that code reads are inputs (tensors) or guarded constants."""
        for read in globals_read(code, scope):
            if len(items_of(read.value) or ()) <= MAX_ITEMS:
                position = place_of(read.scope, self._tracer.constants)
                self.note(read.value, f"__constants__[{position}][{read.name!r}]")

    def note(self, value: Any, source: str) -> Any:
        """A value that device code reaches by itself: remember where tensors in it are found.

        The value itself, or one in which runtime numbers of host code have their device forms.
        """
        if isinstance(value, torch.Tensor):
            # One parameter stands for both places, so they must go on holding one tensor.
            _, known = self._tracer.closure_sources.setdefault(id(value), (value, source))
            self._guards.same(known, source)
        elif isinstance(value, FunctionType):
            self.note_function(value, source)
        elif isinstance(value, (bool, int, float)):
            return self._wrap_number(value, source)
        elif isinstance(value, partial):
            return self._note_partial(cast("partial[Any]", value), source)
        else:
            return self._note_items(value, source)
        return value

    def _note_partial(self, given: partial[Any], source: str) -> partial[Any]:
        """What is bound to the function is found where the closure of one would be."""
        self._guards.container(given, source)
        function = self.note(given.func, f"{source}.func")
        args = self._note_items(given.args, f"{source}.args")
        keywords = self._note_items(given.keywords, f"{source}.keywords")
        return partial(function, *args, **keywords)

    def _note_items(self, value: Any, source: str) -> Any:
        items = items_of(value)
        if items is None:
            return self._note_leaf(value, source)
        self._guards.container(value, source)
        self._attributes.reach(value, source)
        known = [self.note(item.value, f"{source}{item.suffix}") for item in items]
        is_same = all(new is item.value for new, item in zip(known, items))
        return value if is_same else rebuilt(value, known)

    def _note_leaf(self, value: Any, source: str) -> Any:
        self._guards.constant(value, source)
        self._attributes.reach(value, source)
        if isinstance(value, MethodType):
            self.note(value.__func__, f"{source}.__func__")
            self._attributes.reach(value.__self__, f"{source}.__self__")
        return value


class CapturedList(list[Any]):
    """A list of the host in device code: it may be read, not changed."""

    def __init__(self, items: list[Any], source: str) -> None:
        super().__init__(items)
        self._source = source

    def _reject(self, *_: Any, **__: Any) -> Any:
        raise errors.CapturedListMutation(name=self._source)

    append = extend = insert = pop = remove = clear = reverse = _reject
    sort = _reject  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _reject
