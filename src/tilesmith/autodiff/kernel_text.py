"""The module that holds a backward kernel: source to read, to keep, and to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilesmith.autodiff.outline import Outline
from tilesmith.autodiff.reverse import Reversal
from tilesmith.autodiff.scope import INDENT, Names
from tilesmith.ir.function import Function
from tilesmith.ir.types import Value

NAME = "backward_kernel"
_HEAD = '''"""The gradient of `{name}`, made from it."""

from __future__ import annotations

import tilesmith
import tilesmith.language as hl
import torch


'''
WIDEST = 1 << 20


@dataclass(frozen=True)
class BackwardText:
    """Source of a backward kernel, and what its parameters are, in order."""

    source: str
    loaded: tuple[Value, ...]
    """Tensors that it reads, then numbers."""
    numbers: tuple[Value, ...]
    gradients: tuple[Value, ...]
    """Tensors whose gradients it reads or adds to."""
    dtype: str
    """The element type of gradients."""


def write_backward(
    outline: Outline, wanted: set[Value], settings: Mapping[str, object]
) -> BackwardText:
    """The backward kernel of a function, for the gradients of some of its tensors."""
    names, function = Names(), outline.function
    names.fresh(NAME)
    registered = [names.fresh(size) for size in outline.registered.values()]
    assert registered == list(outline.registered.values())
    reversal = Reversal(outline, names, wanted)
    body = reversal.write()
    sizes = [_registration(function, block, size) for block, size in outline.registered.items()]
    primal = reversal.primal
    tensors = [*primal.loaded.values(), *reversal.gradients.values()]
    parameters = [f"{tensor}: torch.Tensor" for tensor in tensors]
    numbers = [f"{name}: {_kind(value)}" for value, name in primal.scalars.items()]
    count = len(primal.loaded)
    listed = [*parameters[:count], *numbers, *parameters[count:]]
    options = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    lines = [
        f"@tilesmith.kernel({options})",
        f"def {NAME}({', '.join(listed)}) -> None:",
        *(INDENT + line for line in [*sizes, *(body or ["pass"])]),
    ]
    return BackwardText(
        _HEAD.format(name=outline.name) + "\n".join(lines) + "\n",
        tuple(primal.loaded),
        tuple(primal.scalars),
        tuple(reversal.gradients),
        reversal.dtype,
    )


def _kind(value: Value) -> str:
    return "float" if value.tile.dtype.is_float else "int"


def _registration(function: Function, block: str, name: str) -> str:
    known = function.block(block)
    most = known.high or known.extent or WIDEST
    return f"{name} = hl.register_block_size({known.low}, {max(most, known.low)})"
