"""Launches an Artifact.

Loads its module, lets Triton compile it once, then calls the compiled kernel directly.

Triton's own launch path re-derives the specialization from all arguments; here it is decided by the
few things that may change between calls of one artifact (alignment of pointers, divisibility of
runtime integers).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilesmith.artifacts import Artifact
from tilesmith.diagnostics import errors
from tilesmith.runtime.arguments import compile_reader
from tilesmith.runtime.device import get_num_sm

ALIGNMENT = 16


def write_module(artifact: Artifact, directory: Path) -> Path:
    """Save the artifact's source under a name derived from its content."""
    digest = sha256(artifact.source.encode()).hexdigest()[:16]
    path = directory / "modules" / f"{artifact.name.lstrip('_')}_{digest}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may write the same file: each writes its own and renames it.
        scratch = path.with_suffix(f".{id(artifact)}.tmp")
        scratch.write_text(artifact.source)
        scratch.replace(path)
    return path


def load_module(path: Path) -> ModuleType:
    """Import a generated module from its file (Triton reads kernels' source from it)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise errors.InternalError(problem=f"cannot load the generated module {path.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _integer_class(value: int) -> tuple[bool, bool, bool]:
    """What Triton specialises an integer argument on."""
    return value % ALIGNMENT == 0, value == 1, -(2**31) <= value < 2**31


class TritonLauncher:
    """A callable of the captured values that launches one artifact."""

    def __init__(
        self,
        artifact: Artifact,
        captured: Sequence[str],
        constants: Sequence[Any],
        device: torch.device,
        directory: Path,
        without_descriptors: Callable[[], Callable[..., None]] | None = None,
    ) -> None:
        self.artifact = artifact
        self._without_descriptors = without_descriptors
        """Makes the launcher of the same kernel with plain pointers, for misaligned tensors."""
        self.path = write_module(artifact, directory)
        self._device = device
        self._function = getattr(load_module(self.path), artifact.name)
        self._read = compile_reader(captured, [p.source for p in artifact.parameters], constants)
        self._tensors = [i for i, p in enumerate(artifact.parameters) if p.is_tensor]
        self._integers = [
            i for i, p in enumerate(artifact.parameters) if not p.is_tensor and p.dtype[0] in "iu"
        ]
        self._grid = self._compile_expressions(artifact.grid)
        self._constexprs = self._compile_expressions([text for _, text in artifact.constexprs])
        self._options = {k: v for k, v in artifact.options.items() if k != "needs_allocator"}
        self._uses_descriptors = bool(artifact.options.get("needs_allocator"))
        self._compiled: dict[Any, Any] = {}

    @property
    def kernels(self) -> tuple[Any, ...]:
        """What Triton has compiled for the calls so far."""
        return tuple(self._compiled.values())

    @cached_property
    def _fallback(self) -> Callable[..., None]:
        """The hardware takes descriptors of 16-byte aligned tensors only."""
        if self._without_descriptors is None:
            raise errors.InternalError(problem="a misaligned tensor in a kernel with descriptors")
        return self._without_descriptors()

    def _compile_expressions(self, texts: Sequence[str]) -> Callable[..., tuple[int, ...]]:
        names = ", ".join(parameter.name for parameter in self.artifact.parameters)
        listed = "".join(f"{text}, " for text in texts)
        scope = {
            "cdiv": lambda a, b: -(-a // b),
            "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
            "num_sms": get_num_sm(self._device),
            "min": min,
            "max": max,
        }
        return eval(f"lambda {names}: ({listed})", scope)

    def __call__(self, *values: Any) -> None:
        """Launch with the captured values."""
        arguments = self._read(*values)
        grid = self._grid(*arguments)
        if 0 in grid:
            return
        grid = (*grid, 1, 1)[:3]
        constexprs = self._constexprs(*arguments)
        alignment = tuple(arguments[i].data_ptr() % ALIGNMENT == 0 for i in self._tensors)
        if self._uses_descriptors and not all(alignment):
            self._fallback(*values)
            return
        key = (
            alignment,
            *(_integer_class(arguments[i]) for i in self._integers),
            constexprs,
        )
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self._first_launch(grid, arguments, constexprs)
            return
        stream = torch.cuda.current_stream(self._device).cuda_stream
        compiled.run(
            *grid, stream, compiled.function, compiled.packed_metadata, None, None, None,
            *arguments, *constexprs,
        )  # fmt: skip

    def _first_launch(
        self, grid: tuple[int, ...], arguments: tuple[Any, ...], constexprs: tuple[int, ...]
    ) -> Any:
        if self._uses_descriptors:
            import triton

            triton.set_allocator(_allocate)
        names = [name for name, _ in self.artifact.constexprs]
        try:
            with torch.cuda.device(self._device):
                return self._function[grid](
                    *arguments, **dict(zip(names, constexprs)), **self._options
                )
        except Exception as error:
            raise errors.TritonError.wrapping(
                error, function=self.artifact.name.lstrip("_"), path=str(self.path)
            ) from error
