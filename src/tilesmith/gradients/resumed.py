"""Going back through a call that ran elsewhere, a node of a graph: its launch is not run again.

Host code runs once more, without the launch: what that reads is known then, and what it wrote are
the results, as far as they were kept. The backward kernel computes again what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.containers import tensors_in
from tilesmith.gradients.launch_node import Backwards
from tilesmith.gradients.program import written_tensors
from tilesmith.gradients.source.kernel_text import Role
from tilesmith.runtime.arguments import compile_reader

Tensors = Sequence[torch.Tensor | None]


class TracedBackwards(Backwards, Protocol):
    """The backward kernels of a bound kernel, with its traces."""

    def find_variant(self, values: tuple[Any, ...]) -> Variant:
        """The trace that what host code computed fits."""
        ...


def resume(
    derived: TracedBackwards, leaves: Sequence[Any], gradients: Tensors, results: Tensors
) -> dict[torch.Tensor, torch.Tensor] | None:
    """The gradients of leaves; None where the launch has to run for them.

    ``gradients`` and ``results`` are those of the tensors that the kernel returns, None where there
    is none. The launch has to run where host code does something with what it wrote.
    """
    seen: list[tuple[Any, ...]] = []
    call = derived.bound.with_launcher(lambda launch: lambda *values: seen.append(values))
    returned = call(*leaves)
    if len(seen) != 1 or derived.bound.written_arguments:
        return None
    launch = _Launch(derived, seen[0])
    places = launch.places_of(list(tensors_in(returned)))
    if places is None:
        return None
    given = {name: gradients[i] for name, i in places.items()}
    kept = {name: results[i] for name, i in places.items()}
    pairs = launch.go_back(_present(given), _present(kept))
    return _through_host_code(pairs, leaves)


def _present(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


class _Launch:
    """One launch: what it read, and where it wrote."""

    def __init__(self, derived: TracedBackwards, values: tuple[Any, ...]) -> None:
        self._derived = derived
        self._variant = derived.find_variant(values)
        trace = self._variant.trace
        self._function = trace.function
        parameters = [p for p in trace.function.parameters if not p.is_zeroed]
        names = derived.bound.definition.split.captured
        read = compile_reader(names, [p.source for p in parameters], trace.constants)
        self._values: dict[str, Any] = dict(zip((p.value.name for p in parameters), read(*values)))
        self._names = {p.source: p.value.name for p in parameters}

    def places_of(self, outputs: Sequence[torch.Tensor]) -> dict[str, int] | None:
        """Which output each tensor is that was written; None where others depend on it."""
        written = [value.name for value in written_tensors(self._function)]
        places = {
            name: i
            for name in written
            for i, output in enumerate(outputs)
            if self._values[name] is output
        }
        floats = {i for i, output in enumerate(outputs) if output.is_floating_point()}
        return places if floats <= set(places.values()) else None

    def go_back(
        self, given: Mapping[str, torch.Tensor], kept: Mapping[str, torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Tensors that were read, with their gradients."""
        values = self._values
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        wanted = frozenset(name for name, value in tensors.items() if value.requires_grad)
        if not given or not wanted:
            return []
        saved = frozenset(kept)
        made = self._derived.compiled(self._variant, wanted, frozenset(given), saved)
        known = {**values, **kept}
        args = [
            given[a.source] if a.role is Role.COTANGENT else _plain(known[self._names[a.source]])
            for a in made.source.arguments
        ]
        found = made.kernel(*args) if made.source.gradients else ()
        found = found if isinstance(found, tuple) else (found,)
        read = [tensors[self._names[source]] for source in made.source.gradients]
        return list(zip(read, found))


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _through_host_code(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[Any]
) -> dict[torch.Tensor, torch.Tensor]:
    """From the tensors of a launch to those that host code made them of."""
    wanted = [leaf for leaf in tensors_in(leaves) if leaf.requires_grad]
    if not pairs or not wanted:
        return {}
    tensors, gradients = zip(*pairs)
    found: Any = torch.autograd.grad(tensors, wanted, gradients, allow_unused=True)
    return {leaf: grad for leaf, grad in zip(wanted, found) if grad is not None}
