"""What devices can do: limits and rates by target, for estimates made before anything is compiled.

Limits and peak rates are the vendors' figures; where a device was measured, rates are what the best
kernels reach on it. Rates of others scale the vendor's figure by the same share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.targets import Target

KIB, MIB = 1 << 10, 1 << 20
_CLASSES = ("f64", "f32", "tf32", "f16", "f8", "i8")
_UNITS = {"bf16": "f16", "f8e4m3": "f8", "f8e5m2": "f8", "u8": "i8"}
"""Units that serve more than one class."""


@dataclass(frozen=True)
class Device:
    """One kind of device.

    Rates are of the whole device: bytes or operations for each nanosecond (GB/s, Gop/s).
    """

    name: str
    num_sms: int
    """Multiprocessors, compute units or cores."""
    warp_size: int
    clock_ghz: float
    """Under load."""
    shared_bytes: int
    """That one program may have."""
    shared_per_sm: int
    registers_per_sm: int
    """32-bit words."""
    max_warps: int
    """On one multiprocessor."""
    max_programs: int
    dram_rate: float
    """As measured by a copy, reads and writes together."""
    l2_rate: float
    """From the last cache that all share to the multiprocessors."""
    l2_bytes: int
    matrix_rates: Mapping[str, float]
    """Multiplications and additions of matrix products, by rate class."""
    vector_rate: float
    """fp32 lanes times clock: elementwise operations."""
    special_rate: float
    """exp2 and the like."""
    launch_ns: float
    """A kernel that does nothing."""
    dram_latency_ns: float = 650.0
    l2_latency_ns: float = 300.0

    def matrix_rate(self, rate_class: str) -> float:
        """The rate of products of a class: an element type, or a precision of f32 products."""
        if rate_class in ("tf32x3", "bf16x3", "bf16x6"):
            wide = self.matrix_rates["tf32" if rate_class == "tf32x3" else "f16"]
            return wide / int(rate_class[-1])
        return self.matrix_rates.get(_UNITS.get(rate_class, rate_class), self.matrix_rates["f32"])

    def with_sms(self, num_sms: int) -> Device:
        """The same with another number of multiprocessors; memory stays as it is."""
        if num_sms == self.num_sms:
            return self
        share = num_sms / self.num_sms
        rates = {name: rate * share for name, rate in self.matrix_rates.items()}
        return replace(
            self,
            num_sms=num_sms,
            l2_rate=self.l2_rate * share,
            matrix_rates=rates,
            vector_rate=self.vector_rate * share,
            special_rate=self.special_rate * share,
        )


def _rates(*tera_ops: float) -> dict[str, float]:
    """Operations for each nanosecond of fp64, fp32 (FMA units), tf32, 16-bit, fp8 and int8."""
    return {name: rate * 1e3 for name, rate in zip(_CLASSES, tera_ops)}


# NVIDIA: CUDA programming guide, table of technical specifications per compute capability;
# architecture white papers for rates (dense). 16 special functions per clock and multiprocessor.
# Sustained shares: 0.8 of the matrix peak (the best published kernels), 0.88 of the memory's.
_A100 = Device(
    "A100", 108, 32, 1.41, 163 * KIB, 164 * KIB, 65536, 64, 32,
    dram_rate=1790.0, l2_rate=5100.0, l2_bytes=40 * MIB,
    matrix_rates=_rates(16, 16, 125, 250, 250, 500),
    vector_rate=108 * 64 * 1.41, special_rate=108 * 16 * 1.41, launch_ns=3000.0,
)  # fmt: skip
# RTX A6000.
_SM_86 = Device(
    "A6000", 84, 32, 1.7, 99 * KIB, 100 * KIB, 65536, 48, 16,
    dram_rate=680.0, l2_rate=2500.0, l2_bytes=6 * MIB,
    matrix_rates=_rates(0.5, 30, 62, 124, 124, 248),
    vector_rate=84 * 128 * 1.7, special_rate=84 * 16 * 1.7, launch_ns=3000.0,
)  # fmt: skip
# L40S / RTX 6000 Ada.
_SM_89 = Device(
    "L40S", 142, 32, 2.2, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=800.0, l2_rate=5000.0, l2_bytes=96 * MIB,
    matrix_rates=_rates(1.1, 70, 145, 290, 580, 580),
    vector_rate=142 * 128 * 2.2, special_rate=142 * 16 * 2.2, launch_ns=3000.0,
)  # fmt: skip
# H200, measured: copy 4.23 TB/s; cuBLAS bf16 746 TFLOP/s at 4096^3 (peak 989); tiles of Triton
# products of 81 GB/s and 5.6 TFLOP/s for each multiprocessor (heuristics/matmul.py).
_H200 = Device(
    "H200", 132, 32, 1.755, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=4230.0, l2_rate=10800.0, l2_bytes=50 * MIB,
    matrix_rates=_rates(54, 54, 395, 770, 1540, 1540),
    vector_rate=132 * 128 * 1.755, special_rate=132 * 16 * 1.755, launch_ns=2500.0,
)  # fmt: skip
# H100 SXM: the same chip with 3.35 TB/s instead of 4.8.
_H100 = replace(_H200, name="H100", dram_rate=2950.0)
_B200 = Device(
    "B200", 148, 32, 1.8, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=7000.0, l2_rate=14000.0, l2_bytes=126 * MIB,
    matrix_rates=_rates(30, 60, 900, 1800, 3600, 3600),
    vector_rate=148 * 128 * 1.8, special_rate=148 * 16 * 1.8, launch_ns=2500.0,
)  # fmt: skip
# RTX PRO 6000 Blackwell.
_SM_120 = Device(
    "RTX PRO 6000", 188, 32, 2.3, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=1580.0, l2_rate=8000.0, l2_bytes=128 * MIB,
    matrix_rates=_rates(1.5, 95, 200, 400, 800, 800),
    vector_rate=188 * 128 * 2.3, special_rate=188 * 16 * 2.3, launch_ns=2500.0,
)  # fmt: skip
# AMD: CDNA 3 and CDNA 4 white papers. A compute unit holds 4 x 512 registers of 64 lanes and 32
# waves. Public bf16 products in Triton reach half of the peak (hipBLASLt 0.6 to 0.7). "l2" is the
# cache that all chiplets share; MI355X has no tf32, its products go through fp32 units.
_MI300X = Device(
    "MI300X", 304, 64, 1.9, 64 * KIB, 64 * KIB, 131072, 32, 16,
    dram_rate=4300.0, l2_rate=12000.0, l2_bytes=256 * MIB,
    matrix_rates=_rates(80, 80, 330, 750, 1500, 1500),
    vector_rate=304 * 128 * 1.9, special_rate=304 * 16 * 1.9, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip
_MI350X = Device(
    "MI350X", 256, 64, 2.2, 160 * KIB, 160 * KIB, 131072, 32, 16,
    dram_rate=6500.0, l2_rate=14000.0, l2_bytes=256 * MIB,
    matrix_rates=_rates(50, 100, 100, 1500, 3000, 3000),
    vector_rate=256 * 128 * 2.2, special_rate=256 * 16 * 2.2, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip

_CUDA = {80: _A100, 86: _SM_86, 89: _SM_89, 90: _H200, 100: _B200, 120: _SM_120}
_HIP = {"gfx942": _MI300X, "gfx950": _MI350X}
_BY_NAME = {"H100": _H100, "H800": _H100, "GH200": _H100}
"""Devices that share their architecture's name with a faster one, by what the driver calls them."""
_CPU_GHZ = {"avx512": 2.8, "avx2": 3.0, "sse": 3.0, "neon": 2.8}
_CPU_LANES = {"avx512": 16, "avx2": 8, "sse": 4, "neon": 4}
_CORE_DRAM_RATE, _CORE_L2_RATE = 11.0, 45.0
"""Of one core of a server, as all of them together get it; an estimate."""


