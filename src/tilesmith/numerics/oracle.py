"""What a kernel should give: its IR interpreted twice, as written and with every float in fp64.

The second is the truth; the first shows how much error the roundings that the kernel asks for
justify. Of a kernel of many independent programs some are enough; a mask says what those wrote.
For kernels that are in fp64 themselves, the truth has sums without rounding errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.dtypes import F8E4M3, F16
from tilesmith.interpreter.frame import Frame, PreparedFunction, Tile, from_tensor, prepare_function
from tilesmith.interpreter.observers import Sampling, TimeLimitError
from tilesmith.interpreter.reduction import evaluate_reduce
from tilesmith.interpreter.run import Argument, run_prepared
from tilesmith.interpreter.tile_ops import evaluate_dot
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.foreign import Assert, Breakpoint, Print
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import rewrite_function, walk, walk_function
from tilesmith.ir.types import Dim
from tilesmith.numerics.float_standard import ErrorTerms
from tilesmith.numerics.reference_setup import copy_written, needs_all_programs, runtime_sizes
from tilesmith.passes.roundings import CannotWidenError, round_like_gpu, widen_floats

_TRUTH_SHARE = 0.7
"""Of the time limit: fp64 is slower than what it stands for."""
_SMALLEST_LIMIT_S = 0.05
_SUMS = (ReduceKind.SUM.value, ReduceKind.PROD.value)
_UNKNOWN_EXTENT = 1 << 12
_SPLITTER = 2.0**27 + 1
"""Veltkamp's constant: splits a double into two halves whose products are exact."""
Pair = tuple[torch.Tensor, torch.Tensor]
"""A value as the unevaluated sum of two, the second of which is a rounding error of the first."""


class NoReferenceError(Exception):
    """The reference cannot be worked out; says why."""


@dataclass(frozen=True)
class OracleOptions:
    """How much work a reference may be."""

    max_programs: int = 64
    """Programs of each grid to interpret, where they are independent of each other."""
    seed: int = 0
    time_limit_s: float = 30.0
    is_compensated: bool = False
    """Whether sums in fp64 carry their rounding errors along: for kernels that are in fp64."""


@dataclass(frozen=True)
class ReferenceTensor:
    """One tensor that the kernel writes."""

    truth: torch.Tensor
    """In fp64 if it is a float tensor."""
    native: torch.Tensor
    """As the kernel is written."""
    written: torch.Tensor
    """Which elements were written; only these are known."""
    is_accumulated: bool = False
    """Whether programs add to it one after the other, in any order."""


@dataclass(frozen=True)
class Reference:
    """What the kernel should give, by name of the parameter."""

    tensors: Mapping[str, ReferenceTensor]
    is_complete: bool
    """Whether all programs were interpreted: then what was not written must not change."""
    programs: str = ""
    """In words, unless complete: "8 of 1024 programs"."""
    sum_length: int = 1
    """Terms of the longest sum behind one element, roughly."""
    intermediates: tuple[torch.dtype, ...] = ()
    """Types as coarse as products are in hardware, beyond what the kernel says."""
    reason: str = ""
    """Why the truth is no better than ``native``, if so."""
    seconds: float = field(default=0.0, compare=False)

    def terms_of(self, tensor: ReferenceTensor) -> ErrorTerms:
        """What errors of one of the tensors may come from."""
        return ErrorTerms(self.sum_length, self.intermediates, tensor.is_accumulated)

    def __str__(self) -> str:
        kind = "fp64 reference" if not self.reason else "reference as written"
        return f"{kind}, {self.programs}" if self.programs else kind


def work_out_reference(
    function: Function,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    options: OracleOptions | None = None,
) -> Reference:
    """Interpret a function on arguments in their initial state, which is left as it is.

    ``sizes`` are the block sizes. Raises NoReferenceError if it cannot be done, or not in time.
    """
    silent = rewrite_function(
        function, lambda op: None if isinstance(op, (Print, Breakpoint, Assert)) else op
    )
    run = _Oracle(silent, arguments, sizes, options or OracleOptions())
    with torch.no_grad():
        try:
            return run.reference()
        except TimeLimitError as error:
            raise NoReferenceError(f"the reference gives up: {error}") from None
        except (BaseError, RuntimeError, MemoryError, IndexError) as error:
            reason = str(error).partition("\n")[0]
            raise NoReferenceError(f"the interpreter cannot run it: {reason}") from error


