"""GPU code without a GPU: compiled with the words of a launch, and not launched.

What a device would meet is met here: host code, the text of the launch, descriptors, every
compilation that sizes and alignment ask for. Only results are missing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from tilesmith.backends.triton.build import Pointer, build_kernel
from tilesmith.exc import TritonError
from tilesmith.runtime.launchers import triton as launching
from tilesmith.targets import parse_target

GPU = "cuda:90"


def _pointer(tensor: torch.Tensor) -> Pointer:
    dtype = str(tensor.dtype).removeprefix("torch.")
    extent = tensor.untyped_storage().nbytes()
    return Pointer(dtype, tensor.data_ptr() % 256, extent)


def _run_nothing(*values: Any) -> None:
    """In the place of a launch."""


def compiled_for(launcher: Any, arguments: tuple[Any, ...]) -> Any:
    """What a launch with these arguments would be, compiled by Triton."""
    artifact = launcher.artifact
    values = {
        parameter.name: _pointer(value) if parameter.is_tensor else value
        for parameter, value in zip(artifact.parameters, arguments)
    }
    try:
        compiled = build_kernel(artifact, values, launcher._function)
        _check_room(compiled, artifact.target.shared_bytes)
    except Exception as error:
        name, path = artifact.name.lstrip("_"), str(launcher.path)
        raise TritonError.wrapping(error, function=name, path=path) from error
    return compiled


def _compile_only(
    self: Any,
    key: Hashable,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constexprs: tuple[int, ...],
) -> None:
    """In the place of the first launch."""
    for item in self._descriptors:
        item.construct(*arguments)
    self._compiled[key] = compiled_for(self, arguments)
    self._scope["__stream"] = lambda device: 0
    self._ready[key] = (_run_nothing, None, None)


def _check_room(compiled: Any, limit: int) -> None:
    """As Triton does when it loads what was compiled."""
    from triton.runtime.errors import OutOfResources

    if limit and compiled.metadata.shared > limit:
        raise OutOfResources(compiled.metadata.shared, limit, "shared memory")


def launch_nothing() -> None:
    """From now on, in this process."""
    launching.get_num_sm = lambda device: parse_target(GPU).num_sms
    launching.TritonLauncher._first_launch = _compile_only
