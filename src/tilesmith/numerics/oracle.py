"""What a kernel should give: its IR interpreted twice, as written and with every float in fp64.

The second is the truth; the first shows how much error the roundings that the kernel asks for
justify. Of a kernel of many independent programs some are enough; a mask says what those wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.interpreter.prepare import PreparedFunction, prepare_function
from tilesmith.interpreter.run import Argument, run_prepared
from tilesmith.interpreter.sampling import Sampling, TimeLimitError
from tilesmith.ir.function import Function
from tilesmith.ir.ops.foreign import Assert, Breakpoint, Print
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import rewrite_function, walk_function
from tilesmith.numerics.float_standard import ErrorTerms
from tilesmith.numerics.reference_setup import copy_written, needs_all_programs, runtime_sizes
from tilesmith.numerics.reference_sums import COMPENSATED, coarse_types, longest_sum, whole_loops
from tilesmith.passes.roundings import round_like_gpu
from tilesmith.passes.widen_floats import CannotWidenError, widen_floats

_TRUTH_SHARE = 0.7
"""Of the time limit: fp64 is slower than what it stands for."""
_SMALLEST_LIMIT_S = 0.05


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
