"""Facts as text, in the names of the user's program: a line for each fact, totals at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.fact_set import FactSet, PointwiseFact
from tilesmith.schedule.facts.products import AccumulatorFact, MatmulFact, ReductionFact
from tilesmith.schedule.facts.work import ELEMENTWISE, REDUCTION, TRANSCENDENTAL

WIDTH_OF_WHAT = 100
"""Longer descriptions push their own line only, not all lines."""
_ROW_FORMS = {
    "rollable": "whole or in chunks",
    "persistent": "whole",
    "tile": "tile by tile",
}


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


def render_facts(facts: FactSet) -> str:
    """The facts, one per line, in columns."""
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
    title = f"facts of {facts.name}"
    return "\n".join([title, *(f"  {line}" for line in lines)])


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


def _extents(axes: Iterable[Axis]) -> str:
    return " x ".join(str(axis.length) for axis in axes)


def _over(loop: tuple[str, ...]) -> str:
    return f"loop over {', '.join(loop)}" if loop else ""


def _matmul(fact: MatmulFact) -> _Row:
    types = f"{type_name(fact.lhs_dtype.name)} x {type_name(fact.rhs_dtype.name)}"
    batch = "" if fact.batch is None else f"{fact.batch.length} of "
    is_f32 = fact.rate_class in ("f32", "tf32", "tf32x3")
    details = (
        f"{types} -> {type_name(fact.acc_dtype.name)}",
        fact.precision if is_f32 else "",
        f"{batch}{_extents(fact.axes)}",
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
    functions = ", ".join(fact.functions)
    what = f"{functions} over {fact.axis} of {fact.text}"
    return _Row("reduction", what, details, fact.loc)


def _composed(facts: FactSet) -> list[_Row]:
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
    is_repeated = fact.reuse > 1 and fact.kind == "load"
    details = (
        type_name(fact.dtype.name),
        "" if size is None else short_number(size, "B"),
        _layout(fact),
        f"reuse {fact.reuse}" if is_repeated else "",
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


def _computed(facts: FactSet) -> str:
    parts: list[str] = []
    flops = facts.flops
    if flops is None:
        parts.append("FLOP unknown")
    else:
        parts.extend(f"{short_number(n, 'FLOP')} {type_name(name)}" for name, n in flops.items())
    for kind in (ELEMENTWISE, TRANSCENDENTAL, REDUCTION):
        number = facts.work.total(kind)
        if number is None:
            parts.append(f"{kind} unknown")
        elif number:
            parts.append(f"{short_number(number)} {kind}")
    return ", ".join(parts)


def _moved(facts: FactSet) -> str:
    traffic, flops = facts.traffic, facts.flops
    if traffic.read is None or traffic.written is None:
        return "bytes unknown"
    text = f"{short_number(traffic.read, 'B')} read, {short_number(traffic.written, 'B')} written"
    total = traffic.read + traffic.written
    if not flops or not total:
        return text
    intensity = sum(flops.values()) / total
    digits = f"{intensity:.0f}" if intensity >= 100 else f"{intensity:.3g}"
    return f"{text}, {digits} flop/byte"