class _Oracle:
    """The two runs of one function."""

    def __init__(
        self,
        function: Function,
        arguments: Mapping[str, Argument],
        sizes: Mapping[str, int],
        options: OracleOptions,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._sizes = {**runtime_sizes(function, arguments), **sizes}
        self._options = options
        self._written = set(tensors_written(function))

    def reference(self) -> Reference:
        begin = time.perf_counter()
        sampling, truth, reason = self._truth()
        left = self._options.time_limit_s - (time.perf_counter() - begin)
        native_run = self._sampling(max(left, _SMALLEST_LIMIT_S), sampling)
        native = copy_written(self._function, self._arguments, is_wide=False)
        on_device = as_on_device(self._function, self._arguments)
        self._run(prepare_function(on_device), native, self._sizes, native_run)
        added = [op for op in walk_function(self._function) if isinstance(op, Atomic)]
        accumulated = {op.tensor.name for op in added}
        tensors = {
            name: ReferenceTensor(
                (truth or native)[name],
                native[name],
                native_run.mask_of(native[name]),
                name in accumulated,
            )
            for name in self._written
        }
        done, total = sum(map(len, native_run.done)), sum(native_run.num_programs)
        return Reference(
            tensors,
            native_run.is_complete,
            "" if native_run.is_complete else f"{done} of {total} programs",
            longest_sum(self._function, self._arguments),
            coarse_types(self._function, is_truth_known=not reason),
            reason,
            time.perf_counter() - begin,
        )

    def _truth(self) -> tuple[Sampling | None, dict[str, torch.Tensor] | None, str]:
        try:
            wide = widen_floats(self._function)
        except CannotWidenError as error:
            return None, None, f"there is no fp64 form of the kernel: {error}"
        sampling = self._sampling(_TRUTH_SHARE * self._options.time_limit_s, None)
        copies = copy_written(self._function, self._arguments, is_wide=True)
        prepared, sizes = prepare_function(wide), self._sizes
        if self._options.is_compensated:
            prepared, sizes = replace(prepared, evaluators=COMPENSATED), whole_loops(wide, sizes)
        self._run(prepared, copies, sizes, sampling)
        return sampling, copies, ""

    def _sampling(self, time_limit_s: float, earlier: Sampling | None) -> Sampling:
        if needs_all_programs(self._function):
            return Sampling(None, time_limit_s=time_limit_s)
        chosen = None if earlier is None else earlier.done
        return Sampling(self._options.max_programs, self._options.seed, time_limit_s, chosen)

    def _run(
        self,
        prepared: PreparedFunction,
        copies: Mapping[str, torch.Tensor],
        sizes: Mapping[str, int],
        sampling: Sampling,
    ) -> None:
        run_prepared(prepared, {**self._arguments, **copies}, sizes, sampling=sampling)


def as_on_device(function: Function, arguments: Mapping[str, Argument]) -> Function:
    """The function with the roundings of the device that its tensors are on."""
    tensors = [x for x in arguments.values() if isinstance(x, torch.Tensor)]
    return round_like_gpu(function) if any(x.is_cuda for x in tensors) else function


def longest_sum(function: Function, arguments: Mapping[str, Any]) -> int:
    """How many roundings one element may have behind it: the axes summed over, one after another.

    Of a sum over several axes at once, all but one are added up side by side in some form.
    """
    dims: set[Dim] = set()
    for op in walk_function(function):
        dims.update(_dims_of(op))
        if isinstance(op, Grid) and any(isinstance(inner, Atomic) for inner in walk(op.body)):
            dims.update(Dim.of(block) for block in op.blocks if block)
    known = {block.name: block.extent or _UNKNOWN_EXTENT for block in function.blocks}
    known |= {size.name: int(arguments.get(size.name, size.hint)) for size in function.sizes}
    symbols = {factor for dim in dims for factor in dim.factors if isinstance(factor, str)}
    constants = [dim.constant or 1 for dim in dims if not dim.symbols]
    lengths = [known[symbol] for symbol in symbols if symbol in known]
    return max(1, sum(lengths) + max(constants, default=0))


def coarse_types(function: Function, *, is_truth_known: bool) -> tuple[torch.dtype, ...]:
    """Types as coarse as intermediate values may be without the native run showing it.

    Hardware may add products of 8-bit floats more coarsely than in fp32. Without an fp64 form of
    the function, no run shows what the roundings that it asks for do.
    """
    ops = list(walk_function(function))
    products = [op.lhs.tile.dtype for op in ops if isinstance(op, Dot)]
    coarse = [F16 for dtype in products if dtype.is_float and dtype.bits == F8E4M3.bits][:1]
    if not is_truth_known:
        rounded = [op.dtype for op in ops if isinstance(op, Cast)]
        narrow = [dtype for dtype in rounded if dtype.is_low_precision_float]
        coarse += sorted(narrow, key=lambda dtype: dtype.precision)[:1]
    return tuple(map(to_torch, coarse))


def _dims_of(op: Operation) -> Iterator[Dim]:
    if isinstance(op, (Reduce, Scan)) and op.kind in _SUMS:
        yield op.x.tile.shape[op.axis]
    elif isinstance(op, (ReduceWith, ScanWith)):
        yield op.xs[0].tile.shape[op.axis]
    elif isinstance(op, Dot):
        yield op.lhs.tile.shape[-1]
    elif isinstance(op, Loop) and any(value.tile.dtype.is_float for value in op.init):
        yield from (Dim.of(block) for block in op.blocks if block)


def exact_sum(left: torch.Tensor, right: torch.Tensor) -> Pair:
    """The sum and its rounding error, exactly."""
    total = left + right
    part = total - left
    return total, (left - (total - part)) + (right - part)


def exact_product(left: torch.Tensor, right: torch.Tensor) -> Pair:
    """The product and its rounding error, exactly unless it overflows or underflows."""
    product = left * right
    (a, b), (c, d) = _halves(left), _halves(right)
    return product, ((a * c - product) + a * d + b * c) + b * d


def compensated_sum(values: torch.Tensor, axis: int) -> torch.Tensor:
    """The sum along an axis, rounded once."""
    high = values.movedim(axis, 0)
    low = torch.zeros_like(high)
    while high.size(0) > 1:
        half = high.size(0) // 2
        rest = (high[2 * half :], low[2 * half :])
        total, error = exact_sum(high[:half], high[half : 2 * half])
        low = torch.cat([low[:half] + low[half : 2 * half] + error, rest[1]])
        high = torch.cat([total, rest[0]])
    return _finite_or_plain(high[0] + low[0], values.sum(axis))


def compensated_product(
    lhs: torch.Tensor, rhs: torch.Tensor, acc: torch.Tensor | None = None
) -> torch.Tensor:
    """``lhs @ rhs (+ acc)``, rounded once."""
    plain = torch.matmul(lhs, rhs)
    high = torch.zeros_like(plain) if acc is None else acc.clone()
    low = torch.zeros_like(high)
    for k in range(lhs.size(-1)):
        product, error = exact_product(lhs[..., :, k, None], rhs[..., k, None, :])
        high, lost = exact_sum(high, product)
        low = low + (error + lost)
    return _finite_or_plain(high + low, plain if acc is None else plain + acc)


def whole_loops(function: Function, sizes: Mapping[str, int]) -> dict[str, int]:
    """Block sizes with which loops run once, so that sums are not rounded between iterations."""
    ops = list(walk_function(function))
    observed = {op.block for op in ops if isinstance(op, BlockSize)}
    looped = {name for op in ops if isinstance(op, Loop) for name in op.blocks if name}
    blocks = [b for b in function.blocks if b.fixed is None and b.extent is not None]
    whole = {b.name: b.extent or 1 for b in blocks if b.name in looped - observed}
    return {**sizes, **whole}


def _evaluate_dot(op: Dot, frame: Frame) -> Tile:
    operands = [op.lhs, op.rhs, *([] if op.acc is None else [op.acc])]
    tensors = [frame.tensor(value) for value in operands]
    if any(tensor.dtype != torch.float64 for tensor in tensors):
        return evaluate_dot(op, frame)
    return compensated_product(*tensors)


def _evaluate_reduce(op: Reduce, frame: Frame) -> Tile:
    x = frame.tensor(op.x)
    is_sum = op.reduction is ReduceKind.SUM and x.dtype == torch.float64
    if not is_sum or x.shape[op.axis] == 0:
        return evaluate_reduce(op, frame)
    return from_tensor(compensated_sum(x, op.axis), op.result.tile)


COMPENSATED: Mapping[type[Operation], Callable[[Any, Any], Any]] = {
    Dot: _evaluate_dot,
    Reduce: _evaluate_reduce,
}
"""What evaluates sums and products in place of the interpreter's own rules."""


def _halves(value: torch.Tensor) -> Pair:
    """Two numbers of at most 26 bits each that add up to the value."""
    scaled = value * _SPLITTER
    high = scaled - (scaled - value)
    return high, value - high


def _finite_or_plain(careful: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """Where numbers overflow or are infinite, error terms are not numbers."""
    return torch.where(careful.isfinite(), careful, plain)
