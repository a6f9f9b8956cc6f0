"""Instructions that each lane does by itself: moves, arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.ptx_machine import arithmetic
from tools.ptx_machine.kinds import KINDS, PAIRS, WORDS, Kind, Lanes, flushed, halves, joined
from tools.ptx_machine.state import WORD_KINDS, Read, State, Step, read_as
from tools.ptx_machine.text import Instruction, Operand, PtxError, Register, Symbol, Vector

COUNTS = {"shl": (1,), "shr": (1,), "bfe": (1, 2), "bfi": (2, 3), "prmt": (0, 1, 2), "lop3": (3,)}
"""Operands that are plain 32 bits, whatever the type of the instruction."""


def destination(operand: Operand) -> int:
    """The register an instruction writes; -1 for none (``_``)."""
    if isinstance(operand, Symbol) and operand.name == "_":
        return -1
    if not isinstance(operand, Register):
        raise PtxError(f"{operand} is no register")
    return operand.slot


def decode_move(instruction: Instruction) -> Step:
    """``mov``: a copy, the parts of a register, or a register of parts."""
    target, source = instruction.operands
    kind = KINDS[instruction.parts[-1]] if instruction.parts[-1] != "b128" else None
    if isinstance(target, Vector):
        return _unpack(target, source)
    if isinstance(source, Vector):
        return _pack(target, source)
    assert kind is not None
    slot, read = destination(target), read_as(source, WORD_KINDS[kind.bits])

    def move(state: State, mask: Lanes | None) -> None:
        state.write(slot, np.asarray(read(state)), mask)

    return move


def _unpack(target: Vector, source: Operand) -> Step:
    slots = [destination(part) for part in target.parts]
    widths = [part.bits if isinstance(part, Register) else 0 for part in target.parts]
    bits = max(widths)
    read = read_as(source, WORD_KINDS[bits * len(slots)])

    def unpack(state: State, mask: Lanes | None) -> None:
        whole = read(state)
        for place, slot in enumerate(slots):
            if slot >= 0:
                part = whole >> whole.dtype.type(bits * place)
                state.write(slot, part.astype(WORDS[bits]), mask)

    return unpack


def _pack(target: Operand, source: Vector) -> Step:
    assert isinstance(target, Register)
    bits = target.bits // len(source.parts)
    reads = [read_as(part, WORD_KINDS[bits]) for part in source.parts]
    word = WORDS[target.bits]

    def pack(state: State, mask: Lanes | None) -> None:
        whole = np.zeros(state.count, word)
        for place, read in enumerate(reads):
            whole = whole | (np.asarray(read(state)).astype(word) << word(bits * place))
        state.write(target.slot, whole, mask)

    return pack


def decode_compute(instruction: Instruction) -> Step:
    """An instruction of ``arithmetic``: registers in, one out."""
    parts = instruction.parts
    kinds = [part for part in parts if part in KINDS or part in PAIRS]
    name, modifiers = parts[0], set(parts[1:])
    if not kinds:
        raise PtxError(f"no type in {instruction.opcode}")
    if kinds[-1] in PAIRS:
        return _compute_pairs(instruction, KINDS[PAIRS[kinds[-1]]])
    kind = KINDS[kinds[-1]]
    if name == "shf":
        return _decode_funnel(instruction, modifiers)
    compute = arithmetic.find_compute(name, modifiers, kind)
    reads = _reads(instruction, name, modifiers, kind)
    result = _result_kind(name, modifiers, kind)
    slot = destination(instruction.operands[0])

    def run(state: State, mask: Lanes | None) -> None:
        values = [read(state) for read in reads]
        if values[0].ndim == 0:
            values[0] = np.broadcast_to(values[0], (state.count,))
        state.write(slot, result.encode(compute(*values)), mask)

    return run


def _reads(instruction: Instruction, name: str, modifiers: set[str], kind: Kind) -> list[Read]:
    counts = COUNTS.get(name, ())
    kinds = [KINDS["u32"] if n in counts else kind for n in range(len(instruction.operands) - 1)]
    if name == "mad" and "wide" in modifiers:
        kinds[2] = KINDS[f"{kind.name[0]}{2 * kind.bits}"]
    return [read_as(x, kind) for x, kind in zip(instruction.operands[1:], kinds)]


def _result_kind(name: str, modifiers: set[str], kind: Kind) -> Kind:
    if "wide" in modifiers:
        return KINDS[f"{kind.name[0]}{2 * kind.bits}"]
    if name in ("clz", "popc", "prmt"):
        return KINDS["u32"]
    if name == "bfi":
        return KINDS[f"b{kind.bits}"]
    return kind


def _compute_pairs(instruction: Instruction, kind: Kind) -> Step:
    name, modifiers = instruction.parts[0], set(instruction.parts[1:])
    compute = arithmetic.find_compute(name, modifiers, kind)
    word = WORD_KINDS[2 * kind.bits]
    reads = [read_as(operand, word) for operand in instruction.operands[1:]]
    slot = destination(instruction.operands[0])

    def run(state: State, mask: Lanes | None) -> None:
        operands = [halves(np.asarray(read(state)), kind) for read in reads]
        low, high = (
            kind.encode(compute(*(kind.decode(pair[half]) for pair in operands))) for half in (0, 1)
        )
        state.write(slot, joined(low, high, kind), mask)

    return run


def _decode_funnel(instruction: Instruction, modifiers: set[str]) -> Step:
    reads = [read_as(x, KINDS["u32"]) for x in instruction.operands[1:]]
    slot = destination(instruction.operands[0])
    is_left, wraps = "l" in modifiers, "wrap" in modifiers

    def run(state: State, mask: Lanes | None) -> None:
        low, high, count = (read(state) for read in reads)
        found = arithmetic.funnel(low, high, count, is_left=is_left, wraps=wraps)
        state.write(slot, found, mask)

    return run


def decode_compare(instruction: Instruction) -> Step:
    """``setp``: one or two predicates, joined with another if that is asked for."""
    parts = instruction.parts
    if parts[-1] in PAIRS:
        return _compare_pairs(instruction, KINDS[PAIRS[parts[-1]]])
    kind, relation = KINDS[parts[-1]], parts[1]
    joining = next((arithmetic.LOGICAL[x] for x in parts[2:] if x in arithmetic.LOGICAL), None)
    target, first, second, *third = instruction.operands
    slots = [destination(x) for x in (target.parts if isinstance(target, Vector) else (target,))]
    reads = [read_as(first, kind), read_as(second, kind)]
    other = read_as(third[0], KINDS["pred"]) if third else None
    flush = "ftz" in parts

    def run(state: State, mask: Lanes | None) -> None:
        x, y = (flushed(r(state), kind) if flush else r(state) for r in reads)
        holds = arithmetic.compare(relation, kind, x, y)
        for slot, each in zip(slots, (holds, ~holds)):
            if slot >= 0:
                both = joining(each, other(state)) if joining is not None and other else each
                state.write(slot, both, mask)

    return run


def _compare_pairs(instruction: Instruction, kind: Kind) -> Step:
    """A predicate for each of two numbers."""
    relation = instruction.parts[1]
    target, *operands = instruction.operands
    assert isinstance(target, Vector)
    slots = [destination(x) for x in target.parts]
    reads = [read_as(x, WORD_KINDS[2 * kind.bits]) for x in operands]

    def run(state: State, mask: Lanes | None) -> None:
        x, y = (halves(np.asarray(read(state)), kind) for read in reads)
        for slot, first, second in zip(slots, x, y):
            holds = arithmetic.compare(relation, kind, kind.decode(first), kind.decode(second))
            if slot >= 0:
                state.write(slot, holds, mask)

    return run


def has_carry(instruction: Instruction) -> bool:
    """Whether an instruction reads or sets the carry."""
    return "cc" in instruction.parts or instruction.parts[0] in ("addc", "subc", "madc")


def decode_carry(instruction: Instruction) -> Step:
    """Sums, differences and products whose carry goes on to the next instruction."""
    parts = instruction.parts
    name, sets = parts[0].removesuffix("c"), "cc" in parts
    kind, reads_carry = KINDS[f"u{KINDS[parts[-1]].bits}"], parts[0].endswith("c")
    reads = [read_as(x, kind) for x in instruction.operands[1:]]
    slot = destination(instruction.operands[0])
    times = arithmetic.high_product if "hi" in parts else np.multiply

    def run(state: State, mask: Lanes | None) -> None:
        values = [np.broadcast_to(read(state), (state.count,)) for read in reads]
        x, y = (times(*values[:2]), values[2]) if name == "mad" else values
        before = state.extra.get("carry", np.zeros(state.count, np.bool_))
        carry = before if reads_carry else np.zeros(state.count, np.bool_)
        if name == "sub":
            found = x - y - carry.astype(x.dtype)
            out = (x < y) | ((x == y) & carry)
        else:
            found = x + y + carry.astype(x.dtype)
            out = (found < x) | ((found == x) & carry)
        state.write(slot, found, mask)
        if sets:
            state.extra["carry"] = out if mask is None else np.where(mask, out, before)

    return run


def decode_select(instruction: Instruction) -> Step:
    """``selp``: one of two by a predicate."""
    kind = WORD_KINDS[KINDS[instruction.parts[-1]].bits]
    target, first, second, condition = instruction.operands
    reads = [read_as(first, kind), read_as(second, kind)]
    choose, slot = read_as(condition, KINDS["pred"]), destination(target)

    def run(state: State, mask: Lanes | None) -> None:
        x, y = (read(state) for read in reads)
        state.write(slot, np.where(choose(state), x, y), mask)

    return run


def decode_predicate(instruction: Instruction) -> Step:
    """``and.pred`` and the like."""
    compute = arithmetic.find_compute(instruction.parts[0], set(), KINDS["pred"])
    reads = [read_as(x, KINDS["pred"]) for x in instruction.operands[1:]]
    slot = destination(instruction.operands[0])

    def run(state: State, mask: Lanes | None) -> None:
        state.write(slot, compute(*(read(state) for read in reads)), mask)

    return run


def decode_convert(instruction: Instruction) -> Step:
    """``cvt``: between all types, and two numbers at once."""
    parts = instruction.parts
    kinds = [part for part in parts if part in KINDS or part in PAIRS]
    to, source = kinds[-2:] if len(kinds) > 1 else (kinds[-1], kinds[-1])
    if to in PAIRS or source in PAIRS:
        return _convert_pairs(instruction, to, source)
    convert = converter(KINDS[to], KINDS[source], set(parts))
    read, slot = (
        read_as(instruction.operands[1], KINDS[source]),
        destination(instruction.operands[0]),
    )
    target = instruction.operands[0]
    is_extended = isinstance(target, Register) and to[0] == "s" and target.bits > KINDS[to].bits

    def run(state: State, mask: Lanes | None) -> None:
        bits = convert(np.asarray(read(state)))
        if is_extended:  # the result stands in a wider register, extended by its sign
            wide = f"i{target.bits // 8}"  # type: ignore[union-attr]
            bits = bits.view(f"i{bits.dtype.itemsize}").astype(wide).view(f"u{wide[1:]}")
        state.write(slot, bits, mask)

    return run


def converter(to: Kind, source: Kind, modifiers: set[str]) -> Callable[[Lanes], Lanes]:
    """From numbers of one type to bits of another."""
    _check_modifiers(to, source, modifiers)
    roundings = modifiers & set(arithmetic.ROUNDINGS)
    flush = "ftz" in modifiers and source.name == "f32"
    if source.is_float and not to.is_float:
        rounding = next(iter(roundings))
        return lambda x: to.encode(
            arithmetic.to_integer(flushed(x, source) if flush else x, to, rounding)
        )
    if source.is_float and roundings:
        rounded = arithmetic.ROUNDINGS[next(iter(roundings))]
        return lambda x: to.encode(rounded(flushed(x, source) if flush else x))
    if to.name == "tf32":
        is_away = "rna" in modifiers
        return lambda x: to.encode(arithmetic.to_tf32(x, is_away=is_away))
    if to.is_float:
        return _float_converter(to, source, modifiers)
    if "sat" in modifiers:
        return lambda x: _saturated(x, to)
    word = f"{'i' if source.name[0] == 's' else 'u'}{to.bits // 8}"
    return lambda x: np.asarray(x).astype(word).view(WORDS[to.bits])


def _check_modifiers(to: Kind, source: Kind, modifiers: set[str]) -> None:
    """Raise for words that mean something for other types only."""
    is_whole = bool(modifiers & set(arithmetic.ROUNDINGS))
    refused = {
        "rna": to.name != "tf32",
        "rz": to.name == "tf32" or (not source.is_float and source.bits == 64),
        "relu": to.name == "tf32" or not source.is_float or not to.is_float,
        "satfinite": to.bits != 8,
        "sat": is_whole and to.is_float,
    }
    for word in modifiers & set(refused):
        if refused[word]:
            raise PtxError(f".{word} from {source.name} to {to.name}")


def _saturated(values: Lanes, to: Kind) -> Lanes:
    sample = to.decode(np.zeros(1, WORDS[to.bits]))
    info = np.iinfo(sample.dtype)
    clipped = np.clip(values.astype(object), info.min, info.max)
    return to.encode(np.array(clipped.tolist(), sample.dtype))


def _float_converter(to: Kind, source: Kind, modifiers: set[str]) -> Callable[[Lanes], Lanes]:
    flush, is_exact = "ftz" in modifiers, not source.is_float

    def convert(values: Lanes) -> Lanes:
        if is_exact:
            values = _exact(values, to)
        if flush and source.name == "f32":
            values = flushed(values, source)
        if "rz" in modifiers:
            values = _toward_zero(values, to)
        if "relu" in modifiers:
            values = arithmetic.positive(values)
        if "sat" in modifiers:
            values = np.nan_to_num(np.clip(values, 0, 1), nan=0.0)
        if flush and to.name == "f32":
            values = flushed(values.astype(np.float32), to)
        return to.encode(values)

    return convert


def _exact(values: Lanes, to: Kind) -> Lanes:
    """Integers so that one rounding to the type follows."""
    if to.bits >= 32:
        return values.astype(np.float64 if to.bits == 64 or values.itemsize < 8 else np.float32)
    if values.itemsize < 8:
        return values.astype(np.float64)
    # What 53 bits do not hold is rounded to odd first.
    is_long = (values >= 1 << 53) | ((values.dtype.kind == "i") & (values < -(1 << 53)))
    lost = values & values.dtype.type(0x7FF)
    odd = (values - lost) | ((lost != 0).astype(values.dtype) << values.dtype.type(11))
    return np.where(is_long, odd, values).astype(np.float64)


def _toward_zero(values: Lanes, to: Kind) -> Lanes:
    near = to.decode(to.encode(values)).astype(np.float64)
    is_above = np.abs(near) > np.abs(values.astype(np.float64))
    down = to.decode((to.encode(values) - is_above.astype(WORDS[to.bits])).astype(WORDS[to.bits]))
    return np.where(is_above, down, near)


def _convert_pairs(instruction: Instruction, to: str, source: str) -> Step:
    operands, modifiers = instruction.operands, set(instruction.parts)
    slot = destination(operands[0])
    if source in PAIRS:
        return _convert_packed(instruction, to, source)
    kind, wanted = KINDS[source], KINDS[PAIRS[to]]
    convert = converter(wanted, kind, modifiers - {source, to})
    high, low = (read_as(operand, kind) for operand in operands[1:3])

    def run(state: State, mask: Lanes | None) -> None:
        upper, lower = convert(np.asarray(high(state))), convert(np.asarray(low(state)))
        state.write(slot, joined(lower, upper, wanted), mask)

    return run


def _convert_packed(instruction: Instruction, to: str, source: str) -> Step:
    kind, wanted = KINDS[PAIRS[source]], KINDS[PAIRS[to]]
    convert = converter(wanted, kind, set(instruction.parts) - {source, to})
    read = read_as(instruction.operands[1], WORD_KINDS[2 * kind.bits])
    slot = destination(instruction.operands[0])

    def run(state: State, mask: Lanes | None) -> None:
        low, high = (convert(kind.decode(x)) for x in halves(np.asarray(read(state)), kind))
        state.write(slot, joined(low, high, wanted), mask)

    return run
