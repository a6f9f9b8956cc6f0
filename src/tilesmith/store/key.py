"""Under what conditions a measurement or a winner counts: readable fields and their digests.

``digest`` changes with anything that may change a time. ``conditions`` leaves out the toolchain and
what it makes of the source; ``family`` leaves out the arguments as well.
Reading what is stored loads neither a compiler nor torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cached_property
from hashlib import sha256
from math import log2
from typing import Any

MAX_DIGITS = 20
"""Of a size; a longer number is damage."""
UNLIKE = 8.0
"""The distance of shapes that have an axis the other lacks; factors of two count 1."""


def digest_text(*parts: str, length: int = 16) -> str:
    """Hexadecimal digits that stand for some texts."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:length]


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
        """Stands for all fields: two keys with one digest have the same conditions."""
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
        """The key whose ``to_dict`` this is."""
        values: dict[str, Any] = dict(fields)
        values["toolchain"] = tuple(values["toolchain"].items())
        return StoreKey(**values)


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


def shape_distance(first: str, second: str) -> float:
    """How unlike two shape classes are: powers of two between their axes, other types apart."""
    (axes, types), (other_axes, other_types) = map(_parse_shapes, (first, second))
    shared = axes.keys() & other_axes.keys()
    apart = sum(abs(log2(axes[name] or 1) - log2(other_axes[name] or 1)) for name in shared)
    return apart + UNLIKE * len(axes.keys() ^ other_axes.keys()) + UNLIKE * (types != other_types)


def _parse_shapes(text: str) -> tuple[dict[str, int], str]:
    axes, _, types = text.partition(";")
    pairs = (item.rpartition("=") for item in axes.split())
    sizes = {name: size for name, _, size in pairs if size.isdecimal() and len(size) < MAX_DIGITS}
    return {name: int(size) for name, size in sizes.items()}, types.strip()


def safe_name(kernel: str) -> str:
    """A kernel's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", kernel).strip(".")[:80] or "kernel"


def now_text() -> str:
    """The time as entries have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
