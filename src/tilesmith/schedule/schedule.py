"""The resolved schedule of one function on one target: all a backend may ask about a Config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilesmith.ir.types import Dim, Shape
from tilesmith.targets import Target


@dataclass(frozen=True)
class GridOptions:
    """How one top-level loop becomes program ids. ``order[0]`` is the axis that varies fastest."""

    order: tuple[int, ...]
    l2_grouping: int = 1


@dataclass(frozen=True)
class LoopOptions:
    """How one sequential loop (or the persistent loop over program ids) is emitted.

    ``order`` lists the axes from the outermost ``for`` to the innermost.
    """

    order: tuple[int, ...] = (0,)
    unroll_factor: int = 0
    num_stages: int = 0
    multi_buffer: bool | None = None
    flatten: bool | None = None
    warp_specialize: bool | None = None
    is_static: bool = False


@dataclass(frozen=True)
class AccessOptions:
    """How one load, store or atomic is emitted."""

    indexing: str = "pointer"
    eviction: str = ""
    """"", ``first`` or ``last``."""
    cache_modifier: str = ""


@dataclass(frozen=True)
class CpuOptions:
    """How programs run on a CPU."""

    threads: int = 0
    """0: as many as torch uses."""
    unroll: int = 4
    """Independent accumulators of a reduction loop."""
    streaming_stores: bool = False
    """Whether plain stores of whole vectors bypass the caches."""
    is_dynamic: bool = False
    """Whether threads take programs from a shared counter rather than one range each."""


@dataclass(frozen=True)
class Schedule:
    """Everything decided by a Config, looked up by symbol or slot."""

    target: Target
    symbols: Mapping[str, int]
    """Physical size of every block, and of every runtime size used as a dimension (at its hint).

    Runtime sizes are padded to a power of two on GPUs only."""
    padded: Mapping[int, int]
    """Physical size of every constant dimension above 1: a power of two, 16 or more for dots.

    Empty on CPUs, whose tiles have their true size."""
    grids: Mapping[int, GridOptions] = field(default_factory=dict[int, GridOptions])
    loops: Mapping[int, LoopOptions] = field(default_factory=dict[int, LoopOptions])
    persistent_loop: LoopOptions = LoopOptions()
    accesses: Mapping[int, AccessOptions] = field(default_factory=dict[int, AccessOptions])
    """Loads and stores by slot."""
    atomics: Mapping[int, AccessOptions] = field(default_factory=dict[int, AccessOptions])
    """Atomics by slot; they are numbered by themselves."""
    pid_type: str = "flat"
    num_warps: int = 4
    num_stages: int = 1
    num_sm_multiplier: int = 1
    maxnreg: int | None = None
    store_parts: int = 1
    """In how many parts a tile is stored through a descriptor."""
    reserved_sms: int = 0
    form: str = ""
    """Another way to run the function, as the Config's ``structure`` names it."""
    backend_options: Mapping[str, int | bool | str] = field(
        default_factory=dict[str, "int | bool | str"]
    )
    """Options that apply on some targets only, e.g. waves_per_eu on AMD."""
    cpu: CpuOptions = CpuOptions()

    def physical(self, dim: Dim) -> int:
        """The size a backend gives this dimension."""
        return dim.physical(self.symbols, self.padded)

    def physical_shape(self, shape: Shape) -> tuple[int, ...]:
        """The sizes a backend gives a tile's dimensions."""
        return tuple(map(self.physical, shape))
