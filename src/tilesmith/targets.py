"""What code is made for: vendor, architecture and limits. Parsed once, passed everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CUDA_SHARED_BYTES = {
    80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376,
}  # fmt: skip
_CUDA_SMS = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 188}
_HIP_SHARED_BYTES = {"gfx942": 65_536, "gfx950": 163_840}
_HIP_CUS = {"gfx942": 304, "gfx950": 256}
CPU_ARCHITECTURES = ("avx512", "avx2", "sse", "neon")
CUDA_CAPABILITIES = (75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
HIP_ARCHITECTURES = (
    "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1150",
    "gfx1151", "gfx1200", "gfx1201",
)  # fmt: skip
"""GPUs that code can be asked for by name. One that is here, and newer than this list, is read."""
_TYPICAL_CORES = 8


@dataclass(frozen=True)
class Target:
    """One kind of device. A live device may refine ``num_sms`` and ``shared_bytes``."""

    kind: str
    """``cuda``, ``hip`` or ``cpu``."""
    arch: str
    """``sm_90``, ``gfx942``, ``avx2``; empty for a CPU nothing is known of."""
    warp_size: int = 32
    num_sms: int = 1
    """Multiprocessors, compute units or cores."""
    shared_bytes: int = 0
    vector_lanes: int = 8
    """fp32 lanes that CPU code works on at a time."""
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    features: str = ""
    """LLVM's list of what a CPU has; empty: what the name of the architecture implies."""
    model: str = field(default="", compare=False)
    """What a live device calls itself; code does not depend on it, estimates do."""

    @property
    def is_gpu(self) -> bool:
        """Whether kernels for it go through Triton."""
        return self.kind in ("cuda", "hip")

    @property
    def capability(self) -> int:
        """NVIDIA compute capability as two or three digits (90 for sm_90), 0 elsewhere."""
        return int(self.arch[3:]) if self.kind == "cuda" else 0

    @property
    def has_tensor_descriptors(self) -> bool:
        """Whether loads through tensor descriptors use a hardware engine (TMA)."""
        return self.kind == "cuda" and self.capability >= 90

    @property
    def has_matrix_tiles(self) -> bool:
        """Whether bf16 matrices can be multiplied in tile registers (AMX)."""
        return "+amx-bf16" in self.features.split(",")

    @property
    def has_byte_products(self) -> bool:
        """Whether a lane adds up four products of bytes at once (VNNI), in vectors of 16 lanes."""
        return self.vector_lanes == 16 and "+avx512vnni" in self.features.split(",")

    @property
    def has_pair_products(self) -> bool:
        """Whether a lane adds up two products of bf16 at once, in vectors of 16 lanes."""
        return self.vector_lanes == 16 and "+avx512bf16" in self.features.split(",")

    @property
    def is_cdna(self) -> bool:
        """Whether this is an AMD data-centre GPU (gfx908 up to below gfx1000)."""
        match = re.fullmatch(r"gfx9[0-9a-f]{2}", self.arch)
        return self.kind == "hip" and match is not None

    @property
    def label(self) -> str:
        """Its architecture, for messages; the kind where that is all that is known."""
        return self.arch or self.kind

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch.removeprefix('sm_')}" if self.arch else self.kind


CPU = Target("cpu", "")


def cpu_target(arch: str) -> Target:
    """A CPU with typical caches and cores; a live one is read from the machine."""
    lanes = 16 if arch == "avx512" else 8
    return Target("cpu", arch, num_sms=_TYPICAL_CORES, vector_lanes=lanes)


def cuda_target(capability: int) -> Target:
    """The NVIDIA target of a capability such as 90; unknown ones take the next lower's limits."""
    known = max((c for c in _CUDA_SHARED_BYTES if c <= capability), default=80)
    return Target("cuda", f"sm_{capability}", 32, _CUDA_SMS[known], _CUDA_SHARED_BYTES[known])


def hip_target(arch: str) -> Target:
    """The AMD target of an architecture such as gfx942."""
    warp_size = 64 if arch.startswith("gfx9") else 32
    return Target(
        "hip", arch, warp_size, _HIP_CUS.get(arch, 64), _HIP_SHARED_BYTES.get(arch, 65_536)
    )


def parse_target(text: str) -> Target:
    """Read ``cpu``, ``cpu:avx2``, ``cuda:90`` or ``hip:gfx942``.

    Example:
        >>> parse_target("cuda:90").arch
        'sm_90'
    """
    kind, _, arch = text.partition(":")
    if kind == "cpu" and not arch:
        return CPU
    if kind == "cpu" and arch in CPU_ARCHITECTURES:
        return cpu_target(arch)
    if kind == "cuda" and arch.removeprefix("sm_") in map(str, CUDA_CAPABILITIES):
        return cuda_target(int(arch.removeprefix("sm_")))
    if kind == "hip" and arch in HIP_ARCHITECTURES:
        return hip_target(arch)
    known = {"cuda": CUDA_CAPABILITIES, "hip": HIP_ARCHITECTURES, "cpu": CPU_ARCHITECTURES}
    listed = [
        f"{name}:{arch}"
        for name in (known if kind not in known else [kind])
        for arch in known[name]
    ]
    meant = text.replace(".", "")
    hint = f"did you mean {meant}? " if meant in listed else ""
    raise ValueError(f"unknown target {text!r}: {hint}expected {', '.join(['cpu', *listed])}")
