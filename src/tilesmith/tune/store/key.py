"""Under what conditions a measurement or a winner counts: readable fields and their digests.

``digest`` changes with anything that may change a time. ``conditions`` leaves out the toolchain and
what it makes of the source; ``family`` leaves out the arguments as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from math import log2
from typing import Any, cast

from tilesmith.ir.printer import print_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.runtime.device import describe_device
from tilesmith.settings import Settings
from tilesmith.tune.store.toolchain import toolchain

CODE_SETTINGS = (
    "backend",
    "num_threads",
    "static_shapes",
    "index_dtype",
    "dot_precision",
    "fast_math",
    "persistent_reserved_sms",
    "allow_warp_specialize",
    "triton_do_not_specialize",
    "debug_dtype_asserts",
)
"""Settings that change generated code or how it is launched."""
UNLIKE = 8.0
"""The distance of shapes that have an axis the other lacks; factors of two count 1."""


def digest_text(*parts: str, length: int = 16) -> str:
    """Hexadecimal digits that stand for some texts."""
    return sha256("\0".join(parts).encode()).hexdigest()[:length]


@dataclass(frozen=True)
class StoreKey:
    """The conditions of a measurement. Every field is text to read and compare."""

    kernel: str
    source: str
    """Digest of the kernel's source, without comments, decorators and its place in the file."""
    program: str
    """Digest of the IR: all that is compiled, helpers, shapes and constants included."""
    facts: str
    shapes: str
    """Extents as powers of two: ``tile_m=4096 tile_k=512; x:bf16``."""
    arguments: str
    settings: str
    target: str
    device: str
    regime: str
    toolchain: tuple[tuple[str, str], ...]

    @cached_property
    def digest(self) -> str:
        """Of everything."""
        versions = [f"{name} {found}" for name, found in sorted(self.toolchain)]
        return digest_text(self.conditions, self.program, self.facts, *versions, length=32)

    @cached_property
    def conditions(self) -> str:
        """Of everything but the toolchain and what it makes of the source."""
        return digest_text(self.family, self.arguments, self.device, self.regime)

    @cached_property
    def family(self) -> str:
        """Of the source, the settings and the kind of device: whose Configs may suit here, too."""
        return digest_text(self.kernel, self.source, self.settings, self.target)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {**asdict(self), "toolchain": dict(self.toolchain)}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> StoreKey:
        """What ``to_dict`` gave."""
        values: dict[str, Any] = dict(fields)
        values["toolchain"] = tuple(values["toolchain"].items())
        return StoreKey(**values)


def make_key(bound: BoundKernel, args: Sequence[Any], regime: str = "cold") -> StoreKey:
    """The key of a bound kernel with arguments, as of now."""
    definition = bound.definition
    facts = bound.facts
    return StoreKey(
        kernel=definition.name,
        source=digest_text(_source_text(definition.split.source.tree)),
        program=digest_text(_program_text(bound)),
        facts=facts.fingerprint(),
        shapes=facts.shape_class(),
        arguments=_describe_all(definition.parameters, args),
        settings=_describe_settings(definition.settings),
        target=str(bound.target),
        device=describe_device(bound.target),
        regime=regime,
        toolchain=toolchain(),
    )


def join_keys(keys: Sequence[StoreKey], goal: str) -> StoreKey:
    """The key of one Config for several workloads, towards some goal; of one, its own."""
    first = keys[0]
    if len(keys) == 1 and not goal:
        return first
    fields = first.to_dict()
    for name in ("program", "facts"):
        fields[name] = digest_text(*(getattr(key, name) for key in keys))
    fields["arguments"] = " | ".join([*(key.arguments for key in keys), goal])
    return StoreKey.from_dict(fields)


def _source_text(tree: ast.FunctionDef) -> str:
    plain = copy(tree)
    plain.decorator_list = []
    return ast.unparse(plain)


def _program_text(bound: BoundKernel) -> str:
    """The IR without the comments that say where its operations stand in the user's file."""
    return re.sub(r'  // [^"\n]*$', "", print_function(bound.function), flags=re.MULTILINE)


def _describe_settings(settings: Settings) -> str:
    return " ".join(f"{name}={getattr(settings, name)}" for name in CODE_SETTINGS)


def _describe_all(names: Sequence[str], arguments: Sequence[Any]) -> str:
    return ", ".join(f"{name}: {_describe(value)}" for name, value in zip(names, arguments))


def _describe(value: Any) -> str:
    """Types and shapes; numbers by their type, since they may differ from call to call."""
    if hasattr(value, "dtype") and hasattr(value, "stride"):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{dtype}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_describe(item) for item in cast('Sequence[Any]', value))}]"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)


def shape_distance(first: str, second: str) -> float:
    """How unlike two shape classes are: powers of two between their axes, other types apart."""
    (axes, types), (other_axes, other_types) = map(_parse_shapes, (first, second))
    shared = axes.keys() & other_axes.keys()
    apart = sum(abs(log2(axes[name] or 1) - log2(other_axes[name] or 1)) for name in shared)
    return apart + UNLIKE * len(axes.keys() ^ other_axes.keys()) + UNLIKE * (types != other_types)


def _parse_shapes(text: str) -> tuple[dict[str, int], str]:
    axes, _, types = text.partition(";")
    pairs = (item.rpartition("=") for item in axes.split())
    return {name: int(size) for name, _, size in pairs if size.isdigit()}, types.strip()
