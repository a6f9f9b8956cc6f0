"""Compiles functions of lanes into native code that maps whole tensors: what the tests here run."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import torch

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    memory_element,
)
from tilesmith.backends.cpu.math.casts import HALF_CONVERSIONS, to_memory, to_register
from tilesmith.dtypes import DType
from tilesmith.interpreter.torch_dtypes import to_torch


@dataclass(frozen=True)
class Machine:
    """What to compile for; the empty name is this computer."""

    cpu: str = ""
    lanes: int = 16
    scales_vectors: bool = False
    """Whether vectors of floats are multiplied by powers of two in one instruction (AVX-512)."""

    def __str__(self) -> str:
        return f"{self.cpu or 'host'}x{self.lanes}"


HOST = Machine()
SCALAR = Machine(lanes=1)
AVX2 = Machine("haswell", 8)
SSE = Machine("nehalem", 8)


@dataclass(frozen=True)
class LaneFunction:
    """A function of registers: its element types and the emitter ``(builder, *registers)``."""

    name: str
    inputs: tuple[DType, ...]
    output: DType
    emit: Callable[..., Register]


class NativeFunctions:
    """Compiled functions by name; calling one maps tensors of one length lane by lane."""

    def __init__(self, functions: Sequence[LaneFunction], machine: Machine = HOST) -> None:
        self._functions = {function.name: function for function in functions}
        self._lanes = machine.lanes
        self._engine = _compile(_module(functions, machine), machine)

    def __call__(self, name: str, *inputs: torch.Tensor) -> torch.Tensor:
        count = inputs[0].numel()
        padded = -(-count // self._lanes) * self._lanes
        arrays = [_pad(tensor, padded) for tensor in inputs]
        output = torch.empty(padded, dtype=to_torch(self._functions[name].output))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(arrays) + 1))
        function = kind(self._engine.get_function_address(f"map_{name}"))
        function(padded, *(tensor.data_ptr() for tensor in (*arrays, output)))
        return output[:count]


def _pad(tensor: torch.Tensor, count: int) -> torch.Tensor:
    missing = count - tensor.numel()
    repeated = torch.as_strided(tensor[-1:], (missing,), (0,))
    return torch.cat([tensor, repeated]) if missing else tensor.contiguous()


def _module(functions: Sequence[LaneFunction], machine: Machine) -> str:
    module = Module(scales_vectors=machine.scales_vectors)
    for function in functions:
        names = [*(f"in{i}" for i in range(len(function.inputs))), "out"]
        parameters = [("count", LType(INDEX)), *((name, LType(POINTER)) for name in names)]
        builder = Builder(module, f"map_{function.name}", parameters, is_internal=False)
        _map_lanes(builder, function, machine.lanes)
        module.add(builder)
    return module.text() + (HALF_CONVERSIONS if machine == SSE else "")


def _map_lanes(b: Builder, function: LaneFunction, lanes: int) -> None:
    count, *pointers, output = b.parameters

    def step(position: Register, _: tuple[Register, ...]) -> None:
        loaded: list[Register] = []
        for pointer, dtype in zip(pointers, function.inputs, strict=True):
            element = memory_element(dtype)
            raw = b.load(b.offset(pointer, position, element), LType(element, lanes))
            loaded.append(to_register(b, dtype, raw))
        result = to_memory(b, function.output, function.emit(b, *loaded))
        b.store(result, b.offset(output, position, memory_element(function.output)))

    b.loop(index(0), count, index(lanes), step)


@cache
def _start_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(ctypes.util.find_library("m") or "libm.so.6")


def _compile(text: str, machine: Machine) -> llvm.ExecutionEngine:
    _start_llvm()
    module = llvm.parse_assembly(text)
    module.verify()
    cpu = machine.cpu or llvm.get_host_cpu_name()
    features = "" if machine.cpu else llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2
    )
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine
