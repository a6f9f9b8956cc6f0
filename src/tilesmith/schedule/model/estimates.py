"""What a device can do, what a program needs of it and how long a launch takes, as numbers.

Backends estimate these in closed form, before anything is compiled; what a backend does not count
is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tilesmith.ir.types import Value
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


SPILL_FROM = 1.05
"""Of the registers there are: compiled kernels with fewer rarely spilled."""
MAX_MULTIPLIED = 2048
"""Multiply-adds of a thread without matrix units: offline builds with more nearly all spilled."""
MAX_MULTIPLIED_SLOWLY = 4096
"""More than these also take tens of seconds to compile."""
MAX_ACCESSED = 2048
"""Elements that a thread loads and stores one by one. With 2,400 to 5,100 of random programs a
build took 5 to 25 s, with up to 1,300 mostly 1 to 3; loads alone, above it, ran for minutes."""


@dataclass(frozen=True)
class CodeLength:
    """What one thread does in a straight line."""

    multiplied: int = 0
    """Multiply-adds of products that matrix units do not take."""
    accessed: int = 0
    """Elements of all loads, stores and atomics, but for those that go through descriptors."""

    @property
    def is_short(self) -> bool:
        """Whether registers hold what such code keeps at hand."""
        return self.multiplied <= MAX_MULTIPLIED and self.accessed <= MAX_ACCESSED

    @property
    def is_compilable(self) -> bool:
        """Whether a compiler gets through it in seconds."""
        return self.multiplied <= MAX_MULTIPLIED_SLOWLY and self.accessed <= MAX_ACCESSED

    @property
    def problem(self) -> str:
        """What is too long, in numbers; nothing where all is short."""
        if self.multiplied > MAX_MULTIPLIED:
            return f"each thread would multiply {self.multiplied} times in one straight line"
        if self.accessed > MAX_ACCESSED:
            return f"each thread would load and store {self.accessed} elements one by one"
        return ""


NO_CODE = CodeLength()


class RegisterPressure(str, Enum):
    """How full the registers of a thread are."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    SPILLS = "spills"


@dataclass(frozen=True)
class Limits:
    """What a target gives one program."""

    tile_elements: int
    """The most that one tile may have."""
    registers: int = 0
    """Per thread, in 32-bit words; 0 for no limit."""
    shared_bytes: int = 0


@dataclass(frozen=True)
class ResourceUse:
    """An estimate, with the value that asks for most where there is one.

    Registers, shared memory and straight code are 0 where a backend does not count them.
    """

    tile_elements: int
    largest_tile: Value | None
    limits: Limits
    registers: int = 0
    largest_resident: Value | None = None
    shared_bytes: int = 0
    shared_tiles: tuple[Value, ...] = ()
    straight: CodeLength = NO_CODE
    operand_registers: int = 0
    """Per thread, for operands of products on their way; part of the pressure, not of a limit."""

    @property
    def has_legal_tiles(self) -> bool:
        """Whether every tile is within what the language allows."""
        return self.tile_elements <= self.limits.tile_elements

    @property
    def fits_registers(self) -> bool:
        """Whether tiles stay in registers."""
        return not self.limits.registers or self.registers <= self.limits.registers

    @property
    def fits_shared(self) -> bool:
        """Whether the operands of matrix products fit shared memory."""
        return not self.limits.shared_bytes or self.shared_bytes <= self.limits.shared_bytes

    @property
    def fits(self) -> bool:
        """Whether the kernel can be expected to build and to run without spilling."""
        fits = self.has_legal_tiles and self.fits_registers and self.fits_shared
        return fits and self.straight.is_short

    @property
    def can_be_built(self) -> bool:
        """Whether the kernel can be expected to build, if only by keeping values in memory."""
        return self.has_legal_tiles and self.fits_shared and self.straight.is_compilable

    @property
    def expected_registers(self) -> int:
        """Per thread, operands included."""
        return self.registers + self.operand_registers

    @property
    def pressure(self) -> RegisterPressure:
        """How full the registers are."""
        limit, expected = self.limits.registers, self.expected_registers
        if not limit or 2 * expected <= limit:
            return RegisterPressure.LOW
        if expected > SPILL_FROM * limit:
            return RegisterPressure.SPILLS
        return RegisterPressure.HIGH if 8 * expected > 7 * limit else RegisterPressure.MEDIUM


@dataclass(frozen=True)
class Prediction:
    """The time of a call's launches, in milliseconds, and the parts that compete for it.

    The parts of one overlap: the total is near the largest of them, not their sum.
    """

    total_ms: float
    compute_ms: float
    """Busiest multiprocessor or core: products, arithmetic, operands from the shared cache."""
    memory_ms: float
    latency_ms: float
    """Of programs that wait for their loads and reductions, one after the other."""
    waves: float = 1.0
    """How often the device is filled with programs."""
    occupancy: float = 1.0
    """Programs resident on one multiprocessor."""
    limiter: str = ""
    """What takes longest, in words."""

    def after(self, first: Prediction) -> Prediction:
        """The time of both launches, one after the other."""
        longer = max(first, self, key=lambda item: item.total_ms)
        return replace(
            self,
            total_ms=first.total_ms + self.total_ms,
            compute_ms=first.compute_ms + self.compute_ms,
            memory_ms=first.memory_ms + self.memory_ms,
            latency_ms=first.latency_ms + self.latency_ms,
            limiter=f"{longer.limiter}, of the {'first' if longer is first else 'second'} launch",
        )

    def __str__(self) -> str:
        parts = f"compute {self.compute_ms:.4g}, memory {self.memory_ms:.4g}"
        total = f"{self.total_ms:.4g} ms ({parts}, latency {self.latency_ms:.4g})"
        return f"{total}: {self.limiter}; {self.waves:.3g} waves of {self.occupancy:g} programs"


def blend(times: tuple[float, ...], sharpness: float = 6.0) -> float:
    """Smooth maximum of overlapping times."""
    longest = max(times, default=0.0)
    if longest <= 0.0:
        return 0.0
    return longest * sum((time / longest) ** sharpness for time in times) ** (1 / sharpness)
