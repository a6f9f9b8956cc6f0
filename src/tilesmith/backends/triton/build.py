"""Artifacts to device binaries, without a device: Triton compiles for any target it knows.

The only file of the backend that imports Triton.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesmith.artifacts import (
    EXPRESSION_FUNCTIONS,
    Artifact,
    TensorDescription,
    load_module,
    write_module,
)
from tilesmith.backends.triton.emission.spelling import SIGNATURE_DTYPES
from tilesmith.dtypes import DTYPES_BY_NAME
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
    descriptors: Sequence[Mapping[str, Any]]
    """How the hardware sees each tensor that the host describes."""


@dataclass(frozen=True)
class Pointer:
    """Stands for a tensor that a kernel is compiled for: has what Triton asks a tensor for."""

    dtype: str
    """As torch spells it without the module: ``bfloat16``."""
    offset: int
    """Bytes from the start of its memory, which is aligned."""
    extent: int
    """Bytes of its memory."""

    def data_ptr(self) -> int:
        """An address with the alignment of the tensor's."""
        return self.offset

    def ptr_range(self) -> int:
        """How far offsets from the address reach."""
        return self.extent


LaunchArgument = Pointer | int | float | bool
Words = tuple[Any, Any, Any, dict[str, Any]]
"""How Triton is told what to compile: signature, compile-time arguments, attributes, options."""


