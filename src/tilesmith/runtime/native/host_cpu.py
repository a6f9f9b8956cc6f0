"""This machine's CPU as a Target: what it can do, its caches, how many cores we may use."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tilesmith.runtime.native.machine_code import llvm
from tilesmith.targets import Target, cpu_target

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c")
_AMX = ("amx-tile", "amx-bf16")
_AVX2 = ("avx2", "fma", "f16c")
_LEVELS = {"sse": 1, "avx2": 2, "avx512": 3}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18
"""The number of the tile registers among the parts of the processor's state."""


@cache
def host_target() -> Target:
    """The CPU this process runs on."""
    features = host_features()
    target = cpu_target(name_architecture(platform.machine(), features))
    l1_bytes, l2_bytes = read_caches(CACHES, (target.l1_bytes, target.l2_bytes))
    return replace(
        target,
        num_sms=count_cores(),
        l1_bytes=l1_bytes,
        l2_bytes=l2_bytes,
        features=",".join(f"{'+' if has else '-'}{name}" for name, has in features.items()),
    )


def host_features() -> dict[str, bool]:
    """What LLVM finds by asking the CPU itself; its name alone would promise too much.

    Of AMX only what is used, and only where the system grants its registers to this process.
    """
    found = llvm().get_host_cpu_features()
    unusable = {name for name in found if name.startswith("amx")}
    if all(found.get(name) for name in _AMX) and request_tile_registers():
        unusable -= {*_AMX}
    return {name: found[name] and name not in unusable for name in sorted(found)}


def name_architecture(machine: str, features: Mapping[str, bool]) -> str:
    """The widest kind of vectors: ``avx512``, ``avx2``, ``sse``, ``neon`` or "" (unknown)."""
    if machine.lower() in ("aarch64", "arm64"):
        return "neon"
    if machine.lower() not in ("x86_64", "amd64"):
        return ""
    for arch, needed in (("avx512", _AVX512), ("avx2", _AVX2)):
        if all(features.get(name) for name in needed):
            return arch
    return "sse"


def can_run(target: Target, host: Target) -> bool:
    """Whether code made for one CPU runs on another."""
    if target.arch in ("", host.arch):
        return True
    return 0 < _LEVELS.get(target.arch, 0) < _LEVELS.get(host.arch, 0)


def read_caches(folder: Path, defaults: tuple[int, int]) -> tuple[int, int]:
    """Bytes of the first- and second-level data caches, as Linux lists them."""
    found = [_read_cache(entry) for entry in folder.glob("index*")]
    sizes = {level: size for kind, level, size in found if kind != "Instruction" and size}
    return sizes.get("1", defaults[0]), sizes.get("2", defaults[1])


def last_level_bytes(folder: Path) -> int:
    """Bytes of the largest cache; 0 where the system does not say."""
    return max((_read_cache(entry)[2] for entry in folder.glob("index*")), default=0)


def _read_cache(folder: Path) -> tuple[str, str, int]:
    """Kind, level and bytes of one cache; 0 bytes where the system does not say."""
    try:
        kind, level, size = ((folder / n).read_text().strip() for n in ("type", "level", "size"))
        unit = _UNITS.get(size[-1:].upper())
        return kind, level, int(size[:-1]) * unit if unit else int(size)
    except (OSError, ValueError):
        return "", "", 0


def count_cores() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def request_tile_registers() -> bool:
    """Whether all threads of this process may use the tile registers of AMX from now on.

    Linux grants them to processes that ask.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    if sys.maxsize < 1 << 32:
        return False
    try:
        arguments = map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))
        return ctypes.CDLL(None).syscall(*arguments) == 0
    except (OSError, AttributeError):
        return False
