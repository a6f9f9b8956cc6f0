"""The facts of one function as data, with short names of them, and as text in the user's names.

``fingerprint`` is the same for equal facts, ``shape_class`` for kernels of about the same shape.
Lines of the source do not matter. In the fingerprint a runtime size stands by its name, since one
kernel serves all its values; the shape class has what it is known to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.accesses import AccessFact, Traffic, tensor_traffic
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import AccumulatorFact, MatmulFact, ReductionFact
from tilesmith.schedule.facts.work import ELEMENTWISE, MATMUL, REDUCTION, TRANSCENDENTAL, WorkFact

NO_WORK = WorkFact(())
WIDTH_OF_WHAT = 100
"""Longer descriptions push their own line only, not all lines."""
_ROW_FORMS = {"rollable": "whole or in chunks", "persistent": "whole", "tile": "tile by tile"}


@dataclass(frozen=True)
class MatmulWithReductionEpilogueFact:
    """One matmul whose untiled output axis is then reduced."""

    matmul: MatmulFact
    reduction: ReductionFact


@dataclass(frozen=True)
class AttentionFact:
    """Two chained matmuls in one loop: the second contracts the first one's output axis."""

    scores: MatmulFact
    values: MatmulFact


@dataclass(frozen=True)
class PointwiseFact:
    """A function without matmuls, reductions and atomics."""

    total: int | None
    """Elements over all tiled axes, where known."""
    slab: int
    """Untiled elements per tiled element."""
    storage_bytes: int
    """Bytes moved per element, over all accesses."""
    contiguous_blocks: tuple[str, ...]
    """Blocks along which some access has stride 1."""
    num_transcendentals: int


