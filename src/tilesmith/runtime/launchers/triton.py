"""Loads an artifact's module, lets Triton compile it once, then calls the compiled kernel directly.

Triton's own launch path re-derives the specialization from all arguments; here it is decided by the
few things that may change between calls of one artifact (alignment of pointers, divisibility of
runtime integers).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, cast

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact, TensorDescription, load_module, write_module
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.runtime.arguments import NOT_READ, LaunchOptions, refuse, refuse_without_memory
from tilesmith.runtime.device import get_num_sm
from tilesmith.runtime.launchers.gpu_call import CallText

COMPILE, LAUNCH = topic_log("compile"), topic_log("launch")
MAX_KEPT = 512
"""Addresses repeat, since allocators reuse memory; a table that still grows is emptied."""


def _descriptors(artifact: Artifact) -> list[Descriptors]:
    if not artifact.descriptions:
        return []
    from triton.tools.tensor_descriptor import TensorDescriptor

    names = [parameter.name for parameter in artifact.parameters]
    return [Descriptors(item, names, TensorDescriptor) for item in artifact.descriptions]


def _check_room(artifact: Artifact, device: torch.device) -> None:
    """Raise where programs would wait for others that find no place to run."""
    if not artifact.least_sms or get_num_sm(device) >= artifact.least_sms:
        return
    raise errors.InvalidConfig(
        problem=f"its programs wait for each other, and {device} has {get_num_sm(device)} "
        "multiprocessors",
        expected=f"{artifact.least_sms} multiprocessors or more",
        fix="bind the kernel for this device, or leave structure out of the config",
    )


def _stream_finder() -> Callable[[int], int]:
    """Tells the current stream of a device as a number; torch would make an object for it."""
    from triton.runtime import driver

    return cast("Any", driver.active).get_current_stream


class TritonLauncher:
    """Launches one artifact; ``launch`` is a function of the captured values."""

    def __init__(
        self,
        artifact: Artifact,
        captured: Sequence[str],
        constants: Sequence[Any],
        options: LaunchOptions,
        without_descriptors: Callable[[], Callable[..., None]] | None = None,
    ) -> None:
        _check_room(artifact, options.device)
        self.artifact = artifact
        self._without_descriptors = without_descriptors
        """Makes the launcher of the same kernel with plain pointers, for misaligned tensors."""
        self.path = write_module(artifact, options.cache_dir)
        self._device = options.device
        self._function = getattr(load_module(self.path), artifact.name)
        self._compiled: dict[Hashable, Any] = {}
        self._ready: dict[Hashable, tuple[Any, Any, Any]] = {}
        """What a launch needs of what was compiled."""
        self._descriptors = _descriptors(artifact)
        self._scope: dict[str, Any] = {}
        self.launch: Callable[..., None] = self._make_launch(captured, constants, options)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """What Triton has compiled for the calls so far."""
        return tuple(self._compiled.values())

    @cached_property
    def _fallback(self) -> Callable[..., None]:
        if self._without_descriptors is None:
            raise errors.InternalError(problem="a misaligned tensor in a kernel with descriptors")
        return self._without_descriptors()

    def _make_launch(
        self, captured: Sequence[str], constants: Sequence[Any], options: LaunchOptions
    ) -> Callable[..., None]:
        text = CallText(self.artifact, captured, options)
        self._scope |= {
            **text.scope,
            "__constants__": tuple(constants),
            "torch": torch,
            "__kernels": self._ready,
            "__first": self._first_launch,
            "__plain": self._launch_plain,
            "__elsewhere": self._launch_elsewhere,
            "__refuse": lambda *values: refuse(self.artifact.parameters, values, self._device),
            "__not_read": NOT_READ,
            "__check_memory": lambda *values: refuse_without_memory(
                self.artifact.parameters, values, self._device
            ),
            "__current_device": torch.cuda.current_device,
        }
        for position, descriptors in enumerate(self._descriptors):
            self._scope[f"__kept{position}"] = descriptors.kept
            self._scope[f"__keep{position}"] = descriptors.keep
        exec("\n".join(text.lines()), self._scope)
        return self._scope["__launch"]

    def _launch_plain(self, *values: Any) -> None:
        """Launch with plain pointers, where a descriptor cannot be made of a tensor."""
        self._fallback(*values)

    def _launch_elsewhere(self, *values: Any) -> None:
        """The caller's current device is another one."""
        with torch.cuda.device(self._device):
            self.launch(*values)

    def _first_launch(
        self,
        key: Hashable,
        grid: tuple[int, ...],
        arguments: tuple[Any, ...],
        constexprs: tuple[int, ...],
    ) -> None:
        name, watch = self.artifact.kernel_name, Stopwatch()
        LAUNCH.info("%s: first launch on %s, programs %s", name, self._device, grid)
        described = [item.construct(*arguments) for item in self._descriptors]
        names = [name for name, _ in self.artifact.constexprs]
        try:
            with torch.cuda.device(self._device):
                compiled = self._function[grid](
                    *arguments, *described, **dict(zip(names, constexprs)), **self.artifact.options
                )
        except Exception as error:
            raise errors.TritonError.wrapping(
                error, function=self.artifact.name.lstrip("_"), path=str(self.path)
            ) from error
        COMPILE.info("%s: Triton and first launch %s", name, watch.lap())
        self._compiled[key] = compiled
        self._scope["__stream"] = _stream_finder()
        self._ready[key] = (compiled.run, compiled.function, compiled.packed_metadata)


class Address:
    """Stands for a tensor in a descriptor: Triton asks for its address only."""

    __slots__ = ("data_ptr",)

    def __init__(self, address: int) -> None:
        self.data_ptr = lambda: address


class Descriptors:
    """Descriptors of one parameter; ``kind`` is Triton's class of them.

    Triton checks what it is given, which takes longer than all else about a launch: descriptors
    that passed serve again wherever address and sizes are the same. No tensor is kept alive.
    """

    def __init__(self, description: TensorDescription, names: Sequence[str], kind: Any) -> None:
        text = f"lambda {', '.join(names)}: {description.call}"
        self.construct = eval(text, {"TensorDescriptor": kind})
        """A descriptor of the tensor itself, made from all parameters."""
        self.kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, arguments: Sequence[Any]) -> Any:
        """The descriptor for these parameters, from now on also found in ``kept``."""
        made = self.construct(*arguments)
        made.base = Address(made.base.data_ptr())
        if len(self.kept) >= MAX_KEPT:
            self.kept.clear()
        self.kept[key] = made
        return made
