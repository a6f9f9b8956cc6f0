"""Compiles functions of lanes into native code that maps whole arrays: what the tests here run.

``compile_functions`` takes emitters over registers; each becomes ``f(count, inputs..., output)``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import torch

from tilesmith.backends.cpu.builder import Builder, Module
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register, index

Emitter = Callable[..., Register]


@dataclass(frozen=True)
class Spec:
    """A function of lanes: emitter over memory-form registers, and the memory elements."""

    name: str
    emit: Emitter
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Machine:
    """What to compile for; the empty name is this computer."""

    cpu: str = ""
    lanes: int = 16


class NativeFunctions:
    """Compiled functions by name; calling one maps tensors of one length lane by lane."""

    def __init__(self, specs: Sequence[Spec], machine: Machine) -> None:
        self._lanes = machine.lanes
        self._engine = _compile(_module(specs, machine.lanes), machine)

    def __call__(self, name: str, dtype: torch.dtype, *inputs: torch.Tensor) -> torch.Tensor:
        count = inputs[0].numel()
        padded = -(-count // self._lanes) * self._lanes
        arrays = [_pad(tensor, padded) for tensor in inputs]
        output = torch.empty(padded, dtype=dtype)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(arrays) + 1))
        function = kind(self._engine.get_function_address(name))
        function(padded, *(tensor.data_ptr() for tensor in (*arrays, output)))
        return output[:count]


def _pad(tensor: torch.Tensor, count: int) -> torch.Tensor:
    missing = count - tensor.numel()
    return torch.cat([tensor, tensor[-1:].expand(missing)]) if missing else tensor.contiguous()


def _module(specs: Sequence[Spec], lanes: int) -> str:
    module = Module()
    for spec in specs:
        names = [*(f"in{i}" for i in range(len(spec.inputs))), "out"]
        parameters = [("count", LType(INDEX)), *((name, LType(POINTER)) for name in names)]
        builder = Builder(module, spec.name, parameters, is_internal=False)
        _map_lanes(builder, spec, lanes)
        module.add(builder)
    return module.text()


def _map_lanes(b: Builder, spec: Spec, lanes: int) -> None:
    count, *pointers, output = b.parameters

    def step(position: Register, _: tuple[Register, ...]) -> None:
        loaded = [
            b.load(b.offset(pointer, position, element), LType(element, lanes))
            for pointer, element in zip(pointers, spec.inputs, strict=True)
        ]
        b.store(spec.emit(b, *loaded), b.offset(output, position, spec.output))

    b.loop(index(0), count, index(lanes), step)


@cache
def _start_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(ctypes.util.find_library("m") or "")


def _compile(text: str, machine: Machine) -> llvm.ExecutionEngine:
    _start_llvm()
    module = llvm.parse_assembly(text)
    module.verify()
    cpu = machine.cpu or llvm.get_host_cpu_name()
    features = "" if machine.cpu else llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine
