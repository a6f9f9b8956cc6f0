"""Emitted modules agree with the reference interpreter under any schedule."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.backends.triton.kernels import block, function, parse, schedule, tensor
from tests.interpreted import run_function
from tests.lowering import emit_triton
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.passes.masks import mask_partial_tiles
from tilesmith.schedule.schedule import AccessOptions

INDEXINGS = ("pointer", "block_ptr", "tensor_descriptor")


def compare(run, text: str, symbols: dict[str, int], *args: torch.Tensor, **options) -> str:
    """Run both and compare all tensors; gives the source for a look at its text."""
    ir = mask_partial_tiles(parse(text))
    artifact = emit_triton(ir, schedule(symbols=symbols, **options), (3, 7))
    names = [parameter.value.name for parameter in ir.parameters]
    expected = dict(zip(names, (arg.clone() for arg in args)))
    run_function(ir, expected, symbols)
    given = dict(zip(names, args))
    used = [parameter.name for parameter in artifact.parameters]
    for name, result in zip(used, run(artifact, *(given[name] for name in used))):
        torch.testing.assert_close(result, expected[name], equal_nan=True)
    return artifact.source


def accesses(indexing: str) -> dict[int, AccessOptions]:
    return {slot: AccessOptions(indexing) for slot in range(8)}


def reduce_rows(dtype: str, result: str, kind: str, n: int) -> str:
    return function(
        "reduce_rows",
        tensor("x", dtype, 9, n),
        tensor("out", result, 9),
        block("tile_m"),
        f"""
        %zero = full() {{value=0}} : i32[]
        %m = full() {{value=9}} : i32[]
        grid([%zero], [%m]) {{blocks=["tile_m"], slot=0}}
        (%m0: i32[]) {{
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          %cols = arange() : i32[{n}]
          %i = expand_dims(%rows) {{axes=[1]}} : i32[tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0]}} : i32[1, {n}]
          %x_tile = load(%x, none, [%i, %j]) {{slot=0}} : {dtype}[tile_m, {n}]
          %r = reduce(%x_tile) {{axis=1, kind="{kind}"}} : {result}[tile_m]
          store(%out, %r, none, [%rows]) {{slot=1}}
        }}
        """,
    )


def sample(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(*shape) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(-5 if dtype.is_signed else 0, 6, shape, dtype=dtype)
    return torch.randn(*shape).to(dtype)


@pytest.mark.parametrize("tile_m", [1, 4])
@pytest.mark.parametrize("n", [1, 13, 16])
@pytest.mark.parametrize("kind", [kind.value for kind in ReduceKind])
def test_reductions_of_floats(run, kind, n, tile_m):
    x = sample(torch.float32, 9, n)
    if kind not in ("sum", "prod"):
        x[2, n // 2] = float("nan")
        x[5, :] = float("-inf")
        x[6, :] = float("inf")
        x[7, :] = 1.0
    result = "bool" if kind in ("any", "all") else "i64" if kind.startswith("arg") else "f32"
    if result == "bool":
        x = (x > 0).float()
    dtype = {"bool": torch.bool, "i64": torch.int64, "f32": torch.float32}[result]
    out = torch.zeros(9, dtype=dtype)
    compare(run, reduce_rows("f32", result, kind, n), {"tile_m": tile_m}, x, out)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("bool", "any"),
        ("bool", "all"),
        *itertools.product(
            ("i8", "i32", "i64", "u8", "f16", "f64"),
            ("sum", "max", "min", "argmax", "prod", "any"),
        ),
    ],
)
def test_reductions_keep_the_element_type(run, kind, dtype):
    torch_dtype = {
        "i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
        "bool": torch.bool, "f16": torch.float16, "f64": torch.float64,
    }[dtype]  # fmt: skip
    x = sample(torch_dtype, 9, 5)
    result = "bool" if kind in ("any", "all") else "i32" if kind == "argmax" else dtype
    out_dtype = {"bool": torch.bool, "i32": torch.int32}.get(result, torch_dtype)
    out = torch.zeros(9, dtype=out_dtype)
    compare(run, reduce_rows(dtype, result, kind, 5), {"tile_m": 4}, x, out)


def shuffle(m: int) -> str:
    """A row of 8 as 2 x 4, transposed, as a row again; and merged with the tile axis."""
    return function(
        "shuffle",
        tensor("x", "f32", m, 8),
        tensor("out", "f32", m, 8),
        tensor("flat", "f32", m * 8),
        block("tile_m"),
        f"""
        %zero = full() {{value=0}} : i32[]
        %m = full() {{value={m}}} : i32[]
        grid([%zero], [%m]) {{blocks=["tile_m"], slot=0}}
        (%m0: i32[]) {{
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          %cols = arange() : i32[8]
          %i = expand_dims(%rows) {{axes=[1]}} : i32[tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0]}} : i32[1, 8]
          %x_tile = load(%x, none, [%i, %j]) {{slot=0}} : f32[tile_m, 8]
          %a = reshape(%x_tile) : f32[tile_m, 2, 4]
          %b = permute(%a) {{order=[0, 2, 1]}} : f32[tile_m, 4, 2]
          %c = reshape(%b) : f32[tile_m, 8]
          store(%out, %c, none, [%i, %j]) {{slot=1}}
          %eight = full() {{value=8}} : i32[tile_m, 1]
          %base = elementwise(%i, %eight) {{fn="mul"}} : i32[tile_m, 1]
          %base2 = broadcast(%base) : i32[tile_m, 8]
          %j2 = broadcast(%j) : i32[tile_m, 8]
          %where = elementwise(%base2, %j2) {{fn="add"}} : i32[tile_m, 8]
          %index = reshape(%where) : i32[tile_m*8]
          %values = reshape(%x_tile) : f32[tile_m*8]
          store(%flat, %values, none, [%index]) {{slot=2}}
        }}
        """,
    )


@pytest.mark.parametrize("tile_m", [1, 2, 8])
@pytest.mark.parametrize("m", [1, 7, 8])
def test_views_rearrange_lanes(run, m, tile_m):
    x = sample(torch.float32, m, 8)
    compare(run, shuffle(m), {"tile_m": tile_m}, x, torch.zeros(m, 8), torch.zeros(m * 8))


def transposed_copy(m: int, n: int, strides: tuple[int, ...]) -> str:
    """``out[n, m] = x[m, n].T`` with the strides of x given."""
    return function(
        "transposed_copy",
        tensor("x", "f32", m, n, stride=strides),
        tensor("out", "f32", n, m),
        block("tile_m", 0),
        block("tile_n", 1),
        f"""
        %zero = full() {{value=0}} : i32[]
        %m = full() {{value={m}}} : i32[]
        %n = full() {{value={n}}} : i32[]
        grid([%zero, %zero], [%m, %n]) {{blocks=["tile_m", "tile_n"], slot=0}}
        (%m0: i32[], %n0: i32[]) {{
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          %cols = tile_index(%n0) {{block="tile_n"}} : i32[tile_n]
          %i = expand_dims(%rows) {{axes=[1]}} : i32[tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0]}} : i32[1, tile_n]
          %x_tile = load(%x, none, [%i, %j]) {{slot=0}} : f32[tile_m, tile_n]
          %t = permute(%x_tile) {{order=[1, 0]}} : f32[tile_n, tile_m]
          %p = expand_dims(%cols) {{axes=[1]}} : i32[tile_n, 1]
          %q = expand_dims(%rows) {{axes=[0]}} : i32[1, tile_m]
          store(%out, %t, none, [%p, %q]) {{slot=1}}
        }}
        """,
    )


@pytest.mark.parametrize("indexing", INDEXINGS)
@pytest.mark.parametrize("tiles", [(4, 4), (16, 8), (1, 16), (8, 1)])
@pytest.mark.parametrize("layout", ["rows", "columns", "padded"])
def test_access_forms_agree_on_partial_tiles(run, indexing, tiles, layout):
    m, n = 20, 12
    x = {
        "rows": torch.randn(m, n),
        "columns": torch.randn(n, m).t(),
        "padded": torch.randn(m, 2 * n)[:, :n],
    }[layout]
    text = transposed_copy(m, n, x.stride())
    symbols = {"tile_m": tiles[0], "tile_n": tiles[1]}
    out = torch.full((n, m), -7.0)
    source = compare(run, text, symbols, x, out, accesses=accesses(indexing))
    if min(tiles) > 1:
        assert ("make_block_ptr" in source) == (indexing == "block_ptr")
        assert ("TensorDescriptor(" in source) == (indexing == "tensor_descriptor")


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("tiles", [(64, 4), (128, 16), (16, 8)])
def test_tiles_stored_in_parts_are_whole(run, parts, tiles):
    m, n = 200, 12
    out = torch.full((n, m), -7.0)
    symbols = {"tile_m": tiles[0], "tile_n": tiles[1]}
    source = compare(
        run,
        transposed_copy(m, n, (n, 1)),
        symbols,
        torch.randn(m, n),
        out,
        accesses=accesses("tensor_descriptor"),
        store_parts=parts,
    )
    # A row of a part has 64 bytes at least.
    assert source.count("out_desc.store") == min(parts, tiles[0] // 16)


def batched(b: int, m: int, n: int, k: int, dtype: str, result: str) -> str:
    tile = f"{result}[tile_b, tile_m, tile_n]"
    return function(
        "batched",
        tensor("x", dtype, b, m, k),
        tensor("y", dtype, b, k, n),
        tensor("out", result, b, m, n),
        block("tile_b", 0),
        block("tile_m", 1),
        block("tile_n", 2),
        block("tile_k", 3),
        f"""
        %zero = full() {{value=0}} : i32[]
        %b = full() {{value={b}}} : i32[]
        %m = full() {{value={m}}} : i32[]
        %n = full() {{value={n}}} : i32[]
        %k = full() {{value={k}}} : i32[]
        grid([%zero, %zero, %zero], [%b, %m, %n]) {{blocks=["tile_b", "tile_m", "tile_n"], slot=0}}
        (%b0: i32[], %m0: i32[], %n0: i32[]) {{
          %start = full() {{value=0}} : {result}[tile_b, tile_m, tile_n]
          %batch = tile_index(%b0) {{block="tile_b"}} : i32[tile_b]
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          %cols = tile_index(%n0) {{block="tile_n"}} : i32[tile_n]
          %h = expand_dims(%batch) {{axes=[1, 2]}} : i32[tile_b, 1, 1]
          %i = expand_dims(%rows) {{axes=[0, 2]}} : i32[1, tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0, 1]}} : i32[1, 1, tile_n]
          %acc = loop([%zero], [%k], [], [%start]) {{blocks=["tile_k"]}} : {tile}
          (%k0: i32[], %before: {tile}) {{
            %inner = tile_index(%k0) {{block="tile_k"}} : i32[tile_k]
            %p = expand_dims(%inner) {{axes=[0, 1]}} : i32[1, 1, tile_k]
            %q = expand_dims(%inner) {{axes=[0, 2]}} : i32[1, tile_k, 1]
            %x_tile = load(%x, none, [%h, %i, %p]) {{slot=0}} : {dtype}[tile_b, tile_m, tile_k]
            %y_tile = load(%y, none, [%h, %q, %j]) {{slot=1}} : {dtype}[tile_b, tile_k, tile_n]
            %after = dot(%x_tile, %y_tile, %before) {{precision="ieee"}} : {tile}
            yield(%after)
          }}
          store(%out, %acc, none, [%h, %i, %j]) {{slot=2}}
        }}
        """,
    )


@pytest.mark.parametrize(
    "tiles",
    [
        (1, 16, 16, 16),
        (2, 16, 16, 16),
        (1, 1, 16, 16),
        (1, 16, 1, 16),
        (1, 16, 16, 1),
        (2, 4, 4, 4),
        (1, 1, 1, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("indexing", INDEXINGS)
def test_batched_products_with_small_and_single_axes(run, tiles, indexing):
    b, m, n, k = 3, 5, 9, 20
    symbols = {f"tile_{axis}": size for axis, size in zip("bmnk", tiles)}
    x, y = torch.randint(-4, 5, (b, m, k)).float(), torch.randint(-4, 5, (b, k, n)).float()
    text = batched(b, m, n, k, "f32", "f32")
    source = compare(run, text, symbols, x, y, torch.zeros(b, m, n), accesses=accesses(indexing))
    # A single row or column is no matrix.
    assert ("tl.dot" in source) == (tiles[3] >= 16 and 1 not in tiles[1:3])
    if tiles[0] == 1:
        assert "[:, :, None]" not in source or tiles[3] < 16


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("f16", "f32"), ("f16", "f16"), ("f64", "f64"), ("i8", "i32"), ("f32", "f64")],
)
def test_products_accumulate_in_the_result_type(run, dtype, result):
    names = {
        "f16": torch.float16,
        "f32": torch.float32,
        "f64": torch.float64,
        "i8": torch.int8,
        "i32": torch.int32,
    }
    symbols = {"tile_b": 1, "tile_m": 16, "tile_n": 16, "tile_k": 32}
    x = torch.randint(-4, 5, (2, 5, 40)).to(names[dtype])
    y = torch.randint(-4, 5, (2, 40, 9)).to(names[dtype])
    text = batched(2, 5, 9, 40, dtype, result)
    source = compare(run, text, symbols, x, y, torch.zeros(2, 5, 9, dtype=names[result]))
    assert 'input_precision="ieee"' in source


GATHER = function(
    "gather",
    tensor("index", "i64", 10),
    tensor("table", "f32", 6, 4, wide=True),
    tensor("out", "f32", 10, 4),
    tensor("counts", "i32", 6),
    tensor("seen", "i32", 10),
    block("tile_m", 0),
    """
    %zero = full() {value=0} : i32[]
    %ten = full() {value=10} : i32[]
    grid([%zero], [%ten]) {blocks=["tile_m"], slot=0}
    (%m0: i32[]) {
      %rows = tile_index(%m0) {block="tile_m"} : i32[tile_m]
      %at = load(%index, none, [%rows]) {slot=0} : i64[tile_m]
      %at32 = cast(%at) : i32[tile_m]
      %three = full() {value=3} : i32[tile_m]
      %ok = elementwise(%at32, %three) {fn="ge"} : bool[tile_m]
      %okc = expand_dims(%ok) {axes=[1]} : bool[tile_m, 1]
      %cols = arange() : i32[4]
      %i = expand_dims(%at32) {axes=[1]} : i32[tile_m, 1]
      %j = expand_dims(%cols) {axes=[0]} : i32[1, 4]
      %values = load(%table, %okc, [%i, %j]) {slot=1, eviction="evict_last"} : f32[tile_m, 4]
      %p = expand_dims(%rows) {axes=[1]} : i32[tile_m, 1]
      store(%out, %values, none, [%p, %j]) {slot=2}
      %one = full() {value=1} : i32[tile_m]
      %old = atomic(%counts, %one, %ok, [%at]) {kind="add", order="acq_rel", slot=0} : i32[tile_m]
      %none = atomic(%seen, %at32, none, [%rows]) {kind="xchg", slot=1} : i32[tile_m]
    }
    """,
)


@pytest.mark.parametrize("tile_m", [1, 4, 16])
def test_gathers_masks_and_atomics(run, tile_m):
    args = (
        torch.randint(6, (10,)),
        torch.randn(6, 4),
        torch.zeros(10, 4),
        torch.zeros(6, dtype=torch.int32),
        torch.zeros(10, dtype=torch.int32),
    )
    source = compare(run, GATHER, {"tile_m": tile_m}, *args, accesses=accesses("tensor_descriptor"))
    assert 'eviction_policy="evict_last"' in source
    assert 'sem="acq_rel"' in source
    # Only the table is too large for 32-bit offsets.
    assert ".to(tl.int64) * 4" in source


def scalars(dtype: str, text: str) -> str:
    return function(
        "scalars",
        tensor("x", dtype, 12),
        tensor("y", dtype, 12),
        tensor("out", dtype, 12),
        f"""
        %zero = full() {{value=0}} : i32[]
        %n = full() {{value=12}} : i32[]
        grid([%zero], [%n]) {{blocks=[""], slot=0}}
        (%i: i32[]) {{
          %a = load(%x, none, [%i]) {{slot=0}} : {dtype}[]
          %b = load(%y, none, [%i]) {{slot=1}} : {dtype}[]
          {text}
          store(%out, %r, none, [%i]) {{slot=2}}
        }}
        """,
    )


@pytest.mark.parametrize("fn", ["floordiv", "truncdiv", "mod", "fmod", "maximum", "pow", "shr"])
def test_integer_functions_of_scalars(run, fn):
    x = torch.tensor([7, -7, 7, -7, 0, 1, -1, 6, -6, 2, 100, -100], dtype=torch.int32)
    y = torch.tensor([2, 2, -2, -2, 3, 1, 1, 3, 3, 5, 7, 7], dtype=torch.int32)
    if fn in ("pow", "shr"):
        y = y.abs()
    text = scalars("i32", f'%r = elementwise(%a, %b) {{fn="{fn}"}} : i32[]')
    compare(run, text, {}, x, y, torch.zeros(12, dtype=torch.int32))


@pytest.mark.parametrize(
    "fn", ["floordiv", "truncdiv", "mod", "fmod", "maximum", "minimum", "pow", "div"]
)
def test_float_functions_of_scalars(run, fn):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([7, -7, 7, -7, 0.0, 1, -1, 6.5, nan, 2, inf, 1e10])
    y = torch.tensor([2, 2, -2, -2, 3, nan, 0.3, 3.25, 3, 0.1, 7, 7])
    text = scalars("f32", f'%r = elementwise(%a, %b) {{fn="{fn}"}} : f32[]')
    compare(run, text, {}, x, y, torch.zeros(12))


@pytest.mark.parametrize(
    ("via", "dtype"),
    [("bool", "f32"), ("i32", "f32"), ("f16", "f32"), ("f64", "f32"), ("u8", "i32"), ("i8", "i32")],
)
def test_casts_of_scalars(run, via, dtype):
    torch_dtype = torch.float32 if dtype == "f32" else torch.int32
    x = torch.tensor([0, 1, 2, 3.7, 100, 127, 0.1, 1.5, 2.5, 8, 9, 10]).to(torch_dtype)
    text = scalars(dtype, f"%v = cast(%a) : {via}[]\n%r = cast(%v) : {dtype}[]")
    compare(run, text, {}, x, x.clone(), torch.zeros(12, dtype=torch_dtype))


def wide_copy(begin: int, extent: str) -> str:
    """A copy with 64-bit loop indices, up to a literal or a parameter."""
    return function(
        "wide_copy",
        tensor("x", "f32", 9, 6, wide=True),
        tensor("out", "f32", 9, 6, wide=True),
        'param %n: i64[] from "n"',
        block("tile_m", 0),
        block("tile_n", 1),
        f"""
        %zero = full() {{value=0}} : i64[]
        %begin = full() {{value={begin}}} : i64[]
        %nine = full() {{value=9}} : i64[]
        %six = full() {{value=6}} : i64[]
        grid([%zero], [%nine]) {{blocks=["tile_m"], slot=0}}
        (%m0: i64[]) {{
          %rows = tile_index(%m0) {{block="tile_m"}} : i64[tile_m]
          %i = expand_dims(%rows) {{axes=[1]}} : i64[tile_m, 1]
          loop([%begin], [%{extent}], [], []) {{blocks=["tile_n"], slot=0}}
          (%n0: i64[]) {{
            %cols = tile_index(%n0) {{block="tile_n"}} : i64[tile_n]
            %j = expand_dims(%cols) {{axes=[0]}} : i64[1, tile_n]
            %x_tile = load(%x, none, [%i, %j]) {{slot=0}} : f32[tile_m, tile_n]
            store(%out, %x_tile, none, [%i, %j]) {{slot=1}}
            yield()
          }}
        }}
        """,
    )


@pytest.mark.parametrize("extent", ["six", "n"])
@pytest.mark.parametrize("tiles", [(1, 1), (4, 4), (16, 2)])
def test_64_bit_indices(run, tiles, extent):
    symbols = {"tile_m": tiles[0], "tile_n": tiles[1]}
    ir = parse(wide_copy(1, extent))
    artifact = emit_triton(ir, schedule(symbols=symbols, accesses=accesses("tensor_descriptor")))
    x, out = torch.randn(9, 6), torch.zeros(9, 6)
    given = {"x": x, "out": out, "n": 6}
    result = run(artifact, *(given[parameter.name] for parameter in artifact.parameters))[1]
    assert torch.equal(result[:, 1:], x[:, 1:])
    assert (result[:, 0] == 0).all()
    # A literal bound gives Triton a 32-bit loop variable.
    assert ("tl.cast(offset_n, tl.int64)" in artifact.source) == (extent == "six")


def test_sums_are_as_wide_as_their_result(run):
    x = torch.full((9, 5), 2**30, dtype=torch.int32)
    out = torch.zeros(9, dtype=torch.int64)
    compare(run, reduce_rows("i32", "i64", "sum", 5), {"tile_m": 4}, x, out)