def device_of(target: Target) -> Device:
    """The figures of a target; unknown GPUs take those of the next older architecture."""
    if target.kind == "cuda":
        known = max((c for c in _CUDA if c <= target.capability), default=80)
        by_name = (device for name, device in _BY_NAME.items() if name in target.model)
        device = next(by_name, _CUDA[known]) if known == 90 else _CUDA[known]
        return device.with_sms(target.num_sms)
    if target.kind == "hip":
        return _HIP.get(target.arch, _MI300X).with_sms(target.num_sms)
    return _cpu(target)


def _cpu(target: Target) -> Device:
    """A core does two fused multiply-adds of a vector for each clock."""
    ghz, cores = _CPU_GHZ.get(target.arch, 2.5), target.num_sms
    lanes = _CPU_LANES.get(target.arch, target.vector_lanes)
    flops = cores * lanes * 4 * ghz / 1e3
    # 16 x 32 x 16 multiply-adds in 16 clocks, where there are tile registers.
    f16 = cores * 1024 * ghz / 1e3 if target.has_matrix_tiles else flops
    return Device(
        target.arch or "cpu", cores, 1, ghz, 0, 0, 0, 1, 1,
        dram_rate=_CORE_DRAM_RATE * cores, l2_rate=_CORE_L2_RATE * cores, l2_bytes=target.l2_bytes,
        matrix_rates=_rates(flops / 2, flops, flops, f16, flops, flops),
        vector_rate=cores * lanes * 2 * ghz, special_rate=cores * lanes * ghz / 12,
        launch_ns=3000.0, dram_latency_ns=90.0, l2_latency_ns=10.0,
    )  # fmt: skip
