"""Matrix products against fp64, with partial tiles, batches, accumulators and integers."""

from __future__ import annotations

import pytest
import torch

from tests.interpreter.run_text import in_program, run_text
from tilesmith.interpreter.torch_dtypes import from_torch

TILED = """
  grid([%zero, %zero], [%m_end, %n_end]) {{blocks=["m", "n"]}} (%bm: i64[], %bn: i64[]) {{
    %im = tile_index(%bm) {{block="m"}} : i64[m]
    %in = tile_index(%bn) {{block="n"}} : i64[n]
    %rows = expand_dims(%im) {{axes=[1]}} : i64[m, 1]
    %columns = expand_dims(%in) {{axes=[0]}} : i64[1, n]
    %acc = full() {{value=0}} : {result}[m, n]
    %sum = loop([%zero], [%k_end], [], [%acc]) {{blocks=["k"]}} : {result}[m, n] \
(%bk: i64[], %carried: {result}[m, n]) {{
      %ik = tile_index(%bk) {{block="k"}} : i64[k]
      %inner = expand_dims(%ik) {{axes=[0]}} : i64[1, k]
      %outer = expand_dims(%ik) {{axes=[1]}} : i64[k, 1]
      %a = load(%x, none, [%rows, %inner]) : {dtype}[m, k]
      %b = load(%y, none, [%outer, %columns]) : {dtype}[k, n]
      %next = dot(%a, %b, %carried) : {result}[m, n]
      yield(%next)
    }}
    store(%out, %sum, none, [%rows, %columns])
  }}"""


def tiled_matmul(x: torch.Tensor, y: torch.Tensor, result: torch.dtype) -> torch.Tensor:
    out = torch.empty(x.shape[0], y.shape[1], dtype=result)
    arguments = {"x": x, "y": y, "out": out, "m_end": x.shape[0], "n_end": y.shape[1]}
    arguments["k_end"] = x.shape[1]
    text = TILED.format(dtype=from_torch(x.dtype), result=from_torch(result))
    run_text(text, arguments, {"m": 4, "n": 8, "k": 16}, reduction_length=x.shape[1])
    return out


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (4, 8, 16), (5, 9, 17), (3, 7, 15), (7, 13, 0)]
)
def test_tiled_matmul_accumulates_in_the_result_type(m: int, n: int, k: int, dtype: torch.dtype):
    result = torch.float64 if dtype is torch.float64 else torch.float32
    x, y = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    expected = x.double() @ y.double()
    magnitude = x.double().abs() @ y.double().abs()
    error = (tiled_matmul(x, y, result).double() - expected).abs()
    # Half products are exact in fp32, so only the sum of k terms rounds.
    assert (error <= max(k, 1) * torch.finfo(result).eps * magnitude).all()


def test_operands_of_any_strides():
    x, y = random(9, 6, dtype=torch.float64).t(), random(18, 10, dtype=torch.float64)[::2, ::2]
    torch.testing.assert_close(tiled_matmul(x, y, torch.float64), x @ y, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_integer_products_wrap_in_int32(dtype: torch.dtype):
    limits = torch.iinfo(dtype)
    rows = [[limits.min, limits.max, 3], [limits.min] * 3, [limits.max] * 3]
    x = torch.tensor(rows + rows, dtype=dtype)
    y = torch.tensor([[limits.min, limits.max]] * 3, dtype=dtype)
    exact = [
        [sum(int(a) * int(b) for a, b in zip(row, column)) for column in y.t().tolist()]
        for row in x.tolist()
    ]
    wrapped = [[(value + 2**31) % 2**32 - 2**31 for value in row] for row in exact]
    assert tiled_matmul(x, y, torch.int32).tolist() == wrapped


@pytest.mark.parametrize("has_acc", [True, False])
@pytest.mark.parametrize("result", [torch.float16, torch.float32])
def test_batched_product(result: torch.dtype, has_acc: bool):
    x, y = random(3, 4, 5, dtype=torch.float16), random(3, 5, 2, dtype=torch.float16)
    acc, out = random(3, 4, 2, dtype=result), torch.empty(3, 4, 2, dtype=result)

    def indices(shape: tuple[int, ...], prefix: str) -> tuple[str, str]:
        lines, names = [], []
        for axis, size in enumerate(shape):
            others = [i for i in range(3) if i != axis]
            lines.append(f"%{prefix}a{axis} = arange() : i64[{size}]")
            dims = ", ".join(str(size) if i == axis else "1" for i in range(3))
            lines.append(
                f"%{prefix}{axis} = expand_dims(%{prefix}a{axis}) {{axes={others}}} : i64[{dims}]"
            )
            names.append(f"%{prefix}{axis}")
        return "\n".join(lines), ", ".join(names)

    (x_text, x_at), (y_text, y_at) = indices((3, 4, 5), "x"), indices((3, 5, 2), "y")
    out_text, out_at = indices((3, 4, 2), "o")
    name = from_torch(result)
    body = f"""
    {x_text}
    {y_text}
    {out_text}
    %a = load(%x, none, [{x_at}]) : f16[3, 4, 5]
    %b = load(%y, none, [{y_at}]) : f16[3, 5, 2]
    %c = load(%acc, none, [{out_at}]) : {name}[3, 4, 2]
    %d = dot(%a, %b, {"%c" if has_acc else "none"}) {{precision="tf32"}} : {name}[3, 4, 2]
    store(%out, %d, none, [{out_at}])"""
    run_text(in_program(body), {"x": x, "y": y, "acc": acc, "out": out}, {})
    expected = x.double() @ y.double() + (acc.double() if has_acc else 0)
    magnitude = x.double().abs() @ y.double().abs() + acc.double().abs()
    bound = 6 * torch.finfo(torch.float32).eps * magnitude
    bound += torch.finfo(result).eps / 2 * expected.abs()
    assert ((out.double() - expected).abs() <= bound).all()
