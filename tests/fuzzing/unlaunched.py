"""GPU code without a GPU: compiled with the words of a launch, and not launched.

What a device would meet is met here: host code, the text of the launch, descriptors, every
compilation that sizes and alignment ask for. Only results are missing.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

import torch

from tilesmith.backends.triton.build import Pointer, build_kernel
from tilesmith.runtime.launchers import triton as launching
from tilesmith.targets import parse_target

GPU = "cuda:90"
seconds: list[float] = []
"""What each compilation took."""


def _pointer(tensor: torch.Tensor) -> Pointer:
    dtype = str(tensor.dtype).removeprefix("torch.")
    extent = tensor.untyped_storage().nbytes()
    return Pointer(dtype, tensor.data_ptr() % 256, extent)


def _run_nothing(*values: Any) -> None:
    """In the place of a launch."""


class _NoArguments(Exception):
    """Memory that a tensor of this machine cannot stand for."""


def _compile_only(
    launcher: Any,
    key: Hashable,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constexprs: tuple[int, ...],
) -> None:
    """In the place of the first launch."""
    artifact = launcher.artifact
    for item in launcher._descriptors:
        item.construct(*arguments)
    values = {
        parameter.name: _pointer(value) if parameter.is_tensor else value
        for parameter, value in zip(artifact.parameters, arguments)
    }
    begin = time.monotonic()
    compiled = build_kernel(artifact, values, launcher._function)
    seconds.append(time.monotonic() - begin)
    limit = artifact.target.shared_bytes
    if limit and compiled.metadata.shared > limit:
        from triton.runtime.errors import OutOfResources

        raise OutOfResources(compiled.metadata.shared, limit, "shared memory")
    launcher._compiled[key] = compiled
    launcher._scope["__stream"] = lambda device: 0
    launcher._ready[key] = (_run_nothing, None, None)


def launch_nothing() -> None:
    """From now on, in this process."""
    launching.get_num_sm = lambda device: parse_target(GPU).num_sms
    launching.TritonLauncher._first_launch = _compile_only
