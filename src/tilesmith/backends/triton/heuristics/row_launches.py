"""Rows of a product that a second launch reduces: which kernels have that form, and when.

On an H200 the second launch and the product's way through memory took 1.9 us and 0.32 us for each
MB, half a microsecond less when it begins early: 512x512x512 2.2, 1024x1024x1024 3.4 and
2048x2048x2048 7.0 more than the product alone. Programs that wait for each other, and the counters
that are cleared for them, took 3.0 to 5.1 in bf16 (layer norm, rms norm, log-sum-exp of
1024x1024x1024 4.0, 3.0, 3.2), in fp32 2.5 to 63: they cannot have the product's own tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.backends.triton.heuristics.overlap.panels import do_many_wait
from tilesmith.ir.function import Function
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import walk_function
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

TWO_LAUNCHES = "two_launches"
LEAST_ROWS, LEAST_COLUMNS = 256, 512
"""Fewer rows were not timed; a usual tile of a product holds shorter ones whole."""
WHOLE_COLUMNS, WHOLE_ROWS = 512, 15
"""Rows of 16-bit products that programs of 16 rows hold whole, and how many of them for each
multiprocessor keep it busy: 2048x512x512 takes 11.6 us so, 12.1 in two launches."""
MOST_BYTES, CACHE_SHARE = 6 << 20, 0.4
"""Of the product between both launches: of 16-bit numbers, and of the cache for those of words."""


class RowLaunchForms(ScheduleRules):
    """Two launches instead of programs that wait: of small products, and of deep ones."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        return forms if kernel.facts.epilogue is None else [*forms, TWO_LAUNCHES]

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name != TWO_LAUNCHES:
            return super().may_be_first_form(name, kernel)
        function = kernel.outline.function
        made = [p.value for p in function.parameters if p.source.startswith("torch.empty(")]
        rows, columns = (int(size) for size in made[0].tensor.shape)
        num_bytes = rows * columns * made[0].tensor.dtype.itemsize
        has_words = _operand_size(function.before) > 2
        is_whole = columns <= WHOLE_COLUMNS and rows >= WHOLE_ROWS * self.target.num_sms
        is_small = rows < LEAST_ROWS or columns < LEAST_COLUMNS
        is_wanted = self.target.kind == "cuda" and not is_small and (has_words or not is_whole)
        most = CACHE_SHARE * self.device().l2_bytes if has_words else MOST_BYTES
        return is_wanted and (num_bytes <= most or do_many_wait(kernel))

    @override
    def form_rank(self, name: str) -> int:
        """Its time is measured: the model errs most between forms."""
        return -1 if name == TWO_LAUNCHES else super().form_rank(name)

    @override
    def least_gain(self, name: str) -> float:
        return 0.0 if name == TWO_LAUNCHES else super().least_gain(name)


def _operand_size(product: Function | None) -> int:
    ops = () if product is None else walk_function(product)
    return max((op.lhs.tile.dtype.itemsize for op in ops if isinstance(op, Dot)), default=0)
