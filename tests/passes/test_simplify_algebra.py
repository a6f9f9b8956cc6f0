"""Each identity, and the near identities that are not exact."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.simplify import simplify_algebra

SETUP = {
    "i32": "%v = cast(%i) : i32[t]\n%v2 = elementwise(%v, %v) {fn=\"xor\"} : i32[t]",
    "f32": "%v = load(%x, none, [%i]) : f32[t]",
    "bool": (
        "%l = load(%x, none, [%i]) : f32[t]\n"
        "%v = elementwise(%l) {fn=\"isnan\"} : bool[t]"
    ),
}  # fmt: skip


def simplify(body: str) -> list[str]:
    return body_after(lambda f: eliminate_dead_code(simplify_algebra(f)), make_program(body))


def store_of(dtype: str, value: str) -> str:
    if dtype == "f32":
        return f"store(%y, {value}, none, [%i])"
    return f"%stored = cast({value}) : f32[t]\nstore(%y, %stored, none, [%i])"


def binary_is_identity(fn: str, constant: str, dtype: str, swap: bool = False) -> bool:
    args = "%k, %v" if swap else "%v, %k"
    lines = simplify(f"""
        {SETUP[dtype]}
        %k = full() {{value={constant}}} : {dtype}[t]
        %r = elementwise({args}) {{fn="{fn}"}} : {dtype}[t]
        {store_of(dtype, "%r")}
    """)
    return not any(f'fn="{fn}"' in line for line in lines)


@pytest.mark.parametrize(
    ("fn", "constant", "dtype"),
    [
        ("add", "0", "i32"),
        ("add", "-0.0", "f32"),
        ("sub", "0", "i32"),
        ("sub", "0.0", "f32"),
        ("mul", "1", "i32"),
        ("mul", "1.0", "f32"),
        ("div", "1.0", "f32"),
        ("floordiv", "1", "i32"),
        ("truncdiv", "1", "i32"),
        ("mod", "1", "i32"),
        ("mul", "0", "i32"),
        ("shl", "0", "i32"),
        ("and", "true", "bool"),
        ("or", "false", "bool"),
    ],
)
def test_neutral_and_absorbing_constants(fn: str, constant: str, dtype: str) -> None:
    assert binary_is_identity(fn, constant, dtype)


@pytest.mark.parametrize(
    ("fn", "constant", "dtype"),
    [
        ("add", "0.0", "f32"),  # -0.0 + 0.0 = 0.0
        ("sub", "-0.0", "f32"),  # -0.0 - -0.0 = 0.0
        ("mul", "0.0", "f32"),  # NaN, infinity
        ("mul", "-1.0", "f32"),
        ("add", "1", "i32"),
        ("floordiv", "2", "i32"),
    ],
)
def test_inexact_identities_are_left_alone(fn: str, constant: str, dtype: str) -> None:
    assert not binary_is_identity(fn, constant, dtype)


@pytest.mark.parametrize("fn", ["add", "mul"])
def test_commutative_functions_find_the_constant_on_the_left(fn: str) -> None:
    assert binary_is_identity(fn, "0" if fn == "add" else "1", "i32", swap=True)


@pytest.mark.parametrize("fn", ["sub", "floordiv", "shl"])
def test_other_functions_do_not(fn: str) -> None:
    assert not binary_is_identity(fn, "0" if fn != "floordiv" else "1", "i32", swap=True)


def test_double_negation_of_floats() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = elementwise(%v) {fn="neg"} : f32[t]
        %q = elementwise(%p) {fn="neg"} : f32[t]
        store(%y, %q, none, [%i])
    """)
    assert len(lines) == 2


def test_extreme_of_equal_operands() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = elementwise(%v, %v) {fn="maximum"} : f32[t]
        %q = elementwise(%p, %v) {fn="minimum"} : f32[t]
        store(%y, %q, none, [%i])
    """)
    assert len(lines) == 2


def test_where_on_constants_and_negated_conditions() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %n = elementwise(%v) {fn="isnan"} : bool[t]
        %m = elementwise(%n) {fn="not"} : bool[t]
        %e = elementwise(%v) {fn="exp"} : f32[t]
        %true = full() {value=true} : bool[t]
        %p = elementwise(%true, %e, %v) {fn="where"} : f32[t]
        %q = elementwise(%m, %p, %v) {fn="where"} : f32[t]
        store(%y, %q, none, [%i])
    """)
    assert '%q = elementwise(%n, %v, %e) {fn="where"} : f32[t]' in lines


def test_added_constants_join() -> None:
    lines = simplify("""
        %two = full() {value=2} : i32[t]
        %three = full() {value=3} : i32[t]
        %p = elementwise(%two, %i) {fn="add"} : i32[t]
        %q = elementwise(%p, %three) {fn="add"} : i32[t]
        %v = load(%x, none, [%q]) : f32[t]
        store(%y, %v, none, [%i])
    """)
    assert "%0 = full() {value=5} : i32[t]" in lines
    assert '%q = elementwise(%i, %0) {fn="add"} : i32[t]' in lines


