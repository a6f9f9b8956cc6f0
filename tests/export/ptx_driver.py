"""A driver in the place of CUDA's: what a package hands over is read as a driver would, and the
PTX that its binaries were made of is run by the PTX machine."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from hashlib import sha256
from importlib import import_module
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from tests.fuzzing.simulated import ORDERS
from tests.fuzzing.unlaunched import GPU
from tilesmith.export import _gpu, binaries
from tilesmith.export.codes import LAUNCHER
from tilesmith.targets import parse_target
from tools.ptx_machine.bulk import Description
from tools.ptx_machine.launching import SWIZZLES
from tools.ptx_machine.machine import Program, run
from tools.ptx_machine.memory import Memory
from tools.ptx_machine.state import Launch, parameter_address
from tools.ptx_machine.text import read_kernel

BYTES_OF_TYPES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}
"""Of the driver's ``CUtensorMapDataType``."""
STREAM = 9 << 40


class PlacedTensor(torch.Tensor):
    """A tensor of the host that says of itself that it lies on a GPU."""

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    @override
    def get_device(self) -> int:
        return 0


class _Made(TorchDispatchMode):
    """Remembers memory of all tensors that are made meanwhile."""

    def __init__(self, pieces: list[torch.Tensor]) -> None:
        super().__init__()
        self._pieces = pieces

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        listed = result if isinstance(result, (tuple, list)) else [result]
        self._pieces += [x for x in listed if isinstance(x, torch.Tensor)]
        return result


class PtxDriver:
    """The functions that packages call; each returns 0."""

    def __init__(self, texts: Mapping[bytes, str]) -> None:
        self._texts = texts
        self.pieces: list[torch.Tensor] = []
        """Tensors whose memory kernels may use."""
        self._programs: list[Program] = []
        self._shared: dict[int, int] = {}
        self._described: dict[int, Description] = {}
        self._numbers = count()
        self.grids: list[tuple[int, ...]] = []
        """Of all launches."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def cuModuleLoadData(self, module: Any, content: bytes) -> int:  # noqa: N802
        self._programs.append(Program(read_kernel(self._texts[sha256(content).digest()])))
        module._obj.value = len(self._programs)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:  # noqa: N802
        assert self._programs[module.value - 1].kernel.name == name.decode()
        function._obj.value = module.value
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:  # noqa: N802
        assert attribute == 8
        self._shared[function.value] = value
        return 0

    def cuTensorMapEncodeTiled(self, place: Any, kind: int, rank: int, *given: Any) -> int:  # noqa: N802
        address, sizes, steps, box, jumps, interleave, swizzle, _, fill = given
        assert place.value % 64 == 0
        assert (len(sizes), [*jumps], interleave, fill) == (rank, [1] * rank, 0, 0)
        element = BYTES_OF_TYPES[kind]
        self._described[place.value] = Description(
            address.value,
            (*sizes[::-1],),
            (*[*steps][: rank - 1][::-1], element),
            (*box[::-1],),
            element,
            SWIZZLES[swizzle],
        )
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:  # noqa: N802
        *sizes, stream, attributes, num_attributes = struct.unpack_from("@7I4xQQI", config)
        assert (stream, attributes, num_attributes, extra) == (STREAM, 0, 0, None)
        return self._launch(function.value, sizes, pointers)

    def cuLaunchCooperativeKernel(self, function: Any, *given: Any) -> int:  # noqa: N802
        *sizes, stream, pointers = given
        assert stream.value == STREAM
        return self._launch(function.value, [size.value for size in sizes], pointers)

    def _launch(self, function: int, sizes: list[int], pointers: Any) -> int:
        program = self._programs[function - 1]
        x, y, z, threads, *rest, shared = sizes
        assert rest == [1, 1]
        assert threads == (program.kernel.threads or threads)
        assert shared <= self._shared.get(function, 48 << 10)
        contents: dict[str, bytes] = {}
        described: dict[int, Description] = {}
        for place, (name, size), number in zip(pointers, program.kernel.parameters, count()):
            if size == 128:
                described[parameter_address(number)] = self._described[place]
            contents[name] = ctypes.string_at(place, size)
        storages = [tensor.untyped_storage() for tensor in self.pieces]
        memory = Memory([(s.data_ptr(), s.nbytes()) for s in storages], "tensors'")
        launch = Launch((x, y, z), threads, shared, contents, memory, described)
        number = next(self._numbers)
        run(program, launch, order=ORDERS[number % 2], seed=number, late=number % 2 == 0)
        self.grids.append((x, y, z))
        return 0


@contextmanager
def texts_of_binaries() -> Iterator[dict[bytes, str]]:
    """What the binaries of packages that are exported meanwhile were made of."""
    texts: dict[bytes, str] = {}
    compile_artifact = binaries.compile_artifact

    def noted(*given: Any, **named: Any) -> Any:
        compiled = compile_artifact(*given, **named)
        texts[sha256(compiled.binary).digest()] = compiled.assembly["ptx"]
        return compiled

    with mock.patch.object(binaries, "compile_artifact", noted):
        yield texts


@contextmanager
def driven(load: Callable[[], Any], texts: Mapping[bytes, str]) -> Iterator[tuple[Any, PtxDriver]]:
    """The function of a package, loaded where it finds a GPU, and the driver that it finds."""
    driver = PtxDriver(texts)
    stream = SimpleNamespace(cuda_stream=STREAM, synchronize=lambda: None)
    with ExitStack() as stack:

        def put(owner: Any, **named: Any) -> None:
            for name, value in named.items():
                stack.enter_context(mock.patch.object(owner, name, value))

        put(torch.cuda, device=lambda _: nullcontext(), is_available=lambda: True)
        put(torch.cuda, current_stream=lambda *_: stream, device_count=lambda: 1)
        put(torch.cuda, get_device_capability=lambda _: (9, 0))
        function = load()
        launcher = function.__globals__[LAUNCHER]
        put(launcher, num_sms=lambda _: parse_target(GPU).num_sms)
        codes = import_module(f"{launcher.__package__}.{_gpu.__name__.rpartition('.')[2]}")
        put(codes, driver=lambda _: driver)
        put(codes, _current_device=lambda: 0, _raw_stream=lambda _: STREAM)
        stack.enter_context(_Made(driver.pieces))
        yield function, driver
