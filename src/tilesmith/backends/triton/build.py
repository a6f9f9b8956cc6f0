"""Artifacts to device binaries, without a device: Triton compiles for any target it knows.

The only file of the backend that imports Triton.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.names import SIGNATURE_DTYPES
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.targets import Target

POINTER_ALIGNMENT = 16


@dataclass(frozen=True)
class CompiledInfo:
    """What the compiler made and what it needs of a device."""

    name: str
    assembly: Mapping[str, str]
    """Text of the stages by name: ttir, ttgir, llir and ptx or amdgcn."""
    binary: bytes
    shared_bytes: int
    num_warps: int
    scratch_bytes: int
    """Global memory per program, for descriptors made on the device."""


def load_module(artifact: Artifact) -> ModuleType:
    """Import the emitted module; Triton reads the source of functions from their file."""
    with tempfile.TemporaryDirectory(prefix="tilesmith_") as folder:
        path = Path(folder) / f"{artifact.name.strip('_') or 'kernel'}.py"
        path.write_text(artifact.source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise InternalError(problem=f"{path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def evaluate_constexprs(
    artifact: Artifact, target: Target, scalars: Mapping[str, int]
) -> dict[str, int]:
    """The compile-time parameters for given values of the runtime ones."""
    names: dict[str, Any] = {
        **scalars,
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": next_power_of_2,
        "num_sms": target.num_sms,
        "max": max,
        "min": min,
    }
    return {
        name: int(eval(expression, {"__builtins__": {}}, names))
        for name, expression in artifact.constexprs
    }


def signature(artifact: Artifact) -> dict[str, str]:
    """The type of every argument of the device function, as Triton writes them."""
    types: dict[str, str] = {}
    for parameter in artifact.parameters:
        name = SIGNATURE_DTYPES[DTYPES_BY_NAME[parameter.dtype]]
        types[parameter.name] = f"*{name}" if parameter.is_tensor else name
    return {**types, **{name: "constexpr" for name, _ in artifact.constexprs}}


def compile_artifact(
    artifact: Artifact, target: Target | None = None, scalars: Mapping[str, int] | None = None
) -> CompiledInfo:
    """Compile for ``target`` (the artifact's own by default).

    ``scalars`` gives values to runtime parameters that compile-time ones are computed from. Tensors
    are taken to start at a multiple of 16 bytes, as the launcher guarantees.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = target or artifact.target
    arch = target.capability if target.kind == "cuda" else target.arch
    values = evaluate_constexprs(artifact, target, scalars or {})
    types = signature(artifact)
    positions = {name: position for position, name in enumerate(types)}
    source = ASTSource(
        getattr(load_module(artifact), artifact.name),
        types,
        {(positions[name],): value for name, value in values.items()},
        {
            (positions[parameter.name],): [["tt.divisibility", POINTER_ALIGNMENT]]
            for parameter in artifact.parameters
            if parameter.is_tensor
        },
    )
    options = {k: v for k, v in artifact.options.items() if k != "needs_allocator"}
    gpu = GPUTarget(target.kind, arch, target.warp_size)
    with warnings.catch_warnings():
        # We emit block pointers only for versions that still have them.
        warnings.filterwarnings("ignore", message="tl.make_block_ptr is deprecated")
        compiled = triton.compile(source, target=gpu, options=options)
    return _info(artifact, compiled)


def _info(artifact: Artifact, compiled: Any) -> CompiledInfo:
    metadata = compiled.metadata
    binary = compiled.asm.get("cubin") or compiled.asm.get("hsaco") or b""
    texts = {name: text for name, text in compiled.asm.items() if isinstance(text, str)}
    return CompiledInfo(
        name=re.sub(r"^_", "", artifact.name),
        assembly=texts,
        binary=binary,
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        scratch_bytes=getattr(metadata, "global_scratch_size", 0) or 0,
    )
