"""Calls with ``DTensor`` arguments: the kernel runs on the shard that this process has.

Gradients follow: what all processes have whole, while others have shards, gets the sum of what
each process found for it.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import torch

from tilesmith.diagnostics import operator_errors as errors
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.shards.host_runs import run_host, shadow
from tilesmith.jit.shards.plan import NotShardedError, shard_results


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a ``DTensor``; whoever has one has loaded its module."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


class _Kernel(Protocol):
    definition: KernelDefinition

    @property
    def staged(self) -> object | None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class _Result:
    """A tensor that is returned."""

    shape: torch.Size
    strides: tuple[int, ...]
    placements: tuple[Any, ...]


class ShardedCalls:
    """Calls of one kernel with tensors that are spread over processes."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        self._known: dict[Hashable, list[_Result]] = {}

    def call(self, args: tuple[Any, ...]) -> Any:
        """Run on the shards of this process; the result is sharded like the arguments."""
        tensors = list(tensors_in(args))
        mesh = self._mesh(tensors)
        forms = iter(self._results(args, tensors))
        shards = [_shard_of(tensor, tensors) for tensor in tensors]
        given = iter(shards)
        result = self._kernel(*map_tensors(args, lambda _: next(given)))

        def distributed(tensor: torch.Tensor) -> Any:
            form = next(forms)
            for shard, whole in zip(shards, tensors):
                if tensor is shard:
                    return whole
            options = {"run_check": False, "shape": form.shape, "stride": form.strides}
            kind: Any = type(tensors[0])
            return kind.from_local(tensor, mesh, form.placements, **options)

        return map_tensors(result, distributed)

    def _mesh(self, tensors: Sequence[Any]) -> Any:
        for tensor in tensors:
            if not is_distributed(tensor):
                self._refuse("it is given DTensors and plain tensors")
            if tensor.device_mesh != tensors[0].device_mesh:
                self._refuse("its arguments are on different meshes")
            for placement in tensor.placements:
                if placement.is_partial():
                    self._refuse("an argument is a Partial sum")
                if not (placement.is_replicate() or type(placement).__name__ == "Shard"):
                    self._refuse(f"an argument has the placement {placement}")
        return tensors[0].device_mesh

    def _results(self, args: tuple[Any, ...], tensors: Sequence[Any]) -> list[_Result]:
        key = _key(args, tensors)
        found = None if key is None else self._known.get(key)
        if found is None:
            found = self._planned(args, tensors)
            if key is not None:
                self._known[key] = found
        return found

    def _planned(self, args: tuple[Any, ...], tensors: Sequence[Any]) -> list[_Result]:
        if self._kernel.staged is not None:
            self._refuse("it has several launches")
        whole = map_tensors(args, shadow)
        returned = list(
            tensors_in(run_host(self._kernel.definition, whole, is_watched=False).result)
        )
        dims: list[list[int | None]] = []
        try:
            for number in range(tensors[0].device_mesh.ndim):
                places = [tensor.placements[number] for tensor in tensors]
                sharded = {i: place.dim for i, place in enumerate(places) if place.is_shard()}
                found = shard_results(self._kernel.definition, whole, sharded) if sharded else None
                dims.append(found or [None for _ in returned])
        except NotShardedError as problem:
            self._refuse(str(problem))
        return [
            _Result(tensor.shape, tensor.stride(), _placements(along))
            for tensor, along in zip(returned, zip(*dims))
        ]

    def _refuse(self, problem: str) -> NoReturn:
        raise errors.NotOnShards(function=self._kernel.definition.name, problem=problem)


def _shard_of(tensor: Any, others: Sequence[Any]) -> torch.Tensor:
    """What this process has. The gradient of what is whole here is then part of a sum."""
    if not tensor.requires_grad:
        return tensor.to_local()
    partial = sys.modules["torch.distributed.tensor"].Partial()
    wanted = [
        partial
        if placement.is_replicate() and any(other.placements[i].is_shard() for other in others)
        else placement
        for i, placement in enumerate(tensor.placements)
    ]
    return tensor.to_local(grad_placements=wanted)


def _placements(dims: Iterable[int | None]) -> tuple[Any, ...]:
    module = sys.modules["torch.distributed.tensor"]
    return tuple(module.Replicate() if dim is None else module.Shard(dim) for dim in dims)


def _key(args: tuple[Any, ...], tensors: Sequence[Any]) -> Hashable | None:
    forms = tuple((t.shape, t.stride(), t.dtype, t.placements) for t in tensors)
    others = tuple(None if isinstance(arg, torch.Tensor) else arg for arg in args)
    try:
        hash(others)
    except TypeError:
        return None
    return forms, others, tensors[0].device_mesh
