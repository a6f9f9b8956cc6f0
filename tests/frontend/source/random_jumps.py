"""Random functions of nested loops and branches with jumps anywhere in them."""

from __future__ import annotations

import textwrap

from hypothesis import strategies as st

_CONDITIONS = ("limit > 1", "len(log) % 3 == 1", "limit == 2", "len(log) > 5", "True")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The source of ``f(limit, log)``."""
    body = draw(_blocks(3, in_loop=False))
    return "def f(limit, log):\n" + textwrap.indent(body, "    ")


@st.composite
def _blocks(draw: st.DrawFn, depth: int, *, in_loop: bool) -> str:
    count = draw(st.integers(1, 3))
    return "".join(draw(_statements(depth, in_loop=in_loop)) for _ in range(count))


@st.composite
def _statements(draw: st.DrawFn, depth: int, *, in_loop: bool) -> str:
    kinds = ["log", "return"] + (["break", "continue"] if in_loop else [])
    if depth:
        kinds += ["if", "if", "if else", "for", "while"]
    kind = draw(st.sampled_from(kinds))
    if kind == "log":
        return f"log.append({draw(st.integers(0, 99))})\n"
    if kind == "return":
        return f"return {draw(st.integers(0, 99))}\n"
    if kind in ("break", "continue"):
        return f"{kind}\n"
    inside = draw(_blocks(depth - 1, in_loop=in_loop or kind in ("for", "while")))
    inner = textwrap.indent(inside, "    ")
    if kind == "for":
        return f"for i in range({draw(st.integers(0, 3))}):\n{inner}"
    if kind == "while":
        # The log grows in every turn, so that the loop ends whatever is in it.
        return f"while len(log) < {draw(st.integers(1, 9))}:\n    log.append('turn')\n{inner}"
    condition = draw(st.sampled_from(_CONDITIONS))
    if kind == "if":
        return f"if {condition}:\n{inner}"
    other = textwrap.indent(draw(_blocks(depth - 1, in_loop=in_loop)), "    ")
    return f"if {condition}:\n{inner}else:\n{other}"