def test_cast_back_from_a_wider_type_disappears() -> None:
    lines = simplify("""
        %j = arange() : i32[64]
        %v = load(%h, none, [%zero, %j]) : bf16[64]
        %p = cast(%v) : f32[64]
        %q = cast(%p) : bf16[64]
        store(%h, %q, none, [%a, %j])
    """)
    assert not any("cast" in line for line in lines)


def test_cast_back_from_a_narrower_type_stays() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = cast(%v) : bf16[t]
        %q = cast(%p) : f32[t]
        store(%y, %q, none, [%i])
    """)
    assert sum("cast" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("bf16", "f32", True),
        ("f16", "bf16", False),
        ("bf16", "f16", False),
        ("f8e5m2", "bf16", True),
        ("i32", "f32", False),
        ("i32", "f64", True),
        ("i16", "f32", True),
        ("u8", "bf16", True),
        ("i16", "f16", False),
        ("u8", "i8", False),
        ("i8", "u64", False),
        ("u32", "i64", True),
        ("bool", "f8e4m3", True),
        ("f32", "i64", False),
        ("i8", "bool", False),
    ],
)
def test_lossless_conversions(source: str, target: str, expected: bool) -> None:
    assert DTYPES_BY_NAME[source].is_held_by(DTYPES_BY_NAME[target]) is expected


def test_views_compose_and_cancel() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = expand_dims(%v) {axes=[0]} : f32[1, t]
        %q = expand_dims(%p) {axes=[1]} : f32[1, 1, t]
        %r = permute(%q) {order=[2, 0, 1]} : f32[t, 1, 1]
        %s = permute(%r) {order=[1, 0, 2]} : f32[1, t, 1]
        %u0 = reshape(%s) : f32[t]
        %u1 = expand_dims(%u0) {axes=[1]} : f32[t, 1]
        %b1 = broadcast(%u1) : f32[t, 1]
        %b2 = broadcast(%b1) : f32[t, 4]
        %b3 = broadcast(%b2) : f32[t, 4]
        %sum = reduce(%b3) {axis=1, kind="sum"} : f32[t]
        store(%y, %sum, none, [%i])
    """)
    text = "\n".join(lines)
    assert "%q = expand_dims(%v) {axes=[0, 1]} : f32[1, 1, t]" in text
    assert "%s = permute(%q) {order=[0, 2, 1]} : f32[1, t, 1]" in text
    assert text.count("broadcast") == 1


@pytest.mark.parametrize(("position", "kept"), [(0, "%v"), (1, "%n")])
def test_one_side_of_a_join_is_that_side(position: int, kept: str) -> None:
    lines = simplify(f"""
        %v = load(%x, none, [%i]) : f32[t]
        %n = elementwise(%v) {{fn="neg"}} : f32[t]
        %both = join(%v, %n) : f32[t, 2]
        %side = select(%both) {{axis=1, position={position}}} : f32[t]
        store(%y, %side, none, [%i])
    """)
    assert not any("join" in line or "select" in line for line in lines)
    assert f"store(%y, {kept}, none, [%i])" in " ".join(lines)


def test_reshape_that_adds_ones_is_an_expansion() -> None:
    lines = simplify("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = reshape(%v) : f32[t, 1, 1]
        %q = reshape(%p) : f32[1, t]
        %r = reshape(%q) : f32[t]
        %s = elementwise(%r, %v) {fn="add"} : f32[t]
        store(%y, %s, none, [%i])
    """)
    assert lines[1] == '%s = elementwise(%v, %v) {fn="add"} : f32[t]'


def test_no_match_gives_the_same_object() -> None:
    program = make_program("store(%x, %f, none, [%zero])")
    assert simplify_algebra(program) is program


def split_and_joined(
    *, widths: tuple[int, int, int] = (24, 24, 24), index: str = "%v"
) -> list[str]:
    quotient, factor, remainder = widths
    return simplify(f"""
        {SETUP["i32"]}
        %w0 = full() {{value={quotient}}} : i32[t]
        %w1 = full() {{value={factor}}} : i32[t]
        %w2 = full() {{value={remainder}}} : i32[t]
        %q = elementwise(%v, %w0) {{fn="floordiv"}} : i32[t]
        %m = elementwise(%q, %w1) {{fn="mul"}} : i32[t]
        %r = elementwise({index}, %w2) {{fn="mod"}} : i32[t]
        %s = elementwise(%r, %m) {{fn="add"}} : i32[t]
        {store_of("i32", "%s")}
    """)


def test_coordinates_that_are_joined_again_are_the_index():
    assert not any("elementwise" in line for line in split_and_joined())


@pytest.mark.parametrize(
    "widths", [(12, 24, 24), (24, 12, 24), (24, 24, 12)], ids=["quotient", "factor", "remainder"]
)
def test_coordinates_of_other_widths_stay(widths: tuple[int, int, int]):
    assert any('fn="floordiv"' in line for line in split_and_joined(widths=widths))


def test_coordinates_of_two_indices_stay():
    assert any('fn="floordiv"' in line for line in split_and_joined(index="%v2"))
