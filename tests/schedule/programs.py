"""Functions as IR text, as the standard passes leave them, for the tests of the schedule layer."""

from __future__ import annotations

from dataclasses import replace

from tests.ir_parser import parse_function
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import GridBarrier


def _tensor(name: str, dtype: str, shape: list[int], strides: list[int] | None = None) -> str:
    if strides is None:
        strides = [1] * len(shape)
        for axis in reversed(range(len(shape) - 1)):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
    # Tensors of different names do not overlap.
    alias = sum(map(ord, name))
    return (
        f'  param %{name}: tensor<{dtype}{shape}, strides={strides}, alias={alias}> from "{name}"'
    )


def pointwise(
    m: int = 4096, n: int = 4096, dtype: str = "f32", transposed: bool = False
) -> Function:
    """``out[tm, tn] = exp(x[tm, tn]) + y[tm, tn]``."""
    strides = [1, m] if transposed else None
    return parse_function(f"""func @pointwise {{
{_tensor("x", dtype, [m, n], strides)}
{_tensor("y", dtype, [m, n])}
{_tensor("out", dtype, [m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={n}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  grid([%c0, %c0], [%cm, %cn]) {{blocks=["tile_m", "tile_n"], slot=0}}
  (%im: i32[], %in: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
    %rn = expand_dims(%tn) {{axes=[0]}} : i32[1, tile_n]
    %a = load(%x, none, [%rm, %rn]) {{slot=0}} : {dtype}[tile_m, tile_n]
    %b = load(%y, none, [%rm, %rn]) {{slot=1}} : {dtype}[tile_m, tile_n]
    %e = elementwise(%a) {{fn="exp"}} : {dtype}[tile_m, tile_n]
    %s = elementwise(%e, %b) {{fn="add"}} : {dtype}[tile_m, tile_n]
    store(%out, %s, none, [%rm, %rn]) {{slot=2}}
  }}
}}
""")


def softmax(m: int = 4096, n: int = 2560) -> Function:
    """``out[t, :] = softmax(x[t, :])`` over whole rows."""
    return parse_function(f"""func @softmax {{
{_tensor("x", "f32", [m, n])}
{_tensor("out", "f32", [m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  grid([%c0], [%cm]) {{blocks=["tile_m"], slot=0}}
  (%im: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %all = arange() : i32[{n}]
    %rn = expand_dims(%all) {{axes=[0]}} : i32[1, {n}]
    %row = load(%x, none, [%rm, %rn]) {{slot=0}} : f32[tile_m, {n}]
    %shown = mask(%row) {{fill=-inf, axes=[1]}} : f32[tile_m, {n}]
    %max = reduce(%shown) {{axis=1, kind="max"}} : f32[tile_m]
    %max1 = expand_dims(%max) {{axes=[1]}} : f32[tile_m, 1]
    %maxb = broadcast(%max1) : f32[tile_m, {n}]
    %low = elementwise(%row, %maxb) {{fn="sub"}} : f32[tile_m, {n}]
    %exp = elementwise(%low) {{fn="exp"}} : f32[tile_m, {n}]
    %kept = mask(%exp) {{fill=0.0, axes=[1]}} : f32[tile_m, {n}]
    %sum = reduce(%kept) {{axis=1, kind="sum"}} : f32[tile_m]
    %sum1 = expand_dims(%sum) {{axes=[1]}} : f32[tile_m, 1]
    %sumb = broadcast(%sum1) : f32[tile_m, {n}]
    %soft = elementwise(%exp, %sumb) {{fn="div"}} : f32[tile_m, {n}]
    store(%out, %soft, none, [%rm, %rn]) {{slot=1}}
  }}
}}
""")


def row_sum_by_tiles(m: int = 512, n: int = 100_000) -> Function:
    """``out[t] = sum over u of x[t, u]`` with the user's own inner loop."""
    return parse_function(f"""func @row_sum {{
{_tensor("x", "f32", [m, n])}
{_tensor("out", "f32", [m])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={n}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  grid([%c0], [%cm]) {{blocks=["tile_m"], slot=0}}
  (%im: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %zero = full() {{value=0.0}} : f32[tile_m]
    %acc = loop([%c0], [%cn], [], [%zero]) {{blocks=["tile_n"], slot=0}} : f32[tile_m]
    (%in: i32[], %old: f32[tile_m]) {{
      %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
      %rn = expand_dims(%tn) {{axes=[0]}} : i32[1, tile_n]
      %part = load(%x, none, [%rm, %rn]) {{slot=0}} : f32[tile_m, tile_n]
      %sum = reduce(%part) {{axis=1, kind="sum"}} : f32[tile_m]
      %new = elementwise(%old, %sum) {{fn="add"}} : f32[tile_m]
      yield(%new)
    }}
    store(%out, %acc, none, [%tm]) {{slot=1}}
  }}
}}
""")


def matmul(
    m: int = 1024, n: int = 1024, k: int = 1024, dtype: str = "bf16", precision: str = "ieee"
) -> Function:
    """``out = x @ y`` with an fp32 accumulator."""
    return parse_function(f"""func @matmul {{
{_tensor("x", dtype, [m, k])}
{_tensor("y", dtype, [k, n])}
{_tensor("out", dtype, [m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={n}, low=1, high=none}}
  block tile_k {{fixed=none, slot=2, extent={k}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  %ck = full() {{value={k}}} : i32[]
  grid([%c0, %c0], [%cm, %cn]) {{blocks=["tile_m", "tile_n"], slot=0}}
  (%im: i32[], %in: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
    %rn = expand_dims(%tn) {{axes=[0]}} : i32[1, tile_n]
    %zero = full() {{value=0.0}} : f32[tile_m, tile_n]
    %acc = loop([%c0], [%ck], [], [%zero]) {{blocks=["tile_k"], slot=0}} : f32[tile_m, tile_n]
    (%ik: i32[], %old: f32[tile_m, tile_n]) {{
      %tk = tile_index(%ik) {{block="tile_k"}} : i32[tile_k]
      %kr = expand_dims(%tk) {{axes=[0]}} : i32[1, tile_k]
      %kc = expand_dims(%tk) {{axes=[1]}} : i32[tile_k, 1]
      %a = load(%x, none, [%rm, %kr]) {{slot=0}} : {dtype}[tile_m, tile_k]
      %b = load(%y, none, [%kc, %rn]) {{slot=1}} : {dtype}[tile_k, tile_n]
      %ma = mask(%a) {{fill=0.0, axes=[1]}} : {dtype}[tile_m, tile_k]
      %mb = mask(%b) {{fill=0.0, axes=[0]}} : {dtype}[tile_k, tile_n]
      %new = dot(%ma, %mb, %old) {{precision="{precision}"}} : f32[tile_m, tile_n]
      yield(%new)
    }}
    %cast = cast(%acc) : {dtype}[tile_m, tile_n]
    store(%out, %cast, none, [%rm, %rn]) {{slot=2}}
  }}
}}
""")


def batched_matmul(batch: int = 4096, m: int = 256, n: int = 256, k: int = 256) -> Function:
    """``out[b] = x[b] @ y[b]``, one matrix per program (a grid over plain indices)."""
    return parse_function(f"""func @bmm {{
{_tensor("x", "bf16", [batch, m, k])}
{_tensor("y", "bf16", [batch, k, n])}
{_tensor("out", "f32", [batch, m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={n}, low=1, high=none}}
  block tile_k {{fixed=none, slot=2, extent={k}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cb = full() {{value={batch}}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  %ck = full() {{value={k}}} : i32[]
  grid([%c0, %c0, %c0], [%cb, %cm, %cn]) {{blocks=["", "tile_m", "tile_n"], slot=0}}
  (%ib: i32[], %im: i32[], %in: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
    %rn = expand_dims(%tn) {{axes=[0]}} : i32[1, tile_n]
    %zero = full() {{value=0.0}} : f32[tile_m, tile_n]
    %acc = loop([%c0], [%ck], [], [%zero]) {{blocks=["tile_k"], slot=0}} : f32[tile_m, tile_n]
    (%ik: i32[], %old: f32[tile_m, tile_n]) {{
      %tk = tile_index(%ik) {{block="tile_k"}} : i32[tile_k]
      %kr = expand_dims(%tk) {{axes=[0]}} : i32[1, tile_k]
      %kc = expand_dims(%tk) {{axes=[1]}} : i32[tile_k, 1]
      %a = load(%x, none, [%ib, %rm, %kr]) {{slot=0}} : bf16[tile_m, tile_k]
      %b = load(%y, none, [%ib, %kc, %rn]) {{slot=1}} : bf16[tile_k, tile_n]
      %new = dot(%a, %b, %old) {{precision="ieee"}} : f32[tile_m, tile_n]
      yield(%new)
    }}
    store(%out, %acc, none, [%ib, %rm, %rn]) {{slot=2}}
  }}
}}
""")


