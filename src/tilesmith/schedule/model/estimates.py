"""What a program needs of a device and how long a launch takes, as numbers.

Backends estimate these in closed form, before anything is compiled; what a backend does not count
is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilesmith.ir.types import Value

SPILL_FROM = 1.05
"""Of the registers there are: compiled kernels with fewer rarely spilled."""
MAX_MULTIPLIED = 2048
"""Multiply-adds of a thread without matrix units: offline builds with more nearly all spilled."""
MAX_MULTIPLIED_SLOWLY = 4096
"""More than these also take tens of seconds to compile."""
MAX_LOADED = 2048
"""Elements that a thread loads one by one: builds with more ran for minutes."""


@dataclass(frozen=True)
class CodeLength:
    """What one thread does in a straight line."""

    multiplied: int = 0
    """Multiply-adds of products that matrix units do not take."""
    loaded: int = 0
    """Elements, but for those that come through descriptors."""

    @property
    def is_short(self) -> bool:
        """Whether registers hold what such code keeps at hand."""
        return self.multiplied <= MAX_MULTIPLIED and self.loaded <= MAX_LOADED

    @property
    def is_compilable(self) -> bool:
        """Whether a compiler gets through it in seconds."""
        return self.multiplied <= MAX_MULTIPLIED_SLOWLY and self.loaded <= MAX_LOADED

    @property
    def problem(self) -> str:
        """What is too long, in numbers; nothing where all is short."""
        if self.multiplied > MAX_MULTIPLIED:
            return f"each thread would multiply {self.multiplied} times in one straight line"
        if self.loaded > MAX_LOADED:
            return f"each thread would load {self.loaded} elements in one straight line"
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
    """The time of one launch, in milliseconds, and the parts that compete for it.

    The parts overlap: the total is near the largest of them, not their sum.
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
