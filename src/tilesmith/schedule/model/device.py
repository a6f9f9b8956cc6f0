"""What a kind of device can do: limits and rates, for estimates before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.targets import Target

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

    @staticmethod
    def unknown(target: Target) -> Device:
        """A device of which only the number of its cores is known."""
        cores = target.num_sms
        return Device(
            target.label, cores, 1, 1.0, 0, 0, 0, 1, 1,
            dram_rate=10.0, l2_rate=10.0 * cores, l2_bytes=target.l2_bytes,
            matrix_rates=matrix_rates(*[cores * 1e-2] * len(_CLASSES)),
            vector_rate=4.0 * cores, special_rate=1.0 * cores, launch_ns=1000.0,
        )  # fmt: skip

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


def matrix_rates(*tera_ops: float) -> dict[str, float]:
    """Operations for each nanosecond of fp64, fp32 (FMA units), tf32, 16-bit, fp8 and int8."""
    return {name: rate * 1e3 for name, rate in zip(_CLASSES, tera_ops)}
