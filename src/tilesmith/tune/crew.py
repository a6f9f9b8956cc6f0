"""The processes of one search: a builder and, for each case, a runner.

They start in the background at once, before anything is known but where the kernel runs: until they
have imported what they need, the search can be planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from typing_extensions import Self

from tilesmith.tune.benches import RunnerBench
from tilesmith.tune.builds import start_builder
from tilesmith.tune.case import Case
from tilesmith.tune.deadline import Deadline
from tilesmith.tune.options import TuneOptions


class Crew:
    """Who builds and who runs candidates."""

    def __init__(self, cases: Sequence[Case], options: TuneOptions, deadline: Deadline) -> None:
        environment = {"TILESMITH_CACHE_DIR": str(options.cache_dir)}
        is_gpu = cases[0].bound.target.is_gpu
        self.benches: list[RunnerBench] = []
        with ExitStack() as stack:
            # Runners first: they take longest to come up.
            for case in cases:
                device = str(case.bound.device)
                bench = RunnerBench(environment, deadline, regime=options.regime, device=device)
                stack.callback(bench.close)
                self.benches.append(bench)
            self.builder = start_builder(
                options.build_jobs, options.build_timeout_s, environment, is_gpu=is_gpu
            )
            stack.callback(self.builder.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
