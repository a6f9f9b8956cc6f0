"""Which of two equally fast Configs is simpler: the one to keep, to read and to debug."""

from __future__ import annotations

from math import prod
from typing import Any, cast

from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec

Complexity = tuple[int, int, int, int, int, int, int]


def complexity(config: Config, spec: ConfigSpec) -> Complexity:
    """Smaller is simpler; compared in this order.

    Not what the kernel would run with anyway, keys away from their defaults, accesses that are not
    by pointers, program ids that are not flat, stages, warps, and the number of elements in a tile.
    """
    full = spec.normalize(config)
    return (
        int(full != spec.normalize(spec.default_config())),
        len(full.minimize(spec)),
        _num_special(full.get("indexing", "pointer")) + _num_special(full.get("atomic_indexing")),
        int(full.get("pid_type", "flat") != "flat"),
        int(full.get("num_stages", 0)),
        int(full.get("num_warps", 0)),
        prod(full.get("block_sizes", [])),
    )


def _num_special(indexing: Any) -> int:
    kinds = cast("list[str]", indexing if isinstance(indexing, list) else [indexing or "pointer"])
    return sum(kind != "pointer" for kind in kinds)
