"""GPUs: limits and rates by target.

Limits and peak rates are the vendors' figures; where a device was measured, rates are what the best
kernels reach on it. Rates of others scale the vendor's figure by the same share.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.schedule.model.estimates import Device, matrix_rates
from tilesmith.targets import Target

KIB, MIB = 1 << 10, 1 << 20

# NVIDIA: CUDA programming guide, table of technical specifications per compute capability;
# architecture white papers for rates (dense). 16 special functions per clock and multiprocessor.
# Sustained shares: 0.8 of the matrix peak (the best published kernels), 0.88 of the memory's.
_A100 = Device(
    "A100", 108, 32, 1.41, 163 * KIB, 164 * KIB, 65536, 64, 32,
    dram_rate=1790.0, l2_rate=5100.0, l2_bytes=40 * MIB,
    matrix_rates=matrix_rates(16, 16, 125, 250, 250, 500),
    vector_rate=108 * 64 * 1.41, special_rate=108 * 16 * 1.41, launch_ns=3000.0,
)  # fmt: skip
# RTX A6000.
_SM_86 = Device(
    "A6000", 84, 32, 1.7, 99 * KIB, 100 * KIB, 65536, 48, 16,
    dram_rate=680.0, l2_rate=2500.0, l2_bytes=6 * MIB,
    matrix_rates=matrix_rates(0.5, 30, 62, 124, 124, 248),
    vector_rate=84 * 128 * 1.7, special_rate=84 * 16 * 1.7, launch_ns=3000.0,
)  # fmt: skip
# L40S / RTX 6000 Ada.
_SM_89 = Device(
    "L40S", 142, 32, 2.2, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=800.0, l2_rate=5000.0, l2_bytes=96 * MIB,
    matrix_rates=matrix_rates(1.1, 70, 145, 290, 580, 580),
    vector_rate=142 * 128 * 2.2, special_rate=142 * 16 * 2.2, launch_ns=3000.0,
)  # fmt: skip
# H200, measured: copy 4.23 TB/s; cuBLAS bf16 746 TFLOP/s at 4096^3 (peak 989); tiles of Triton
# products of 81 GB/s and 5.6 TFLOP/s for each multiprocessor (heuristics/matmul.py).
_H200 = Device(
    "H200", 132, 32, 1.755, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=4230.0, l2_rate=10800.0, l2_bytes=50 * MIB,
    matrix_rates=matrix_rates(54, 54, 395, 770, 1540, 1540),
    vector_rate=132 * 128 * 1.755, special_rate=132 * 16 * 1.755, launch_ns=2500.0,
)  # fmt: skip
# H100 SXM: the same chip with 3.35 TB/s instead of 4.8.
_H100 = replace(_H200, name="H100", dram_rate=2950.0)
_B200 = Device(
    "B200", 148, 32, 1.8, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=7000.0, l2_rate=14000.0, l2_bytes=126 * MIB,
    matrix_rates=matrix_rates(30, 60, 900, 1800, 3600, 3600),
    vector_rate=148 * 128 * 1.8, special_rate=148 * 16 * 1.8, launch_ns=2500.0,
)  # fmt: skip
# RTX PRO 6000 Blackwell.
_SM_120 = Device(
    "RTX PRO 6000", 188, 32, 2.3, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=1580.0, l2_rate=8000.0, l2_bytes=128 * MIB,
    matrix_rates=matrix_rates(1.5, 95, 200, 400, 800, 800),
    vector_rate=188 * 128 * 2.3, special_rate=188 * 16 * 2.3, launch_ns=2500.0,
)  # fmt: skip
# AMD: CDNA 3 and CDNA 4 white papers. A compute unit holds 4 x 512 registers of 64 lanes and 32
# waves. Public bf16 products in Triton reach half of the peak (hipBLASLt 0.6 to 0.7). "l2" is the
# cache that all chiplets share; MI355X has no tf32, its products go through fp32 units.
_MI300X = Device(
    "MI300X", 304, 64, 1.9, 64 * KIB, 64 * KIB, 131072, 32, 16,
    dram_rate=4300.0, l2_rate=12000.0, l2_bytes=256 * MIB,
    matrix_rates=matrix_rates(80, 80, 330, 750, 1500, 1500),
    vector_rate=304 * 128 * 1.9, special_rate=304 * 16 * 1.9, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip
_MI350X = Device(
    "MI350X", 256, 64, 2.2, 160 * KIB, 160 * KIB, 131072, 32, 16,
    dram_rate=6500.0, l2_rate=14000.0, l2_bytes=256 * MIB,
    matrix_rates=matrix_rates(50, 100, 100, 1500, 3000, 3000),
    vector_rate=256 * 128 * 2.2, special_rate=256 * 16 * 2.2, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip

_CUDA = {80: _A100, 86: _SM_86, 89: _SM_89, 90: _H200, 100: _B200, 120: _SM_120}
_HIP = {"gfx942": _MI300X, "gfx950": _MI350X}
_BY_NAME = {"H100": _H100, "H800": _H100, "GH200": _H100}
"""Devices that share their architecture's name with a faster one, by what the driver calls them."""


def device_of(target: Target) -> Device:
    """The figures of a GPU; unknown ones take those of the next older architecture."""
    if target.kind == "hip":
        return _HIP.get(target.arch, _MI300X).with_sms(target.num_sms)
    known = max((c for c in _CUDA if c <= target.capability), default=80)
    by_name = (device for name, device in _BY_NAME.items() if name in target.model)
    device = next(by_name, _CUDA[known]) if known == 90 else _CUDA[known]
    return device.with_sms(target.num_sms)
