# type: ignore
"""Prints, breakpoints and code of the user's own, used wrongly or where they cannot work."""

# ruff: noqa: T201

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X
from tilesmith import exc


@helion.kernel
def print_without_a_prefix(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        print(x[tile])
        out[tile] = x[tile]
    return out


@helion.kernel
def print_to_a_file(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        print("x", x[tile], flush=True)
        out[tile] = x[tile]
    return out


@helion.kernel
def print_of_a_host_tensor(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        hl.device_print("x", x)
        out[tile] = x[tile]
    return out


@helion.kernel
def print_of_a_string(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        hl.device_print("x", "and more")
        out[tile] = x[tile]
    return out


@helion.kernel
def device_print_on_the_host(x):
    hl.device_print("x")
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@helion.kernel
def breakpoint_in_compiled_code(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        breakpoint()
        out[tile] = x[tile]
    return out


@helion.kernel
def inline_triton_on_a_cpu(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("tl.sigmoid({0})", [value], value)
    return out


@helion.kernel(backend="reference")
def assembly_in_the_interpreter(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.inline_asm_elementwise(
            "ex2.approx.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, True, 1
        )
    return out


@helion.kernel
def placeholder_without_an_argument(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("{0} + {1}", [value], value)
    return out


@helion.kernel
def inline_code_without_a_value(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("y = {0} + 1", [value], value)
    return out


@helion.kernel
def inline_code_that_is_no_python(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("{0} +", [value], value)
    return out


@helion.kernel
def inline_code_like_a_tensor_of_the_host(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.inline_triton("{0} + 1", [x[tile]], x)
    return out


@helion.kernel
def triton_kernel_that_is_not_there(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.triton_kernel("no_such_function", [value], value)
    return out


@helion.kernel
def triton_kernel_without_jit(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.triton_kernel(abs, [value], value)
    return out


@helion.kernel
def assembly_with_a_pack_of_zero(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.inline_asm_elementwise("", "=f,f", [x[tile]], torch.float32, True, 0)
    return out


CASES = [
    Case(print_without_a_prefix, exc.InvalidAPIUsage, X),
    Case(print_to_a_file, exc.InvalidAPIUsage, X),
    Case(print_of_a_host_tensor, exc.HostTensorDirectUsage, X),
    Case(print_of_a_string, exc.TracedArgNotSupported, X),
    Case(device_print_on_the_host, exc.DeviceAPIOnHost, X),
    Case(breakpoint_in_compiled_code, exc.BreakpointInDeviceLoopRequiresInterpret, X),
    Case(inline_triton_on_a_cpu, exc.BackendUnsupported, X),
    Case(assembly_in_the_interpreter, exc.BackendUnsupported, X),
    Case(placeholder_without_an_argument, exc.InvalidAPIUsage, X),
    Case(inline_code_without_a_value, exc.InvalidAPIUsage, X),
    Case(inline_code_that_is_no_python, exc.InvalidAPIUsage, X),
    Case(inline_code_like_a_tensor_of_the_host, exc.InvalidAPIUsage, X),
    Case(triton_kernel_that_is_not_there, exc.InvalidAPIUsage, X),
    Case(triton_kernel_without_jit, exc.InvalidAPIUsage, X),
    Case(assembly_with_a_pack_of_zero, exc.InvalidAPIUsage, X),
]
