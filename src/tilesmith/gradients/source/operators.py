"""How each scalar function is written: an operator, or a function of torch."""

from __future__ import annotations

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
LEFT_ASSOCIATIVE = ("add", "mul", "and", "or", "xor")
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
    if are_numbers and fn in OF_NUMBERS:
        return call(OF_NUMBERS[fn], *(arg.code for arg in args))
    if fn in CLAMPS and not any(arg.is_tile for arg in args[1:]):
        return call("torch.clamp", args[0].code, f"{CLAMPS[fn]}={args[1].code}")
    if fn in CLAMPS and not args[0].is_tile:
        return write_function(fn, args[::-1], are_numbers=are_numbers)
    if fn == "mulhi":
        return _upper_half(*args)
    if fn == "fma":
        a, b, c = args
        product = f"{a.within(MULTIPLY)} * {b.within(MULTIPLY + 1)}"
        return Text(f"{product} + {c.within(ADD + 1)}", ADD)
    if fn == "truncdiv":
        return call("torch.div", *(arg.code for arg in args), 'rounding_mode="trunc"')
    return call(f"torch.{fn}", *(arg.code for arg in args))


def _upper_half(left: Text, right: Text) -> Text:
    """The upper 32 bits of a product: the lower 64 of one of signed numbers are the same."""
    factors = [f"{arg.atom}.to(torch.int64)" if arg.is_tile else arg.code for arg in (left, right)]
    return call(f"({factors[0]} * {factors[1]} >> 32).to", "torch.uint32")
