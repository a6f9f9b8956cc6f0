"""Launches what Triton has compiled, with tensors of the host."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tools.ptx_machine.bulk import Description
from tools.ptx_machine.machine import Program, run
from tools.ptx_machine.memory import Memory
from tools.ptx_machine.state import Launch, parameter_address
from tools.ptx_machine.text import PtxError, read_kernel

FORMATS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H",
    "u32": "I", "u64": "Q", "fp16": "e", "fp32": "f", "fp64": "d",
}  # fmt: skip
SLACK = 0
"""Bytes behind a tensor's memory that may be read."""


HARMLESS = ("_clear_rest",)
"""Functions in which several groups of warps write the same zeros to one tile: each keeps what it
loads only where none writes."""


def harmless_lines(function: Any) -> frozenset[str]:
    """Lines of these functions in the module of a kernel."""
    lines = Path(function.fn.__code__.co_filename).read_text().splitlines()
    found: set[str] = set()
    for name in HARMLESS:
        starts = [n for n, line in enumerate(lines) if line.startswith(f"def {name}(")]
        for start in starts:
            ends = (n for n in range(start + 1, len(lines)) if lines[n][:1] not in ("", " "))
            found |= {f"1:{n + 1}" for n in range(start, next(ends, len(lines)))}
    return frozenset(found)


class Launcher:
    """One compiled kernel."""

    def __init__(self, compiled: Any) -> None:
        self._kernel = read_kernel(compiled.asm["ptx"])
        self._program = Program(self._kernel, harmless_lines(compiled.src.fn))
        self._signature: Mapping[str, str] = compiled.src.signature
        self._metadata = compiled.metadata

    def launch(
        self,
        grid: Sequence[int],
        values: Sequence[Any],
        *,
        order: str = "together",
        seed: int = 0,
        late: bool = True,
        sees: bool = True,
    ) -> None:
        """Run it; ``values`` has one for each parameter, tensors themselves."""
        contents: list[bytes] = []
        descriptions: dict[int, Description] = {}
        layouts = iter(getattr(self._metadata, "tensordesc_meta", None) or ())
        for value, kind in zip(values, self._signature.values()):
            if kind.startswith("tensordesc"):
                described = describe(value, next(layouts))
                descriptions[parameter_address(len(contents))] = described
            if kind != "constexpr":
                contents += _parameter_bytes(value, kind)
        scratch = torch.zeros(1 << 16, dtype=torch.uint8)
        contents += [struct.pack("q", scratch.data_ptr())] * 2
        names = [name for name, _ in self._kernel.parameters]
        if len(names) > len(contents):
            raise PtxError(f"{len(names)} parameters, {len(contents)} values")
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        cluster = getattr(self._metadata, "num_ctas", 1)
        x, y, z = (*grid, 1, 1)[:3]
        launch = Launch(
            (x * cluster, y, z),
            self._kernel.threads or 32 * self._metadata.num_warps,
            self._metadata.shared,
            dict(zip(names, contents)),
            Memory([_piece(tensor) for tensor in [*tensors, scratch]], "tensors'"),
            descriptions,
            cluster,
        )
        run(self._program, launch, order=order, seed=seed, late=late, sees=sees)


SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
"""Bytes, by Triton's numbers."""


def describe(descriptor: Any, layout: Mapping[str, Any]) -> Description:
    """What a descriptor of the host says, with the layout that the compiler chose."""
    size = layout["elem_size"]
    return Description(
        descriptor.base.data_ptr(),
        tuple(descriptor.shape),
        tuple(stride * size for stride in descriptor.strides),
        tuple(layout["block_size"]),
        size,
        SWIZZLES[layout["swizzle"]],
    )


def _piece(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes() + SLACK


def _parameter_bytes(value: Any, kind: str) -> list[bytes]:
    if kind.startswith("*"):
        return [struct.pack("q", value.data_ptr())]
    if kind.startswith("tensordesc"):
        sizes = [struct.pack("i", size) for size in value.shape]
        return [bytes(128), *sizes, *(struct.pack("q", stride) for stride in value.strides)]
    return [struct.pack(FORMATS[kind], value)]