@dataclass(frozen=True, repr=False)
class Facts:
    """Everything known about a function. ``print(facts)`` shows it in the user's names."""

    matmuls: tuple[MatmulFact, ...]
    reductions: tuple[ReductionFact, ...]
    accesses: tuple[AccessFact, ...]
    pointwise: PointwiseFact | None
    epilogue: MatmulWithReductionEpilogueFact | None
    attention: AttentionFact | None
    accumulators: tuple[AccumulatorFact, ...] = ()
    axes: tuple[Axis, ...] = ()
    """All axes of loops and accesses, in the order in which they occur."""
    work: WorkFact = NO_WORK
    name: str = ""
    """The function's."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """Runtime sizes that were given, by parameter name."""
    recollect: Callable[[Mapping[str, int]], Facts] | None = field(default=None, compare=False)
    """Derives the facts again, for other runtime sizes."""

    @property
    def flops(self) -> dict[str, float] | None:
        """Operations in matrix products by rate class (``bf16``, ``tf32``, ...), where known."""
        return self.work.operations(MATMUL)

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes read and written at least."""
        return tensor_traffic(self.accesses)

    @property
    def bytes(self) -> int | None:
        """Bytes that must be moved: every tensor element that is used, once each way."""
        return self.traffic.total

    def with_sizes(self, sizes: Mapping[str, int]) -> Facts:
        """The facts of a launch with these runtime sizes, by parameter name."""
        if self.recollect is None or all(self.sizes.get(k) == v for k, v in sizes.items()):
            return self
        return self.recollect({**self.sizes, **sizes})

    def shape_class(self) -> str:
        """A short text that kernels of about the same shape share: extents as powers of two.

        Example:
            ``tile_m=4096 tile_n=4096 tile_k=512; x:bf16 y:bf16 out:bf16``
        """
        axes = [f"{_label(axis)}={_rounded(axis)}" for axis in self.axes]
        tensors = dict.fromkeys(f"{fact.tensor}:{fact.dtype}" for fact in self.accesses)
        return f"{' '.join(axes)}; {' '.join(tensors)}"

    def fingerprint(self) -> str:
        """16 hexadecimal digits that equal facts share; runtime sizes stand by their names."""
        axes = [
            f"axis {_label(axis)} {axis.extent if axis.length.is_exact else axis.length.name}"
            for axis in self.axes
        ]
        products = [
            f"matmul {[str(axis.dim) for axis in fact.axes]} {fact.lhs_dtype} {fact.rhs_dtype}"
            f" {fact.acc_dtype} {fact.precision} {fact.loop}"
            for fact in self.matmuls
        ]
        sums = [
            f"reduction {fact.axis.dim} {fact.kind} {fact.functions} {fact.dtype} {fact.is_reread}"
            for fact in self.reductions
        ]
        carried = [
            f"accumulator {[str(axis.dim) for axis in fact.axes]} {fact.dtype} {fact.loop}"
            for fact in self.accumulators
        ]
        accesses = [
            f"{fact.kind} {fact.slot} {fact.tensor} {fact.dtype} {[str(dim) for dim in fact.shape]}"
            f" {fact.strides} {[(index.kind, str(index.dim)) for index in fact.patterns]}"
            f" {fact.has_mask}"
            for fact in self.accesses
        ]
        lines = [*axes, *products, *sums, *carried, *accesses]
        return sha256("\n".join(lines).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return _render(self)

    __repr__ = __str__


def _label(axis: Axis) -> str:
    is_whole = axis.dim.constant is not None and not axis.dim.is_one
    return ":" if is_whole else str(axis)


def _rounded(axis: Axis) -> str:
    return "?" if axis.extent is None else str(next_power_of_2(axis.extent) if axis.extent else 0)


@dataclass(frozen=True)
class _Row:
    """One line: the kind of fact, what it is about, more about it, and where it stands."""

    kind: str
    what: str
    details: tuple[str, ...]
    loc: SourceLocation = UNKNOWN

    @property
    def about(self) -> str:
        return ", ".join(filter(None, self.details))

    @property
    def place(self) -> str:
        return f"({self.loc})" if self.loc.line else ""


def _render(facts: Facts) -> str:
    rows = [
        *map(_matmul, facts.matmuls),
        *map(_reduction, facts.reductions),
        *_composed(facts),
        *_pointwise(facts.pointwise),
        *map(_accumulator, facts.accumulators),
        *map(_access, facts.accesses),
    ]
    kinds = max((len(row.kind) for row in rows), default=len("total"))
    whats = max((len(row.what) for row in rows if len(row.what) <= WIDTH_OF_WHAT), default=0)
    abouts = max((len(row.about) for row in rows if row.place), default=0)
    lines = [
        f"{row.kind:<{kinds}}  {row.what:<{whats}}  {row.about:<{abouts}}  {row.place}".rstrip()
        for row in rows
    ]
    totals = [text for text in (_computed(facts), _moved(facts)) if text]
    heads = ["total", *([""] * len(totals))]
    lines += [f"{head:<{kinds}}  {text}" for head, text in zip(heads, totals)]
    return "\n".join([f"facts of {facts.name}", *(f"  {line}" for line in lines)])


def type_name(name: str) -> str:
    """An element type as users of torch abbreviate it: ``fp16``, ``int32``."""
    if name[0] in "fiu" and name[1].isdigit():
        return {"f": "fp", "i": "int", "u": "uint"}[name[0]] + name[1:]
    return name


def short_number(number: float, unit: str = "") -> str:
    """Three digits and a prefix: ``137 G``."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def _over(loop: tuple[str, ...]) -> str:
    return f"loop over {', '.join(loop)}" if loop else ""


def _matmul(fact: MatmulFact) -> _Row:
    types = f"{type_name(fact.lhs_dtype.name)} x {type_name(fact.rhs_dtype.name)}"
    batch = "" if fact.batch is None else f"{fact.batch.length} of "
    is_f32 = fact.rate_class in ("f32", "tf32", "tf32x3")
    details = (
        f"{types} -> {type_name(fact.acc_dtype.name)}",
        fact.precision if is_f32 else "",
        batch + " x ".join(str(axis.length) for axis in fact.axes),
        _over(fact.loop),
    )
    return _Row("matmul", fact.text, details, fact.loc)


def _reduction(fact: ReductionFact) -> _Row:
    details = (
        type_name(fact.dtype.name),
        f"length {fact.axis.length}",
        _ROW_FORMS[fact.kind],
        "used again" if fact.is_reread else "",
    )
    what = f"{', '.join(fact.functions)} over {fact.axis} of {fact.text}"
    return _Row("reduction", what, details, fact.loc)


def _composed(facts: Facts) -> list[_Row]:
    rows: list[_Row] = []
    if facts.epilogue is not None:
        product, reduction = facts.epilogue.matmul, facts.epilogue.reduction
        over = f"{', '.join(reduction.functions)} over all {reduction.axis.length} columns"
        rows.append(_Row("composed", "matmul with reduction epilogue", (over,), product.loc))
    if facts.attention is not None:
        over = f"both products in the {_over(facts.attention.values.loop)}"
        rows.append(_Row("composed", "attention", (over,), facts.attention.scores.loc))
    return rows


def _pointwise(fact: PointwiseFact | None) -> list[_Row]:
    if fact is None:
        return []
    total = "unknown" if fact.total is None else fact.total * fact.slab
    along = " and ".join(fact.contiguous_blocks)
    details = (
        f"{fact.storage_bytes} bytes moved for each",
        f"{fact.num_transcendentals} transcendental" if fact.num_transcendentals else "",
        f"contiguous along {along}" if along else "",
    )
    return [_Row("pointwise", f"{total} elements", details)]


def _accumulator(fact: AccumulatorFact) -> _Row:
    details = (type_name(fact.dtype.name), f"carried by the {_over(fact.loop)}")
    return _Row("accumulator", fact.text, details, fact.loc)


def _access(fact: AccessFact) -> _Row:
    size = fact.distinct_bytes
    details = (
        type_name(fact.dtype.name),
        "" if size is None else short_number(size, "B"),
        _layout(fact),
        f"reuse {fact.reuse}" if fact.reuse > 1 and fact.kind == "load" else "",
        "masked" if fact.has_mask else "",
        *_purposes(fact),
    )
    return _Row(fact.kind, fact.text or fact.tensor, details, fact.loc)


def _layout(fact: AccessFact) -> str:
    if fact.is_scalar:
        return "one element"
    if fact.contiguous_dim is None:
        return "strided" if fact.is_rectangle else "gathered"
    along = fact.contiguous_dim.symbol if fact.contiguous_block else "rows"
    return f"vectors of {fact.vector_width} along {along}"


def _purposes(fact: AccessFact) -> list[str]:
    purpose = fact.purpose
    found = [f"{side} of matmul" for side in purpose.sides]
    if purpose.reduced:
        times = len(purpose.reduced)
        found.append("reduced" if times == 1 else f"reduced {times} times")
    if purpose.num_stores and found:
        found.append("also stored")
    if purpose.is_index:
        found.append("used as index")
    return found


def _computed(facts: Facts) -> str:
    flops = facts.flops
    parts = ["FLOP unknown"] if flops is None else []
    parts += [f"{short_number(n, 'FLOP')} {type_name(name)}" for name, n in (flops or {}).items()]
    for kind in (ELEMENTWISE, TRANSCENDENTAL, REDUCTION):
        number = facts.work.total(kind)
        if number is None:
            parts.append(f"{kind} unknown")
        elif number:
            parts.append(f"{short_number(number)} {kind}")
    return ", ".join(parts)


def _moved(facts: Facts) -> str:
    traffic, flops, total = facts.traffic, facts.flops, facts.bytes
    if traffic.read is None or traffic.written is None:
        return "bytes unknown"
    text = f"{short_number(traffic.read, 'B')} read, {short_number(traffic.written, 'B')} written"
    if not flops or not total:
        return text
    intensity = sum(flops.values()) / total
    digits = f"{intensity:.0f}" if intensity >= 100 else f"{intensity:.3g}"
    return f"{text}, {digits} flop/byte"