def load_function(artifact: Artifact) -> Any:
    """The device function of an emitted module, which is on the disk only meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tilesmith_") as folder:
        module = load_module(write_module(artifact, Path(folder)))
    return getattr(module, artifact.name)


def evaluate_constexprs(
    artifact: Artifact, target: Target, scalars: Mapping[str, int]
) -> dict[str, int]:
    """The compile-time parameters for given values of the runtime ones."""
    names = {**scalars, **EXPRESSION_FUNCTIONS, "num_sms": target.num_sms}
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
    for description in artifact.descriptions:
        element = SIGNATURE_DTYPES[DTYPES_BY_NAME[description.dtype]]
        layout = f",{_layout(description)!r}" if description.layout else ""
        types[description.name] = f"tensordesc<{element}{[*description.block]}{layout}>"
    return {**types, **{name: "constexpr" for name, _ in artifact.constexprs}}


def _layout(description: TensorDescription) -> Any:
    """How blocks lie in shared memory, as Gluon describes it."""
    from triton.experimental.gluon import language as gl

    return eval(description.layout, {"__builtins__": {}, "gl": gl})


def compile_artifact(
    artifact: Artifact, target: Target | None = None, scalars: Mapping[str, int] | None = None
) -> CompiledInfo:
    """Compile for ``target`` (the artifact's own by default).

    ``scalars`` gives values to runtime parameters that compile-time ones are computed from. Tensors
    are taken to start at a multiple of 16 bytes, as the launcher guarantees.
    """
    target = target or artifact.target
    words = _plain_words(artifact, target, scalars or {})
    compiled = _compile(load_function(artifact), target, words)
    return CompiledInfo(
        name=re.sub(r"^_", "", artifact.name),
        assembly={name: text for name, text in compiled.asm.items() if isinstance(text, str)},
        binary=compiled.asm.get("cubin") or compiled.asm.get("hsaco") or b"",
        shared_bytes=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        scratch_bytes=getattr(compiled.metadata, "global_scratch_size", 0) or 0,
        descriptors=getattr(compiled.metadata, "tensordesc_meta", None) or (),
    )


def _plain_words(artifact: Artifact, target: Target, scalars: Mapping[str, Any]) -> Words:
    """For tensors that start at a multiple of 16 bytes, and any numbers."""
    types = signature(artifact)
    positions = {name: position for position, name in enumerate(types)}
    values = evaluate_constexprs(artifact, target, scalars)
    aligned = {
        (positions[parameter.name],): [["tt.divisibility", POINTER_ALIGNMENT]]
        for parameter in artifact.parameters
        if parameter.is_tensor
    }
    constexprs = {(positions[name],): value for name, value in values.items()}
    return types, constexprs, aligned, dict(artifact.options)


def build_kernel(
    artifact: Artifact, arguments: Mapping[str, LaunchArgument], function: Any = None
) -> Any:
    """Triton's CompiledKernel of an artifact for these launch arguments, loaded nowhere.

    The compiler is asked in the very words of Triton's own launch path: what one has put into
    Triton's cache on disk, the other finds there. ``function`` is the device function if its module
    is already loaded; code and line numbers then refer to that file.
    """
    function = function or load_function(artifact)
    try:
        words = specialize(artifact, arguments, function)
    except (ImportError, AttributeError, KeyError, TypeError):
        # Another version may have other functions inside; then its launch path compiles once more.
        pointers = [x for x in arguments.values() if isinstance(x, Pointer)]
        if any(x.offset % POINTER_ALIGNMENT for x in pointers):
            raise
        words = _plain_words(artifact, artifact.target, _numbers(arguments))
    return _compile(function, artifact.target, words)


def _numbers(arguments: Mapping[str, LaunchArgument]) -> dict[str, Any]:
    return {k: v for k, v in arguments.items() if not isinstance(v, Pointer)}


def specialize(artifact: Artifact, arguments: Mapping[str, LaunchArgument], function: Any) -> Words:
    """Signature, compile-time arguments, attributes and options, as Triton derives them."""
    from triton import knobs
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    backend = make_backend(_gpu(artifact.target))
    bind = create_function_from_signature(function.signature, function.params, backend)
    keywords: dict[str, Any] = {
        **evaluate_constexprs(artifact, artifact.target, _numbers(arguments)),
        **artifact.options,
        "debug": function.debug or knobs.runtime.debug,
    }
    if hasattr(knobs.compilation, "instrumentation_mode"):
        keywords["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    positional = [arguments[parameter.name] for parameter in artifact.parameters]
    positional += [_described(item, arguments) for item in artifact.descriptions]
    bound, specialization, left = bind(*positional, **keywords)
    options, types, constexprs, attributes = function._pack_args(
        backend, keywords, bound, specialization, left
    )
    return types, constexprs, attributes, options.__dict__


def _described(description: TensorDescription, arguments: Mapping[str, LaunchArgument]) -> Any:
    """What stands for a descriptor; Triton asks it for the element type and the block."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
    from triton.tools.tensor_descriptor import TensorDescriptor

    kind: Any = GluonDescriptor if description.layout else TensorDescriptor
    # The constructor wants a real tensor.
    made = kind.__new__(kind)
    if description.layout:
        made.layout = _layout(description)
    made.base = arguments[description.tensor]
    made.block_shape = [*description.block]
    made.shape = made.strides = [*description.strides]
    made.padding = "zero"
    return made


def use_cache_dir(folder: Path) -> None:
    """Let Triton keep what it compiles in this folder from now on, in this process."""
    from triton import knobs

    knobs.cache.dir = str(folder)


def find_compiler_key() -> None:
    """Have Triton hash its compiler now: it keeps the result, and every build asks for it."""
    from triton.compiler import compiler
    from triton.runtime import cache

    find = getattr(cache, "triton_key", None) or getattr(compiler, "triton_key", None)
    if find is not None:
        find()


def build_driver() -> None:
    """Have Triton compile the host code that it needs for its first launch, or fetch it."""
    from triton.backends.nvidia import driver

    driver.CudaUtils()


def build_launcher(artifact: Artifact, compiled: Any) -> None:
    """Have Triton compile the host code that launches a kernel, if its version makes such code.

    Only NVIDIA devices have such code. It is kept in Triton's cache; the first launch would do it
    otherwise. An error is that launch's.
    """
    if artifact.target.kind != "cuda":
        return
    from triton.backends.nvidia import driver

    if hasattr(driver, "make_launcher"):
        with suppress(Exception):
            driver.CudaLauncher(compiled.src, compiled.metadata)


def publish_kernel(
    artifact: Artifact, arguments: Mapping[str, LaunchArgument], folder: Path, function: Any = None
) -> None:
    """Copy a kernel that was built into ``folder`` to the cache where launches look for it."""
    from triton import knobs
    from triton.runtime.cache import get_cache_manager

    with knobs.cache.scope():
        use_cache_dir(folder)
        compiled = build_kernel(artifact, arguments, function)
    manager = get_cache_manager(compiled.hash)
    files = compiled.metadata_group
    copies = {name: manager.put(Path(path).read_bytes(), name) for name, path in files.items()}
    manager.put_group(next(name for name in copies if name.endswith(".json")), copies)


def _gpu(target: Target) -> Any:
    from triton.backends.compiler import GPUTarget

    arch = target.capability if target.kind == "cuda" else target.arch
    return GPUTarget(target.kind, arch, target.warp_size)


def _compile(function: Any, target: Target, words: Words) -> Any:
    import triton
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    *described, options = words
    kind: Any = GluonASTSource if function.is_gluon() else ASTSource
    source = kind(function, *described)
    with warnings.catch_warnings():
        # We emit block pointers only for versions that still have them.
        warnings.filterwarnings("ignore", message="tl.make_block_ptr is deprecated")
        return triton.compile(source, target=_gpu(target), options=options)
