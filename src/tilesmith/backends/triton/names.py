"""Identifiers of the emitted module: readable, unique, clear of what Triton gives meaning to."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable

from tilesmith.dtypes import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)  # fmt: skip

_LAUNCH_OPTIONS = {
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "warmup", "stream", "device", "debug"),
    *("launch_cooperative_grid", "launch_pdl", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
}
"""Keyword arguments of a launch: a parameter of that name would get two values."""

RESERVED = frozenset(
    {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "tl", "triton", "torch", "libdevice"}
    | {"launch", "grid"}
    | _LAUNCH_OPTIONS
)

TRITON_DTYPES = {
    BOOL: "tl.int1", U8: "tl.uint8", U16: "tl.uint16", U32: "tl.uint32", U64: "tl.uint64",
    I8: "tl.int8", I16: "tl.int16", I32: "tl.int32", I64: "tl.int64",
    F8E4M3: "tl.float8e4nv", F8E5M2: "tl.float8e5",
    F16: "tl.float16", BF16: "tl.bfloat16", F32: "tl.float32", F64: "tl.float64",
}  # fmt: skip

SIGNATURE_DTYPES = {
    BOOL: "i1", U8: "u8", U16: "u16", U32: "u32", U64: "u64", I8: "i8", I16: "i16", I32: "i32",
    I64: "i64", F8E4M3: "fp8e4nv", F8E5M2: "fp8e5", F16: "fp16", BF16: "bf16", F32: "fp32",
    F64: "fp64",
}  # fmt: skip


def triton_dtype(dtype: DType) -> str:
    """How ``triton.language`` spells an element type."""
    return TRITON_DTYPES[dtype]


def identifier(hint: str) -> str:
    """The hint with everything an identifier may not contain replaced."""
    text = re.sub(r"\W", "_", hint, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() else text


def axis_suffix(block: str) -> str:
    """What tells the variables of tile axes apart: ``tile_m`` gives ``_m``, ``tile`` nothing."""
    suffix = block.removeprefix("tile").removeprefix("block_").strip("_")
    return f"_{suffix}" if suffix else ""


def names_bound(source: str) -> set[str]:
    """Names that Python source binds at its top level or assigns anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    aliases = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
    functions = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    return stored | functions | {a.asname or a.name.partition(".")[0] for a in aliases}


class NamePool:
    """Hands out each identifier once."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)

    def fresh(self, hint: str) -> str:
        """The hint itself, or numbered when it is taken."""
        stem = identifier(hint)
        name, counter = stem, 1
        while name in self._taken:
            name, counter = f"{stem}_{counter}", counter + 1
        self._taken.add(name)
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """Never hand out these."""
        self._taken.update(names)

    def release(self, name: str) -> None:
        """Let a name that is out of scope be used again."""
        if name not in RESERVED:
            self._taken.discard(name)
