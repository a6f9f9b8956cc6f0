"""Runs IR as native code next to the interpreter: both must leave the same in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.lowering import compile_config, run_standard
from tests.specs import config_spec
from tilesmith.ir.function import Function
from tilesmith.numerics.compare import check_against
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.launchers.cpu import native_launcher
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.settings import Settings


def copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that lie in memory as the originals do; what shared memory still shares it."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        kept = storages.setdefault(storage.data_ptr(), storage.clone())
        form = (value.storage_offset(), value.shape, value.stride())
        return torch.empty(0, dtype=value.dtype).set_(kept, *form)

    return {name: copy(value) for name, value in arguments.items()}


def run_native(function: Function, arguments: Mapping[str, Any], blocks: Mapping[str, int]) -> None:
    """Compile with these block sizes, and run."""
    sized = tuple(replace(block, fixed=blocks[block.name], slot=None) for block in function.blocks)
    spec = config_spec(run_standard(replace(function, blocks=sized)), host_target(), {})
    artifact = compile_config(spec, spec.default_config())
    options = LaunchOptions(Path(Settings().cache_dir))
    native_launcher(artifact, list(arguments), (), options)(*arguments.values())


def assert_same(native: torch.Tensor, reference: torch.Tensor, reduction_length: int) -> None:
    """Equal; floats within the budget of a sum of that length, both having been rounded."""
    if not native.dtype.is_floating_point:
        assert torch.equal(native, reference)
        return
    exact = reference.to(torch.float64)
    if native.element_size() == 1:
        native = native.to(torch.float32)
    check_against(native, exact, reduction_length=reduction_length, intermediate=[reference.dtype])
