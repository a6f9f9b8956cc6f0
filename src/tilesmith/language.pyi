"""The device language as type checkers see it: in kernels, device values are torch tensors.

At run time they are proxies that torch functions accept; ``language.py`` holds the real functions.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch

from tilesmith.schedule.space.fragments import Fragment

__all__: list[str]

class Tile:
    begin: Any
    end: Any
    id: Any
    count: Any
    block_size: Any
    index: torch.Tensor
    def __add__(self, other: int) -> torch.Tensor: ...
    def __index__(self) -> int: ...

class StackTensor(torch.Tensor):
    tensor_like: torch.Tensor
    dev_ptrs: torch.Tensor
    def __init__(self, tensor_like: torch.Tensor, dev_ptrs: torch.Tensor) -> None: ...

# A class, which marks parameters: what is passed for them is any number or text.
constexpr = Any

class _Loop(Iterator[Any]):
    def __next__(self) -> Any: ...
    def __reversed__(self) -> Iterator[Any]: ...

def tile(begin_or_end: Any, end_or_none: Any = None, /, block_size: Any = None) -> _Loop:
    """Tiles of an index space, only in a ``for``: outermost each is a program, inside a turn."""

def grid(begin_or_end: Any, end_or_none: Any = None, /, step: Any = None) -> _Loop:
    """Iterate over plain indices; the loop variable is a scalar."""

def barrier() -> None:
    """Between two top-level loops: all programs before it end, and what they wrote is seen
    after.
    """

def paired(*indices: Any) -> Any:
    """Index tensors that pick elements together, one for each position, as torch pairs them."""

def jagged_tile(parent: Any) -> Iterator[Any]:
    """Tiles over ``[0, parent.amax())``; lanes at or past their own length do not count."""

def static_range(begin_or_end: Any, end_or_none: Any = None, /, step: Any = 1) -> Sequence[int]:
    """A loop that is unrolled whole; arguments and index are compile-time integers."""

def zeros(shape: Any, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
    """A tensor of zeros; ``[]`` gives a 0-d one."""

def full(
    shape: Any,
    value: Any,
    dtype: torch.dtype | None = torch.float32,
    device: Any = None,
) -> torch.Tensor:
    """A tensor filled with ``value`` (a number, a symbolic number or a 0-d value)."""

def arange(
    *bounds: Any,
    start: Any = 0,
    end: Any = None,
    dtype: torch.dtype | None = None,
    device: Any = None,
    step: Any = 1,
) -> torch.Tensor:
    """``[start, end)`` as an integer tensor; the length must be known or of whole blocks."""

def subscript(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """``x[:, None]``, ``x[0]``, ``x[..., 2:5]``: new axes, positions, slices of constant axes."""

def load(
    tensor: torch.Tensor, index: Any, extra_mask: Any = None, eviction_policy: str | None = None
) -> torch.Tensor:
    """Read the indexed elements; masked-off lanes read as 0."""

def store(tensor: torch.Tensor, index: Any, value: Any, extra_mask: Any = None) -> None:
    """Write ``value``, converted to the tensor's element type and broadcast to the indexed
    shape.
    """

def dot(
    mat1: torch.Tensor, mat2: torch.Tensor, acc: Any = None, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Product of two matrices (or batches), accumulated in fp32 (int32 for int8)."""

def device_print(prefix: str, *values: Any) -> None:
    """Print device values while the kernel runs, after a literal prefix."""

def breakpoint() -> None:
    """Stop in Python's debugger, where the kernel's variables are tensors. Interpreter only."""

def inline_triton(triton_source: str, args: Any, output_like: Any) -> Any:
    """Put Triton statements into the kernel; the last line is the value, like ``output_like``."""

def triton_kernel(triton_source_or_fn: Any, args: Any, output_like: Any) -> Any:
    """Call a ``@triton.jit`` function: the object, the name of a global, or its source. GPU
    only.
    """

def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: Any, is_pure: bool, pack: int
) -> Any:
    """Apply assembly to ``pack`` elements at a time; a sequence of dtypes gives a tuple. GPU
    only.
    """

def join(tensor0: torch.Tensor, tensor1: torch.Tensor) -> torch.Tensor:
    """Two values of one element type along a new last dimension of size 2; shapes broadcast."""

