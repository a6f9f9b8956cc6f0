"""Sums of lines are carried where only they are read, and the tiles themselves elsewhere."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.ir.types import Dim
from tilesmith.passes.carried_lines import carry_sums_of_lines

PROGRAM = """
    %start = full() {{value={start}}} : {dtype}[t, u]
    %r = loop([%zero], [%hundred], [], [%start]) {{blocks=["u"], slot=0}} \
: {dtype}[t, u] (%k: i32[], %acc: {dtype}[t, u]) {{
      %j = tile_index(%k) {{block="u"}} : i32[u]
      %rows = expand_dims(%i) {{axes=[1]}} : i32[t, 1]
      %columns = expand_dims(%j) {{axes=[0]}} : i32[1, u]
      %v = load(%w, none, [%rows, %columns]) : f32[t, u]
      %x1 = cast(%v) {{bitcast=false}} : {dtype}[t, u]
      {body}
      yield(%new)
    }}
    {after}
    store(%x, %s, none, [%i])
"""
ADD = '%new = elementwise(%acc, %x1) {fn="add"} : f32[t, u]'
SUM = '%s = reduce(%r) {axis=1, kind="sum"} : f32[t]'


def left(body: str = ADD, after: str = SUM, start: str = "0.0", dtype: str = "f32") -> str:
    text = PROGRAM.format(body=body, after=after, start=start, dtype=dtype)

    def run(function):  # type: ignore[no-untyped-def]
        return carry_sums_of_lines(function, lambda dim: dim == Dim.of("u"))

    return "\n".join(body_after(run, make_program(text)))


def has_sums(text: str) -> bool:
    return text.index("reduce(") < text.index("yield(")


@pytest.mark.parametrize(
    ("body", "after", "start"),
    [
        (ADD, SUM, "0.0"),
        ('%new = elementwise(%x1, %acc) {fn="add"} : f32[t, u]', SUM, "0.0"),
        (ADD, "%q = mask(%r) {fill=0.0, axes=[1]} : f32[t, u]\n" + SUM.replace("%r", "%q"), "0.0"),
        (ADD.replace("add", "maximum"), SUM.replace("sum", "max"), "-inf"),
        (ADD.replace("add", "minimum"), SUM.replace("sum", "min"), "inf"),
    ],
)
def test_sums_are_carried(body: str, after: str, start: str) -> None:
    text = left(body, after, start)
    assert has_sums(text)
    assert text.count("reduce(") == 1
    assert "%acc: f32[t])" in text


@pytest.mark.parametrize(
    ("body", "after", "start"),
    [
        # It does not begin with nothing.
        (ADD, SUM, "1.0"),
        (ADD.replace("add", "maximum"), SUM.replace("sum", "max"), "0.0"),
        # Another reduction than that of each turn.
        (ADD.replace("add", "maximum"), SUM, "0.0"),
        (ADD.replace("add", "mul"), SUM, "0.0"),
        (ADD, SUM.replace("sum", "max"), "0.0"),
        # Of the axis whose lanes had better not meet.
        (ADD, '%s1 = reduce(%r) {axis=0, kind="sum"} : f32[u]\n'
              '%s2 = reduce(%s1) {axis=0, kind="sum"} : f32[]\n'
              "%s3 = expand_dims(%s2) {axes=[0]} : f32[1]\n"
              "%s = broadcast(%s3) : f32[t]", "0.0"),
        # The tile is read elsewhere.
        (ADD, SUM + "\n%rows9 = expand_dims(%i) {axes=[1]} : i32[t, 1]\n"
              '%j9 = tile_index(%zero) {block="u"} : i32[u]\n'
              "%columns9 = expand_dims(%j9) {axes=[0]} : i32[1, u]\n"
              "store(%w, %r, none, [%rows9, %columns9])", "0.0"),
        ('%z = elementwise(%acc) {fn="neg"} : f32[t, u]\n'
         '%new1 = elementwise(%acc, %x1) {fn="add"} : f32[t, u]\n'
         '%new = elementwise(%new1, %z) {fn="add"} : f32[t, u]', SUM, "0.0"),
    ],
)  # fmt: skip
def test_other_tiles_stay(body: str, after: str, start: str) -> None:
    assert not has_sums(left(body, after, start))


def test_what_each_turn_rounds_is_rounded() -> None:
    text = left(ADD.replace("f32", "bf16"), SUM.replace("f32", "bf16")
                .replace("%s =", "%s0 =") + "\n%s = cast(%s0) {bitcast=false} : f32[t]",
                dtype="bf16")  # fmt: skip
    assert not has_sums(text)
