"""GPU code without a GPU: compiled with the words of a launch, and run by the PTX machine.

Tensors are those of the host, so a kernel is bound with ``target="cuda:90"`` to tensors of the CPU,
unless plain calls are for the machine, too. Warps take turns in another way at each launch, and
copies happen early or late.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

import torch

from tests.fuzzing.unlaunched import GPU, compiled_for
from tilesmith.jit import kernel as kernels
from tilesmith.jit.kernel import Kernel
from tilesmith.runtime.device import target_of
from tilesmith.runtime.launchers import triton as launching
from tilesmith.targets import Target, parse_target
from tools.ptx_machine.launching import Launcher

ORDERS = ("together", "apart")
_launches = [count()]
"""Numbers of launches, which decide about turns."""


def _launch(
    self: Any,
    key: Hashable,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constexprs: tuple[int, ...],
) -> None:
    """In the place of every launch: none is kept as ready, since each needs the tensors."""
    if key not in self._compiled:
        compiled = compiled_for(self, arguments)
        compiled.ptx_launcher = Launcher(compiled)
        self._compiled[key] = compiled
    described = [item.construct(*arguments) for item in self._descriptors]
    values = [*arguments, *described, *constexprs]
    number = next(_launches[0])
    launch = self._compiled[key].ptx_launcher.launch
    launch(grid, values, order=ORDERS[number % 3 > 0], seed=number, late=number % 2 == 0)


def _num_sms(device: Any) -> int:
    del device
    return parse_target(GPU).num_sms


def run_ptx() -> None:
    """From now on, in this process."""
    launching.get_num_sm = _num_sms
    launching.TritonLauncher._first_launch = _launch


@contextmanager
def running_ptx() -> Iterator[None]:
    """Inside of it, beginning with the same turns each time."""
    _launches[0] = count()
    with (
        mock.patch.object(launching, "get_num_sm", _num_sms),
        mock.patch.object(launching.TritonLauncher, "_first_launch", _launch),
    ):
        yield


def _chip(device: torch.device) -> Target:
    """In the place of the target of a device."""
    return parse_target(GPU) if device.type == "cpu" else target_of(device)


@contextmanager
def calls_for_a_gpu() -> Iterator[None]:
    """Inside of it plain calls with tensors of the CPU run code for a GPU.

    That is so of kernels that are bound to their arguments for the first time here; when it ends
    they forget them.
    """
    bound: dict[int, Kernel[..., Any]] = {}
    bind_new = Kernel._bind_new

    def bind(self: Kernel[..., Any], *given: Any, **named: Any) -> Any:
        bound[id(self)] = self
        return bind_new(self, *given, **named)

    with (
        mock.patch.object(kernels, "target_of", _chip),
        mock.patch.object(Kernel, "_bind_new", bind),
    ):
        yield
    for kernel in bound.values():
        kernel.reset()
