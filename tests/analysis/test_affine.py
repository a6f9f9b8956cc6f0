"""Index tiles are taken apart into bases, offsets and a step along one axis."""

from __future__ import annotations

from tests.passes.program_text import make_program
from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Dim


def affine_of(name: str, body: str) -> tuple[AffineIndex | None, dict[str, int]]:
    """The form of a named value, and its base by name."""
    function = make_program(body)
    values = {v.name: v for op in walk_function(function) for v in op.results}
    found = find_affine(values[name], definitions(function.body))
    return found, {v.name: c for v, c in found.base} if found else {}


def test_tile_index_starts_at_its_tile() -> None:
    found, base = affine_of("i", "")
    assert found is not None
    assert (found.axis, found.dim, found.offset, found.scale) == (0, Dim.of("t"), 0, 1)
    assert base == {"b": 1}


def test_sums_and_multiples_join() -> None:
    found, base = affine_of(
        "r",
        """
        %three = full() {value=3} : i32[t]
        %five = full() {value=5} : i32[t]
        %p = elementwise(%i, %three) {fn="mul"} : i32[t]
        %a1 = expand_dims(%a) {axes=[0]} : i32[1]
        %at = broadcast(%a1) : i32[t]
        %q = elementwise(%p, %at) {fn="sub"} : i32[t]
        %r = elementwise(%q, %five) {fn="add"} : i32[t]
        """,
    )
    assert found is not None
    assert (found.offset, found.scale) == (5, 3)
    assert base == {"b": 3, "a": -1}
    assert found.scale != 1


def test_views_move_the_axis_and_casts_pass() -> None:
    found, _ = affine_of(
        "r",
        """
        %p = expand_dims(%i) {axes=[0]} : i32[1, t]
        %q = permute(%p) {order=[1, 0]} : i32[t, 1]
        %s = broadcast(%q) : i32[t, 7]
        %r = cast(%s) : i64[t, 7]
        """,
    )
    assert found is not None
    assert (found.axis, found.dim) == (0, Dim.of("t"))


def test_slices_have_constant_dims() -> None:
    found, base = affine_of("r", "%r = arange() : i32[60]")
    assert found == AffineIndex(0, Dim.of(60), (), 0, 1)
    assert base == {}


def test_opaque_scalars_are_their_own_base() -> None:
    _, base = affine_of(
        "r",
        """
        %q = elementwise(%a, %b) {fn="mul"} : i32[]
        %r = elementwise(%q, %q) {fn="add"} : i32[]
        """,
    )
    assert base == {"q": 2}


def test_gathers_products_of_tiles_and_two_axes_have_no_form() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %gather = cast(%v) : i32[t]
        %square = elementwise(%i, %i) {fn="mul"} : i32[t]
        %n = arange() : i32[60]
        %i1 = expand_dims(%i) {axes=[1]} : i32[t, 1]
        %n1 = expand_dims(%n) {axes=[0]} : i32[1, 60]
        %ib = broadcast(%i1) : i32[t, 60]
        %nb = broadcast(%n1) : i32[t, 60]
        %flat = elementwise(%ib, %nb) {fn="add"} : i32[t, 60]
    """
    for name in ("gather", "square", "flat"):
        assert affine_of(name, body)[0] is None


def test_difference_of_the_same_tile_is_constant() -> None:
    found, base = affine_of("r", '%r = elementwise(%i, %i) {fn="sub"} : i32[t]')
    assert found == AffineIndex()
    assert base == {}