def split(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two halves of a value whose last dimension is 2, without that dimension."""

def cumsum(input_tensor: torch.Tensor, dim: int, reverse: bool = False) -> torch.Tensor:
    """Running sum along ``dim``, of the type of the input (bools are counted in int64)."""

def cumprod(input_tensor: torch.Tensor, dim: int, reverse: bool = False) -> torch.Tensor:
    """Running product along ``dim``, of the type of the input (of bools in int64)."""

@overload
def associative_scan(
    combine_fn: Callable[..., Any], input_tensor: torch.Tensor, dim: int, reverse: bool = False
) -> torch.Tensor:
    """Each element combined with those before it along ``dim``, or in reverse with those after
    it.
    """

@overload
def associative_scan(
    combine_fn: Callable[..., Any],
    input_tensor: Sequence[torch.Tensor],
    dim: int,
    reverse: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Each element combined with those before it along ``dim``, or in reverse with those after
    it.
    """

@overload
def reduce(
    combine_fn: Callable[..., Any],
    input_tensor: torch.Tensor,
    dim: int | None = None,
    other: Any = 0,
    keep_dims: bool = False,
) -> torch.Tensor:
    """Combine all elements along ``dim`` (all there are for None); the type stays."""

@overload
def reduce(
    combine_fn: Callable[..., Any],
    input_tensor: Sequence[torch.Tensor],
    dim: int | None = None,
    other: Any = 0,
    keep_dims: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Combine all elements along ``dim`` (all there are for None); the type stays."""

def rand(shape: Sequence[Any], seed: Any, device: Any = None, offsets: Any = None) -> torch.Tensor:
    """Uniform float32 in [0, 1), a function of the seed and of each element's position."""

def randint(
    shape: Sequence[Any], low: Any, high: Any, seed: Any, device: Any = None
) -> torch.Tensor:
    """Uniform int32 in [low, high), a function of the seed and of each element's position."""

def rand4x(
    seed: Any, offsets: Any, device: Any = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four independent uniform float32 tensors in [0, 1), shaped like the integers ``offsets``."""

def atomic_add(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``add``, each in one step; gives the previous values."""

def atomic_and(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``and``, each in one step; gives the previous values."""

def atomic_or(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``or``, each in one step; gives the previous values."""

def atomic_xor(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``xor``, each in one step; gives the previous values."""

def atomic_max(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``max``, each in one step; gives the previous values."""

def atomic_min(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``min``, each in one step; gives the previous values."""

def atomic_xchg(target: torch.Tensor, index: Any, value: Any, sem: str = ...) -> torch.Tensor:
    """Change the indexed elements by ``xchg``, each in one step; gives the previous values."""

def atomic_cas(
    target: torch.Tensor, index: Any, expected: Any, value: Any, sem: str = ...
) -> torch.Tensor:
    """Store ``value`` where the element is ``expected``; gives the previous values."""

def dot_scaled(
    mat1: torch.Tensor,
    mat1_scale: torch.Tensor | None,
    mat1_format: str,
    mat2: torch.Tensor,
    mat2_scale: torch.Tensor | None,
    mat2_format: str,
    acc: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Product of two matrices with a power of two for each 32 elements along k."""

def float4_e2m1fn_x2_to_float32(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two FP4 numbers of each byte as float32, the low half first."""

def load_float4_e2m1fn_x16_to_float16(
    storage: torch.Tensor, group_offsets: torch.Tensor, extra_mask: Any = None
) -> tuple[torch.Tensor, ...]:
    """The 16 FP4 numbers of each group of 8 bytes, as 16 float16 tensors."""

def load_bfloat16_x16_to_float16(
    storage: torch.Tensor, group_offsets: torch.Tensor, extra_mask: Any = None
) -> tuple[torch.Tensor, ...]:
    """The 16 bfloat16 numbers of each group, as 16 float16 tensors."""

def stacktensor_like(tensor_like: torch.Tensor, dev_ptrs: torch.Tensor) -> StackTensor:
    """Tensors of the dtype, shape and strides of ``tensor_like`` at the addresses ``dev_ptrs``."""

def specialize(value: Any) -> Any:
    """Make a size, stride or integer argument a constant of the compiled kernel. Host code only."""

def register_block_size(min_or_max: int, max_or_none: int | None = None, /) -> int:
    """A tuned block size for use in several loops, or in host code. Host code only."""

def register_tunable(name: str, fragment: Fragment) -> Any:
    """A value of your own that the Config decides. Host code only."""

def tile_index(tile: Tile) -> torch.Tensor:
    """Indices of a tile: ``tile.index``."""

def tile_begin(tile: Tile) -> Any:
    """First index of a tile: ``tile.begin``."""

def tile_end(tile: Tile) -> Any:
    """One past the last valid index of a tile: ``tile.end``."""

def tile_block_size(tile: Tile) -> Any:
    """Block size of a tile: ``tile.block_size``."""

def tile_id(tile: Tile) -> Any:
    """Number of a tile, from 0: ``tile.id``."""
