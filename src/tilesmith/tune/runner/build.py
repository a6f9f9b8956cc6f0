"""Compiles a candidate, for any target and without a device, into the cache the runner looks in.

This runs in children of the build server: whatever goes wrong becomes a reply.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilesmith.artifacts import Artifact, LaunchParameter, load_module, write_module
from tilesmith.backends.triton.build import (
    LaunchArgument,
    Pointer,
    build_kernel,
    build_launcher,
    publish_kernel,
    use_cache_dir,
)
from tilesmith.disk.trust import code_folder
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.lab.failures import classify, shared_memory_reason
from tilesmith.lab.workload.binding import Argument, Binding, TensorRef
from tilesmith.runtime.native.machine_code import compile_artifact
from tilesmith.settings import Settings
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Resources, Verdict
from tilesmith.tune.jobs import BuildReply, Program


def build_program(program: Program, folder: Path | None = None) -> BuildReply:
    """Compile one candidate; what it takes of the device where the compiler knows."""
    start, build = time.perf_counter(), BUILDERS.get(program.artifact.backend, _build_directly)
    try:
        resources = build(program, folder or cache_dir())
    except Exception as error:
        verdict, reason = classify(error, Verdict.BUILD_ERROR)
        return BuildReply(verdict, reason, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    needed, limit = resources.shared_bytes or 0, program.artifact.target.shared_bytes
    if limit and needed > limit:
        reason = shared_memory_reason(needed, limit)
        return BuildReply(Verdict.OUT_OF_RESOURCES, reason, seconds, resources)
    return BuildReply(Verdict.OK, "", seconds, resources)


def publish_program(program: Program, folder: Path) -> None:
    """Let ordinary launches find the code of a candidate that was built into a cache folder."""
    artifact = program.artifact
    if artifact.backend == "triton":  # launches of others look where candidates are built
        arguments = launch_arguments(artifact, program.binding)
        publish_kernel(artifact, arguments, triton_dir(folder), _load_function(artifact, folder))


def launch_arguments(artifact: Artifact, binding: Binding) -> Mapping[str, LaunchArgument]:
    """What Triton specialises code on, of the arguments a candidate will be launched with.

    Torch aligns storages to more than Triton asks for, so where a tensor begins in its storage
    decides.
    """
    bound = dict(binding.arguments)
    return {
        parameter.name: _launch_argument(parameter, bound.get(parameter.name))
        for parameter in artifact.parameters
    }


def _launch_argument(parameter: LaunchParameter, value: Argument | None) -> LaunchArgument:
    if parameter.is_made_at_launch:
        dtype, count = parameter.made_form
        return Pointer(dtype, 0, count * DTYPES_BY_NAME[parameter.dtype].itemsize)
    if value is None:
        raise ValueError(f"no value for the parameter {parameter.name!r}")
    if not isinstance(value, TensorRef):
        return value
    itemsize = DTYPES_BY_NAME[parameter.dtype].itemsize
    last = sum((size - 1) * stride for size, stride in zip(value.size, value.stride) if size)
    return Pointer(value.dtype, value.offset * itemsize, (last + 1) * itemsize)


def _build_directly(program: Program, folder: Path) -> Resources:
    """The launcher of the backend itself shows whether it can be built."""
    assert program.launch is not None
    program.launch(program.artifact)
    return UNKNOWN_RESOURCES


def _build_natively(program: Program, folder: Path) -> Resources:
    compile_artifact(program.artifact, folder)
    return UNKNOWN_RESOURCES


def _build_triton(program: Program, folder: Path) -> Resources:
    artifact = program.artifact
    use_cache_dir(triton_dir(folder))
    arguments = launch_arguments(artifact, program.binding)
    compiled = build_kernel(artifact, arguments, _load_function(artifact, folder))
    build_launcher(artifact, compiled)
    return Resources(shared_bytes=compiled.metadata.shared)


BUILDERS = {"triton": _build_triton, "cpu": _build_natively}
"""Of backends without a launcher of their own."""


def _load_function(artifact: Artifact, folder: Path) -> Any:
    return getattr(load_module(write_module(artifact, folder)), artifact.name)


def cache_dir() -> Path:
    """The cache folder of this process."""
    return Path(Settings().cache_dir)


def triton_dir(folder: Path) -> Path:
    """Where Triton's cache of candidates lies in a cache folder."""
    return code_folder(folder) / "tune" / "triton"