def split_k(m: int = 64, n: int = 64, k: int = 32768, k_block: int = 512) -> Function:
    """Split-K: the grid also walks K in fixed blocks, a loop walks each; atomics join them."""
    return parse_function(f"""func @split_k {{
{_tensor("x", "f16", [m, k])}
{_tensor("y", "f16", [k, n])}
{_tensor("out", "f32", [m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={n}, low=1, high=none}}
  block outer_k {{fixed={k_block}, slot=none, extent={k}, low=1, high=none}}
  block inner_k {{fixed=none, slot=2, extent=none, low=1, high=none}}
  tunable split_k {{value={-(-k // k_block)}}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  %ck = full() {{value={k}}} : i32[]
  grid([%c0, %c0, %c0], [%cm, %cn, %ck]) {{blocks=["tile_m", "tile_n", "outer_k"], slot=0}}
  (%im: i32[], %in: i32[], %io: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
    %rn = expand_dims(%tn) {{axes=[0]}} : i32[1, tile_n]
    %bs = block_size() {{block="outer_k"}} : i32[]
    %stop = elementwise(%io, %bs) {{fn="add"}} : i32[]
    %end = elementwise(%stop, %ck) {{fn="minimum"}} : i32[]
    %zero = full() {{value=0.0}} : f32[tile_m, tile_n]
    %acc = loop([%io], [%end], [], [%zero]) {{blocks=["inner_k"], slot=0}} : f32[tile_m, tile_n]
    (%ik: i32[], %old: f32[tile_m, tile_n]) {{
      %tk = tile_index(%ik) {{block="inner_k"}} : i32[inner_k]
      %kr = expand_dims(%tk) {{axes=[0]}} : i32[1, inner_k]
      %kc = expand_dims(%tk) {{axes=[1]}} : i32[inner_k, 1]
      %a = load(%x, none, [%rm, %kr]) {{slot=0}} : f16[tile_m, inner_k]
      %b = load(%y, none, [%kc, %rn]) {{slot=1, eviction="evict_first"}} : f16[inner_k, tile_n]
      %new = dot(%a, %b, %old) {{precision="ieee"}} : f32[tile_m, tile_n]
      yield(%new)
    }}
    %before = atomic(%out, %acc, none, [%rm, %rn]) {{kind="add", slot=0}} : f32[tile_m, tile_n]
  }}
}}
""")


def nested_tiles(n: int = 1 << 16) -> Function:
    """An inner tile that walks its outer tile, whose size is tuned: ``hl.tile(t.begin, t.end)``."""
    return parse_function(f"""func @nested {{
{_tensor("x", "f32", [n])}
{_tensor("out", "f32", [n])}
  block outer {{fixed=none, slot=0, extent={n}, low=1, high=none}}
  block inner {{fixed=none, slot=1, extent=none, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cn = full() {{value={n}}} : i32[]
  grid([%c0], [%cn]) {{blocks=["outer"], slot=0}}
  (%io: i32[]) {{
    %bs = block_size() {{block="outer"}} : i32[]
    %stop = elementwise(%io, %bs) {{fn="add"}} : i32[]
    %end = elementwise(%stop, %cn) {{fn="minimum"}} : i32[]
    loop([%io], [%end], [], []) {{blocks=["inner"], slot=0, is_ordered=true}}
    (%ii: i32[]) {{
      %ti = tile_index(%ii) {{block="inner"}} : i32[inner]
      %a = load(%x, none, [%ti]) {{slot=0}} : f32[inner]
      store(%out, %a, none, [%ti]) {{slot=1}}
      yield()
    }}
  }}
}}
""")


