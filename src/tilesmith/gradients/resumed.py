"""Going back through a call that ran elsewhere, a node of a graph: its launch is not run again.

Host code runs once more, without the launch: what that reads is known then, and what it wrote are
the results, as far as they were kept. The backward kernel computes again what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.containers import tensors_in
from tilesmith.gradients.launch_node import Bound, CompiledBackward
from tilesmith.gradients.program import written_tensors
from tilesmith.gradients.source.kernel_text import Role
from tilesmith.runtime.arguments import compile_reader

Tensors = Sequence[torch.Tensor | None]


class Backwards(Protocol):
    """The backward kernels of a bound kernel."""

    bound: Bound

    def find_variant(self, values: tuple[Any, ...]) -> Variant:
        """The trace that what host code computed fits."""
        ...

    def compiled(
        self,
        variant: Variant,
        wanted: frozenset[str],
        given: frozenset[str],
        saved: frozenset[str] | None = None,
    ) -> CompiledBackward:
        """The one for some gradients and cotangents."""
        ...


def resume(
    derived: Backwards, leaves: Sequence[Any], gradients: Tensors, results: Tensors
) -> dict[torch.Tensor, torch.Tensor] | None:
    """The gradients of leaves; None where the launch has to run for them.

    ``gradients`` and ``results`` are those of the tensors that the kernel returns, None where there
    is none. The launch has to run where host code does something with what it wrote.
    """
    seen: list[tuple[Any, ...]] = []
    with torch.enable_grad():
        returned = derived.bound.call_with(
            lambda launch: lambda *values: seen.append(values), tuple(leaves)
        )
    outputs = list(tensors_in(returned))
    if len(seen) != 1 or derived.bound.written_arguments:
        return None
    variant = derived.find_variant(seen[0])
    function = variant.trace.function
    parameters = [p for p in function.parameters if not p.is_zeroed]
    names = derived.bound.definition.split.captured
    read = compile_reader(names, [p.source for p in parameters], variant.trace.constants)
    values = dict(zip((p.value.name for p in parameters), read(*seen[0])))
    places = {
        value.name: outputs.index(values[value.name])
        for value in written_tensors(function)
        if any(values[value.name] is output for output in outputs)
    }
    floats = [i for i, output in enumerate(outputs) if output.is_floating_point()]
    if set(floats) - set(places.values()):
        return None
    given = {name: gradients[i] for name, i in places.items() if gradients[i] is not None}
    kept = {name: results[i] for name, i in places.items() if results[i] is not None}
    wanted = {
        name: value
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and value.requires_grad
    }
    if not given or not wanted:
        return {}
    made = derived.compiled(variant, frozenset(wanted), frozenset(given), frozenset(kept))
    known = {p.source: kept.get(p.value.name, values[p.value.name]) for p in parameters}
    args = [
        given[a.source] if a.role is Role.COTANGENT else _plain(known[a.source])
        for a in made.source.arguments
    ]
    found = made.kernel(*args) if made.source.gradients else ()
    found = found if isinstance(found, tuple) else (found,)
    pairs = [(known[source], grad) for source, grad in zip(made.source.gradients, found)]
    return _through_host_code(pairs, leaves)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _through_host_code(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[Any]
) -> dict[torch.Tensor, torch.Tensor]:
    """From the tensors of a launch to those that host code made them of."""
    wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not pairs or not wanted:
        return {}
    tensors, gradients = zip(*pairs)
    found = torch.autograd.grad(tensors, wanted, gradients, allow_unused=True)
    return {leaf: grad for leaf, grad in zip(wanted, found) if grad is not None}
