"""A compiler that has forgotten to order a program's loads after its stores, and a device to match.

Only tests can have either: no setting, no environment variable and no argument leads here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.compiler import specialization as compiler
from tilesmith.compiler.lowering import Stage
from tilesmith.compiler.pipeline import SCHEDULED, STANDARD
from tilesmith.interpreter.effects import resolve_access
from tilesmith.interpreter.frame import Frame, prepare_function
from tilesmith.interpreter.run import EVALUATORS, run_prepared
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Yield
from tilesmith.ir.ops.memory import ProgramBarrier, Store
from tilesmith.jit.kernel import Kernel
from tilesmith.schedule.config import Config

ORDERING = ("forward_stored_values", "order_memory")


@contextmanager
def without_memory_order() -> Iterator[None]:
    """Kernels bound inside neither use stored values in place of loads nor have barriers."""
    with (
        mock.patch.object(compiler, "STANDARD", _without_ordering(STANDARD, len(ORDERING))),
        mock.patch.object(compiler, "SCHEDULED", _without_ordering(SCHEDULED, 1)),
    ):
        yield


def _without_ordering(stage: Stage, dropped: int) -> Stage:
    passes = tuple(step for step in stage.passes if step.name not in ORDERING)
    assert len(passes) == len(stage.passes) - dropped
    return replace(stage, passes=passes)


class LateStores:
    """Runs programs as threads do: of each store some part is seen after a barrier only."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._pending: list[Callable[[], None]] = []
        self._program_ends: set[Operation] = set()

    def run(self, kernel: Kernel, args: tuple[Any, ...], config: Config) -> dict[str, torch.Tensor]:
        """All tensors of one launch, by parameter."""
        captured = kernel.bind(args).capture_launch(args, config)
        function = captured.variant.function
        names = [parameter.value.name for parameter in function.parameters]
        launch = dict(zip(names, captured.read([p.source for p in function.parameters])))
        for name in set(tensors_written(function)) - set(kernel.signature.parameters):
            # Memory from an allocator holds whatever was there before.
            launch[name].normal_(generator=self._generator)
        blocks = config["block_sizes"]
        sizes = {b.name: blocks[b.slot] for b in function.blocks if b.slot is not None}
        evaluators = {
            Store: self._store,
            ProgramBarrier: self._barrier,
            Grid: self._grid,
            Yield: self._yield,
        }
        run_prepared(replace(prepare_function(function), evaluators=evaluators), launch, sizes)
        return launch

    def _grid(self, op: Grid, frame: Frame) -> None:
        self._program_ends.add(op.body.ops[-1])
        EVALUATORS[Grid](op, frame)

    def _yield(self, op: Yield, frame: Frame) -> None:
        if op in self._program_ends:
            self._flush()

    def _barrier(self, op: ProgramBarrier, frame: Frame) -> None:
        self._flush()

    def _flush(self) -> None:
        for arrive in self._pending:
            arrive()
        self._pending.clear()

    def _store(self, op: Store, frame: Frame) -> None:
        access = resolve_access(op, op.value.tile.shape, frame)
        if access is None:
            return
        tensor, value = frame.values[op.tensor], frame.tensor(op.value).expand(access.lengths)
        is_late = torch.rand(access.lengths, generator=self._generator) < 0.5
        access.write(tensor, torch.where(is_late, access.read(tensor).clone(), value))
        self._pending.append(lambda: access.write(tensor, value))