def attention(
    heads: int = 128, length: int = 4096, width: int = 128, dtype: str = "bf16"
) -> Function:
    """One program per head and row block; a loop over columns with two chained products."""
    return parse_function(f"""func @attention {{
{_tensor("q", dtype, [heads, length, width])}
{_tensor("k", dtype, [heads, length, width])}
{_tensor("v", dtype, [heads, length, width])}
{_tensor("out", dtype, [heads, length, width])}
  block tile_m {{fixed=none, slot=0, extent={length}, low=1, high=none}}
  block tile_n {{fixed=none, slot=1, extent={length}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %ch = full() {{value={heads}}} : i32[]
  %cl = full() {{value={length}}} : i32[]
  grid([%c0, %c0], [%ch, %cl]) {{blocks=["", "tile_m"], slot=0}}
  (%ih: i32[], %im: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %all = arange() : i32[{width}]
    %rd = expand_dims(%all) {{axes=[0]}} : i32[1, {width}]
    %qt = load(%q, none, [%ih, %rm, %rd]) {{slot=0}} : {dtype}[tile_m, {width}]
    %zero = full() {{value=0.0}} : f32[tile_m, {width}]
    %zerol = full() {{value=0.0}} : f32[tile_m]
    %acc, %sum = loop([%c0], [%cl], [], [%zero, %zerol]) {{blocks=["tile_n"], slot=0}}
      : f32[tile_m, {width}], f32[tile_m]
    (%in: i32[], %old: f32[tile_m, {width}], %oldl: f32[tile_m]) {{
      %tn = tile_index(%in) {{block="tile_n"}} : i32[tile_n]
      %rn = expand_dims(%tn) {{axes=[1]}} : i32[tile_n, 1]
      %kt = load(%k, none, [%ih, %rn, %rd]) {{slot=1}} : {dtype}[tile_n, {width}]
      %kp = permute(%kt) {{order=[1, 0]}} : {dtype}[{width}, tile_n]
      %s = dot(%qt, %kp, none) {{precision="ieee"}} : f32[tile_m, tile_n]
      %p = elementwise(%s) {{fn="exp2"}} : f32[tile_m, tile_n]
      %shown = mask(%p) {{fill=0.0, axes=[1]}} : f32[tile_m, tile_n]
      %part = reduce(%shown) {{axis=1, kind="sum"}} : f32[tile_m]
      %newl = elementwise(%oldl, %part) {{fn="add"}} : f32[tile_m]
      %ph = cast(%shown) : {dtype}[tile_m, tile_n]
      %vt = load(%v, none, [%ih, %rn, %rd]) {{slot=2}} : {dtype}[tile_n, {width}]
      %vm = mask(%vt) {{fill=0.0, axes=[0]}} : {dtype}[tile_n, {width}]
      %new = dot(%ph, %vm, %old) {{precision="ieee"}} : f32[tile_m, {width}]
      yield(%new, %newl)
    }}
    %cast = cast(%acc) : {dtype}[tile_m, {width}]
    store(%out, %cast, none, [%ih, %rm, %rd]) {{slot=3}}
  }}
}}
""")


def matmul_row_norm(
    m: int = 8192, n: int = 512, k: int = 512, dtype: str = "bf16", precision: str = "tf32"
) -> Function:
    """``x @ y`` with whole output rows in registers, divided by their sum."""
    return parse_function(f"""func @matmul_row_norm {{
{_tensor("x", dtype, [m, k])}
{_tensor("y", dtype, [k, n])}
{_tensor("out", "f32", [m, n])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_k {{fixed=none, slot=1, extent={k}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  %ck = full() {{value={k}}} : i32[]
  grid([%c0], [%cm]) {{blocks=["tile_m"], slot=0}}
  (%im: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %all = arange() : i32[{n}]
    %rn = expand_dims(%all) {{axes=[0]}} : i32[1, {n}]
    %zero = full() {{value=0.0}} : f32[tile_m, {n}]
    %acc = loop([%c0], [%ck], [], [%zero]) {{blocks=["tile_k"], slot=0}} : f32[tile_m, {n}]
    (%ik: i32[], %old: f32[tile_m, {n}]) {{
      %tk = tile_index(%ik) {{block="tile_k"}} : i32[tile_k]
      %kr = expand_dims(%tk) {{axes=[0]}} : i32[1, tile_k]
      %kc = expand_dims(%tk) {{axes=[1]}} : i32[tile_k, 1]
      %a = load(%x, none, [%rm, %kr]) {{slot=0}} : {dtype}[tile_m, tile_k]
      %b = load(%y, none, [%kc, %rn]) {{slot=1}} : {dtype}[tile_k, {n}]
      %new = dot(%a, %b, %old) {{precision="{precision}"}} : f32[tile_m, {n}]
      yield(%new)
    }}
    %sum = reduce(%acc) {{axis=1, kind="sum"}} : f32[tile_m]
    %sum1 = expand_dims(%sum) {{axes=[1]}} : f32[tile_m, 1]
    %sumb = broadcast(%sum1) : f32[tile_m, {n}]
    %div = elementwise(%acc, %sumb) {{fn="div"}} : f32[tile_m, {n}]
    store(%out, %div, none, [%rm, %rn]) {{slot=2}}
  }}
}}
""")


