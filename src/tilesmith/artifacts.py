"""What the compiler hands to the runtime: emitted source and everything needed to launch it."""

from __future__ import annotations

import ast
import importlib.util
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

from tilesmith.diagnostics.logs import topic_log
from tilesmith.disk.entries import write_once
from tilesmith.disk.trust import code_folder
from tilesmith.targets import Target

CACHE = topic_log("cache")

EXPRESSION_FUNCTIONS: dict[str, Callable[..., int]] = {
    "cdiv": lambda a, b: -(-a // b),
    "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
    "max": max,
    "min": min,
}
"""What launch expressions of an artifact may call."""
MAX_LAUNCH_SIDE = 65535
"""The most programs along the second and third launch axis."""


def _listed(sizes: int | Sequence[int]) -> Sequence[int]:
    return (sizes,) if isinstance(sizes, int) else sizes


@dataclass(frozen=True)
class LaunchParameter:
    """One runtime argument of the device function, in order.

    ``source`` is a Python expression over the names captured from host code (``x``,
    ``x.size(0)``, ``alpha``).
    """

    name: str
    source: str
    is_tensor: bool
    dtype: str

    @property
    def is_made_at_launch(self) -> bool:
        """Whether each launch makes it anew: a counter at barriers, scratch between phases."""
        return self.is_zeroed or self.source.startswith("torch.empty(")

    @property
    def made_form(self) -> tuple[str, int]:
        """Of one that is made at launch: its element type as torch spells it, and how many."""
        call = ast.parse(self.source, mode="eval").body
        assert isinstance(call, ast.Call)
        (dtype,) = [word.value for word in call.keywords if word.arg == "dtype"]
        sizes = ast.literal_eval(call.args[0])
        return ast.unparse(dtype).removeprefix("torch."), prod(_listed(sizes))

    @property
    def is_zeroed(self) -> bool:
        """Whether it is all zero at each launch."""
        return self.source.startswith("torch.zeros(")


@dataclass(frozen=True)
class TensorDescription:
    """An argument that describes a tensor to the hardware's copy engine, made at each launch."""

    name: str
    tensor: str
    """The parameter it describes."""
    dtype: str
    shape: tuple[str, ...]
    """Python expressions over parameter names; the contiguous dimension is the last."""
    strides: tuple[int, ...]
    block: tuple[int, ...]
    layout: str = ""
    """How a block lies in shared memory, where the kernel says so itself (in Gluon)."""

    @property
    def call(self) -> str:
        """How the host makes it."""
        shape = ", ".join(self.shape)
        given = [self.tensor, f"[{shape}]", str([*self.strides]), str([*self.block]), self.layout]
        return f"TensorDescriptor({', '.join(filter(None, given))})"


class LazyText:
    """Text that is made when somebody reads it; pickled, it is the text itself."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    @cached_property
    def text(self) -> str:
        """The text, made at the first call."""
        return self._make()

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyText, (partial(str, self.text),)


@dataclass(frozen=True)
class Artifact:
    """Emitted code plus its launch contract.

    ``grid`` and ``constexprs`` are Python expressions over parameter names; they may also use
    ``EXPRESSION_FUNCTIONS`` and ``num_sms``.
    """

    name: str
    """Name of the device function in ``source``."""
    source: str
    """A complete module, needing torch and triton only; empty for a CPU."""
    parameters: tuple[LaunchParameter, ...]
    constexprs: tuple[tuple[str, str], ...]
    grid: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Launch options: num_warps, num_stages and target-specific ones.

    For a CPU ``written`` lists the tensor parameters that the kernel writes.
    """
    target: Target = field(default_factory=lambda: Target("cpu", ""))
    llvm: str = ""
    """LLVM IR text, for a CPU: ``void name(ptr arguments, i64 num_threads)``, where ``arguments``
    points to 8 bytes per parameter (an address, an i64 or a double)."""
    loops: LazyText | None = field(default=None, compare=False, repr=False)
    """The loop nests that ``llvm`` was made from, for readers; for a CPU."""
    descriptions: tuple[TensorDescription, ...] = ()
    """Arguments between the parameters and the compile-time ones."""
    backend: str = ""
    """Which backend made it: that decides what builds it and what launches it."""
    least_sms: int = 0
    """Multiprocessors without which its programs could wait for each other for ever."""
    bytes_of_threads: str = ""
    """An expression over ``constexprs``: the largest tile with such a size, for each thread."""
    before: tuple[Artifact, ...] = ()
    """What is launched first, each time; its parameters are among these, by name."""

    @property
    def kernel_name(self) -> str:
        """The name of the user's function, for messages."""
        return self.name.lstrip("_").removeprefix("tilesmith_")

    @property
    def readable(self) -> str:
        """The code as shown to users: the module, or for a CPU its loop nests."""
        return self.source if self.loops is None else self.loops.text


def module_path(artifact: Artifact, directory: Path) -> Path:
    """Where ``write_module`` saves an artifact."""
    digest = sha256(artifact.source.encode()).hexdigest()[:16]
    return code_folder(directory) / "modules" / f"{artifact.name.lstrip('_')}_{digest}.py"


def write_module(artifact: Artifact, directory: Path) -> Path:
    """Save the artifact's source under a name derived from its content."""
    path = module_path(artifact, directory)
    is_there = write_once(path, artifact.source)
    CACHE.info("module %s %s", path, "is there" if is_there else "is written")
    return path


def load_module(path: Path) -> ModuleType:
    """Import a generated module from its file (Triton reads kernels' source from it)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # It has read them by now; lines of modules that come and go would stay for good.
    linecache.cache.pop(str(path), None)
    return module
