"""Tensors with borders: what a kernel writes outside is seen, and what it reads there shows.

Every tensor that a kernel is given, and every one that host code makes meanwhile, lies inside a
larger piece of memory. All of it that nobody has set holds one byte: first such that floats are NaN
and indices -1, then zeros. A write outside changes a border. A read outside, or of memory that was
never set, changes the results, unless it does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from typing_extensions import override

BORDER = 1 << 14
"""Bytes on each side; a multiple of all alignments that code asks for."""
ALIGNED = 256
FILLS = (0xFF, 0x00)
PITCH = 64
"""Elements between the rows of a tensor whose rows have borders, too."""
_UNSET = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_SET = {
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"),
    *("full", "full_like", "new_full", "clone"),
}
Run = Callable[..., Any]


@dataclass
class Fence:
    """One tensor inside a larger piece of memory."""

    name: str
    whole: torch.Tensor
    """All bytes."""
    outside: torch.Tensor
    """True for bytes that are of no element."""
    fill: int

    @property
    def broken(self) -> int:
        """How many bytes outside of the tensor have another value now."""
        return int(((self.whole != self.fill) & self.outside).sum())


@dataclass
class Yard:
    """All fences of one run."""

    fill: int
    fences: list[Fence] = field(default_factory=list[Fence])

    def fenced(
        self, tensor: torch.Tensor, name: str, *, keeps: bool = True, pitch: int = 0
    ) -> torch.Tensor:
        """The same within borders, with its values if it ``keeps`` them."""
        if tensor.layout != torch.strided or not tensor.dtype.itemsize:
            return tensor
        sizes, strides, item = list(tensor.shape), list(tensor.stride()), tensor.element_size()
        if pitch and len(sizes) > 1 and tensor.is_contiguous() and tensor.numel():
            strides = _pitched(sizes, pitch)
        length = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
        num_bytes = max(length, 0) * item if tensor.numel() else 0
        total = 2 * BORDER + -(-num_bytes // ALIGNED) * ALIGNED
        whole = torch.full((total,), self.fill, dtype=torch.uint8, device=tensor.device)
        elements, begin = whole.view(tensor.dtype), BORDER // item
        inner = elements.as_strided(sizes, strides, begin)
        outside = torch.ones_like(whole, dtype=torch.bool)
        if any(size > 1 and not stride for size, stride in zip(sizes, strides)):
            # Elements that share their memory can only be copied as they lie there.
            source = tensor.as_strided((length,), (1,))
            elements.narrow(0, begin, length).copy_(source)
            outside.narrow(0, BORDER, num_bytes).fill_(False)
        else:
            places = [*sizes, item], [*(stride * item for stride in strides), 1]
            outside.as_strided(*places, BORDER).fill_(False)
            if keeps:
                inner.copy_(tensor)
        self.fences.append(Fence(name, whole, outside, self.fill))
        if tensor.is_neg() or tensor.is_conj():
            return tensor
        return inner.detach().requires_grad_(tensor.requires_grad)

    @property
    def broken(self) -> list[str]:
        """What was written outside."""
        found = ((fence.name, fence.broken) for fence in self.fences)
        return [f"{count} bytes beside {name}" for name, count in found if count]


def _pitched(sizes: list[int], pitch: int) -> list[int]:
    """Strides of rows with a border: whole pitches, at least half of one free."""
    strides = [-(-(sizes[-1] + pitch // 2) // pitch) * pitch, 1]
    for size in reversed(sizes[1:-1]):
        strides.insert(0, strides[0] * size)
    return strides


class Borders(TorchDispatchMode):
    """Tensors that are made on a device meanwhile get borders."""

    def __init__(self, yard: Yard, device: str) -> None:
        super().__init__()
        self._yard = yard
        self._device = torch.device(device).type
        self.made = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _UNSET | _SET or type(found) is not torch.Tensor:
            return found
        if found.device.type != self._device:
            return found
        self.made += 1
        return self._yard.fenced(found, f"{name} {self.made}", keeps=name in _SET)


@dataclass(frozen=True)
class Findings:
    """What running a kernel beside borders has shown; empty lists are good."""

    written: tuple[str, ...] = ()
    """Outside of tensors."""
    depends: bool = False
    """Whether results depend on what nobody has set."""
    differs: bool = False
    """Whether results differ between runs with the same surroundings."""
    wrong: str = ""
    """Against the reference."""
    num_fences: int = 0
    """Tensors with borders, in one run."""


def examine(
    run: Run,
    args: tuple[Any, ...],
    check: Callable[[Any], object] | None = None,
    *,
    device: str = "cpu",
    pitch: int = 0,
    is_ordered: bool = True,
) -> Findings:
    """Run a kernel twice beside NaN and once beside zeros.

    ``is_ordered``: whether its results are the same bits in every run; without, only the check
    against the reference tells whether surroundings matter.
    """
    seen: list[list[bytes]] = []
    written: dict[str, None] = {}
    wrong, yard = "", Yard(FILLS[0])
    for fill in (*FILLS, FILLS[0]) if is_ordered else FILLS:
        yard = Yard(fill)
        given = fenced_args(args, yard, pitch)
        with Borders(yard, device):
            found = run(*given)
        _synchronize(device)
        written |= dict.fromkeys(yard.broken)
        seen.append(_bits((found, given)))
        if check is not None and not wrong:
            try:
                check(found)
            except AssertionError as error:
                wrong = f"beside bytes {fill:#x}: {str(error).strip().splitlines()[0]}"
    differs = is_ordered and seen[0] != seen[2]
    depends = is_ordered and not differs and seen[0] != seen[1]
    return Findings(tuple(written), depends, differs, wrong, len(yard.fences))


def fenced_args(args: tuple[Any, ...], yard: Yard, pitch: int = 0) -> tuple[Any, ...]:
    """Arguments whose tensors have borders; those that are one tensor stay one."""
    known: dict[int, torch.Tensor] = {}

    def fenced(value: Any) -> Any:
        if type(value) is not torch.Tensor:
            return value
        if id(value) not in known:
            known[id(value)] = yard.fenced(value, f"argument {len(known)}", pitch=pitch)
        return known[id(value)]

    return tuple(tree_map(fenced, list(args)))


def _bits(found: Any) -> list[bytes]:
    leaves = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    flat = (leaf.detach().cpu().contiguous().flatten() for leaf in leaves)
    return [bytes(leaf.view(torch.uint8).numpy().tobytes()) for leaf in flat]


def _synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