def gather(rows: int = 1000, m: int = 300, n: int = 64) -> Function:
    """``out[t, :] = table[index[t], :]``; the second loop of the kernel zeroes ``extra``."""
    return parse_function(f"""func @gather {{
{_tensor("table", "f32", [rows, n])}
{_tensor("index", "i32", [m])}
{_tensor("out", "f32", [m, n])}
{_tensor("extra", "f32", [m])}
  block tile_m {{fixed=none, slot=0, extent={m}, low=1, high=none}}
  block tile_e {{fixed=none, slot=1, extent={m}, low=1, high=none}}
  %c0 = full() {{value=0}} : i32[]
  %c1 = full() {{value=1}} : i32[]
  %c4 = full() {{value=4}} : i32[]
  %cm = full() {{value={m}}} : i32[]
  grid([%c0], [%cm]) {{blocks=["tile_m"], slot=0}}
  (%im: i32[]) {{
    %tm = tile_index(%im) {{block="tile_m"}} : i32[tile_m]
    %where = load(%index, none, [%tm]) {{slot=0}} : i32[tile_m]
    %rw = expand_dims(%where) {{axes=[1]}} : i32[tile_m, 1]
    %rm = expand_dims(%tm) {{axes=[1]}} : i32[tile_m, 1]
    %all = arange() : i32[{n}]
    %rn = expand_dims(%all) {{axes=[0]}} : i32[1, {n}]
    loop([%c0], [%c4], [%c1], []) {{blocks=[""], slot=0, is_ordered=true}}
    (%i: i32[]) {{
      %row = load(%table, none, [%rw, %rn]) {{slot=1}} : f32[tile_m, {n}]
      store(%out, %row, none, [%rm, %rn]) {{slot=2}}
      yield()
    }}
  }}
  grid([%c0], [%cm]) {{blocks=["tile_e"], slot=1}}
  (%ie: i32[]) {{
    %te = tile_index(%ie) {{block="tile_e"}} : i32[tile_e]
    %z = full() {{value=0.0}} : f32[tile_e]
    store(%extra, %z, none, [%te]) {{slot=3}}
  }}
}}
""")


def data_dependent(n: int = 1000) -> Function:
    """``out[t] = x[t]`` for the first ``count[0]`` elements only."""
    return parse_function(f"""func @data_dependent {{
{_tensor("x", "f32", [n])}
{_tensor("count", "i32", [1])}
{_tensor("out", "f32", [n])}
  block tile {{slot=0}}
  %c0 = full() {{value=0}} : i32[]
  %end = load(%count, none, [%c0]) {{slot=0}} : i32[]
  grid([%c0], [%end]) {{blocks=["tile"], slot=0}} (%i: i32[]) {{
    %t = tile_index(%i) {{block="tile"}} : i32[tile]
    %a = load(%x, none, [%t]) {{slot=1}} : f32[tile]
    store(%out, %a, none, [%t]) {{slot=2}}
  }}
}}
""")


ALL = {
    "pointwise": pointwise,
    "softmax": softmax,
    "row_sum_by_tiles": row_sum_by_tiles,
    "matmul": matmul,
    "batched_matmul": batched_matmul,
    "split_k": split_k,
    "nested_tiles": nested_tiles,
    "attention": attention,
    "matmul_row_norm": matmul_row_norm,
    "gather": gather,
    "data_dependent": data_dependent,
}


def with_barrier(function: Function) -> Function:
    """The same with a barrier of all programs after its loops."""
    body = function.body
    return function.with_body(replace(body, ops=(*body.ops, GridBarrier())))
