"""How each scalar function is written: an operator, or a function of torch."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.gradients.source.texts import (
    ADD,
    AND,
    COMPARE,
    MULTIPLY,
    OR,
    SHIFT,
    UNARY,
    XOR,
    Text,
    call,
)

INFIX = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MULTIPLY), "div": ("/", MULTIPLY),
    "floordiv": ("//", MULTIPLY), "mod": ("%", MULTIPLY), "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT), "and": ("&", AND), "or": ("|", OR), "xor": ("^", XOR),
    "eq": ("==", COMPARE), "ne": ("!=", COMPARE), "lt": ("<", COMPARE), "le": ("<=", COMPARE),
    "gt": (">", COMPARE), "ge": (">=", COMPARE),
}  # fmt: skip
PREFIX = {"neg": "-", "not": "~"}
CLAMPS = {"maximum": "min", "minimum": "max"}
"""Extremes of a tile and a number: the bound of ``torch.clamp`` that it is."""
OF_NUMBERS = {"maximum": "max", "minimum": "min"}
"""Builtins that runtime numbers have."""


def write_function(fn: str, args: list[Text], *, are_numbers: bool) -> Text:
    """A scalar function of operands that are written already."""
    if fn in PREFIX:
        return Text(f"{PREFIX[fn]}{args[0].within(UNARY)}", UNARY)
    if fn in INFIX:
        symbol, level = INFIX[fn]
        # Comparisons do not chain, and a - (b - c) is not a - b - c.
        left = args[0].within(level + 1 if level == COMPARE else level)
        return Text(f"{left} {symbol} {args[1].within(level + 1)}", level)
    if fn in CLAMPS:
        return _extreme(fn, args, are_numbers=are_numbers)
    special = SPECIAL.get(fn)
    return special(*args) if special else call(f"torch.{fn}", *(arg.code for arg in args))


def _extreme(fn: str, args: list[Text], *, are_numbers: bool) -> Text:
    if are_numbers:
        return call(OF_NUMBERS[fn], *(arg.code for arg in args))
    tiles = [arg for arg in args if arg.is_tile]
    if len(tiles) == 1:
        (bound,) = [arg for arg in args if not arg.is_tile]
        return call("torch.clamp", tiles[0].code, f"{CLAMPS[fn]}={bound.code}")
    return call(f"torch.{fn}", *(arg.code for arg in args))


def _multiply_add(a: Text, b: Text, c: Text) -> Text:
    product = f"{a.within(MULTIPLY)} * {b.within(MULTIPLY + 1)}"
    return Text(f"{product} + {c.within(ADD + 1)}", ADD)


def _upper_half(left: Text, right: Text) -> Text:
    """The upper 32 bits of a product: the lower 64 of one of signed numbers are the same."""
    factors = [f"{arg.atom}.to(torch.int64)" if arg.is_tile else arg.code for arg in (left, right)]
    return call(f"({factors[0]} * {factors[1]} >> 32).to", "torch.uint32")


SPECIAL: dict[str, Callable[..., Text]] = {
    "fma": _multiply_add,
    "mulhi": _upper_half,
    "truncdiv": lambda a, b: call("torch.div", a.code, b.code, 'rounding_mode="trunc"'),
}
"""Functions that have no name of their own."""
