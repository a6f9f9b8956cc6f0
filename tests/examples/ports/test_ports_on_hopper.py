"""Default code of ported kernels for sm_90 at sizes of production: it compiles, nothing spills."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.backends.nvidia.compiler import get_ptxas

from tests.examples.ports.port import Port
from tests.examples.ports.ports import PORTS
from tests.host_backends import on_backend
from tilesmith.artifacts import LaunchParameter
from tilesmith.backends.triton.build import LaunchArgument, Pointer, build_kernel
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch


def defaults() -> list[Any]:
    return [
        pytest.param(port, is_static, id=f"{port}-{'static' if is_static else 'dynamic'}")
        for port in PORTS
        for is_static in (True, False)
    ]


@pytest.mark.parametrize(("port", "is_static"), defaults())
def test_default_code_spills_nothing(port: Port, is_static: bool, tmp_path: Path) -> None:
    assert spilled_bytes(compile_as_launched(port, is_static), tmp_path) == (0, 0)


def compile_as_launched(port: Port, is_static: bool) -> str:
    """The default code as PTX, specialised as a launch would have it."""
    dtype = torch.bfloat16 if torch.bfloat16 in port.dtypes else port.dtypes[0]
    args = port.make_inputs(port.typical, dtype, "cpu")
    bound = on_backend(port.kernel, "triton", static_shapes=is_static).bind(args, target="cuda:90")
    artifact = bound.to_artifact(bound.default_config())
    sizes = bound.specialization.default.trace.observed
    arguments = {item.name: stand_in(item, sizes) for item in artifact.parameters}
    compiled = build_kernel(artifact, arguments)
    assert compiled.metadata.shared <= artifact.target.shared_bytes
    return compiled.asm["ptx"]


def stand_in(parameter: LaunchParameter, sizes: dict[str, int]) -> LaunchArgument:
    """An aligned tensor, the integer that was given, or any float: code is the same for all."""
    if not parameter.is_tensor:
        return sizes.get(parameter.name, 0.5)
    dtype = to_torch(DTYPES_BY_NAME[parameter.dtype])
    return Pointer(str(dtype).removeprefix("torch."), 0, 1 << 30)


def spilled_bytes(ptx: str, folder: Path) -> tuple[int, int]:
    """Bytes that Triton's own ptxas stores and loads for want of registers."""
    (target,) = re.findall(r"\.target (sm_\w+)", ptx)
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    command = [get_ptxas(90).path, "-v", f"--gpu-name={target}"]
    command += [str(source), "-o", str(folder / "kernel.cubin")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    ((stores, loads),) = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    return int(stores), int(loads)


def test_spilling_would_be_noticed(tmp_path: Path) -> None:
    (port,) = [port for port in PORTS if port.name == "adamw"]
    ptx = compile_as_launched(port, True)
    stores, loads = spilled_bytes(ptx.replace(".reqntid", ".maxnreg 24\n.reqntid"), tmp_path)
    assert stores > 0
    assert loads > 0
