"""Arguments from text: what is understood, what is not, and that nothing is executed."""

from __future__ import annotations

import json

import pytest
import torch

from tilesmith.lab.workload.argument_text import (
    FACTORIES,
    ArgumentTextError,
    find_dtype,
    parse_arguments,
)


def one(text: str, **options):
    (value,) = parse_arguments(text, **options).positional
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5e-3", -2.5e-3),
        ("None", None),
        ("True", True),
        ("'text'", "text"),
        ("[1, (2, None)]", [1, (2, None)]),
        ("4 * 1024 + 2**3 - 7 // 2", 4101),
        ("1 << 20", 1 << 20),
        ("-inf", float("-inf")),
        ("torch.bfloat16", torch.bfloat16),
        ("bf16", torch.bfloat16),
        ("float8_e5m2", torch.float8_e5m2),
        ("bool", torch.bool),
    ],
)
def test_plain_values(text, value):
    found = one(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "shape", "stride", "dtype"),
    [
        ("randn(3, 5)", (3, 5), (5, 1), torch.float32),
        ("torch.randn(3, 5, dtype=torch.float16)", (3, 5), (5, 1), torch.float16),
        ("rand((3, 5), dtype='bf16')", (3, 5), (5, 1), torch.bfloat16),
        ("randn(4, dtype=fp8)", (4,), (1,), torch.float8_e4m3fn),
        ("zeros(2, 3).T", (3, 2), (1, 3), torch.float32),
        ("ones(2, 3).t()", (3, 2), (1, 3), torch.float32),
        ("transposed(ones(7, 2, 3))", (7, 3, 2), (6, 1, 3), torch.float32),
        ("empty(0, 3, dtype=i8)", (0, 3), (3, 1), torch.int8),
        ("randint(0, 10, (7,), dtype=i32)", (7,), (1,), torch.int32),
        ("arange(7)", (7,), (1,), torch.int64),
        ("full((2, 3), 1.5)", (2, 3), (3, 1), torch.float32),
        ("randn(8, 9)[::2, 1:]", (4, 8), (18, 1), torch.float32),
        ("randn(2, 3, 4).permute(2, 0, 1)", (4, 2, 3), (1, 12, 4), torch.float32),
        ("randn(2, 3).T.contiguous()", (3, 2), (2, 1), torch.float32),
        ("randn(1, 3).expand(5, 3)", (5, 3), (0, 1), torch.float32),
    ],
)
def test_tensors(text, shape, stride, dtype):
    tensor = one(text)
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (shape, stride, dtype)


def test_a_tensor_may_be_made_on_another_device():
    assert one("randn(3, device='meta')").device.type == "meta"
    assert one("zeros(3)", device="meta").device.type == "meta"


def test_random_numbers_follow_the_seed():
    first, again, other = (one("randn(50)", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    left, right = parse_arguments("randn(50), randn(50)").positional
    assert not torch.equal(left, right)


def test_values_are_what_the_function_says():
    assert one("full((2,), 1.5)").tolist() == [1.5, 1.5]
    assert one("arange(3)").tolist() == [0, 1, 2]
    numbers = one("randint(3, 5, (200,))")
    assert set(numbers.tolist()) == {3, 4}


def test_several_arguments_and_keywords():
    found = parse_arguments("zeros(2),\n 3, eps=1e-5, mode='a'")
    assert found.positional[1] == 3
    assert dict(found.keywords) == {"eps": 1e-5, "mode": "a"}
    assert parse_arguments("").positional == ()


@pytest.mark.parametrize(
    ("text", "problem", "marked"),
    [
        ("randnn(4)", "did you mean randn", "randnn"),
        ("zeros(4), bf17", "did you mean bf16", "bf17"),
        ("torch.bfloat17", "did you mean bfloat16", "torch.bfloat17"),
        ("zeros(4).numpy()", "unknown view 'numpy'", "zeros(4).numpy"),
        ("zeros(4).grad", "unknown view 'grad'", "zeros(4).grad"),
        ("zeros(4).t", "unknown view 't'; did you mean", "zeros(4).t"),
        ("randn(-1)", "negative dimension", "randn(-1)"),
        ("zeros(2)[5]", "out of bounds", "zeros(2)[5]"),
        ("1 // 0", "zero", "1 // 0"),
        ("'a' * 9", "only numbers can be combined", "'a'"),
        ("10**10**10", "exponents go up to 64", "10**10"),
        ("zeros(2) + 1", "only numbers can be combined", "zeros(2)"),
        ("{1: 2}", "not understood", "{1: 2}"),
        ("[x for x in y]", "not understood", "[x for x in y]"),
        ("lambda: 0", "not understood", "lambda: 0"),
        ("*[1]", "not understood", "*[1]"),
        ("b'x'", "not understood", "b'x'"),
        ("zeros(2, dtype='bf17')", "did you mean bf16", "zeros(2, dtype='bf17')"),
        ("zeros(2, **{})", "** is not understood", "{}"),
        ("zeros(é)", "unknown name 'é'", "é"),
        ("(3).real", "only a tensor has views", "3"),
    ],
)
def test_mistakes_are_pointed_at(text, problem, marked):
    with pytest.raises(ArgumentTextError) as caught:
        parse_arguments(text)
    message, line, marks = str(caught.value).splitlines()
    assert problem in message
    assert line == f"  {text}"
    start = marks.index("^")
    assert line[start : len(marks)] == marked


@pytest.mark.parametrize("text", ["randn(4", "3 3", "1)+(2", "randn(4)).t(", "1)(2", ")"])
def test_text_that_does_not_parse_has_a_mark(text):
    with pytest.raises(ArgumentTextError) as caught:
        parse_arguments(text)
    assert "^" in str(caught.value).splitlines()[2]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "zeros(1).__class__",
        "torch.load('x')",
        "torch.ops.load_library('x')",
        "zeros(1).storage()",
        "eval('1')",
        "zeros.__globals__",
        "(lambda: 0)()",
        "zeros(1).to.__self__",
    ],
)
def test_nothing_else_can_be_reached(text):
    with pytest.raises(ArgumentTextError):
        parse_arguments(text)


def test_all_factories_take_sizes():
    for name in FACTORIES:
        sizes = {"randint": "0, 9, (4,)", "full": "(4,), 2.0"}.get(name, "4")
        assert tuple(one(f"{name}({sizes}, dtype=f32)").shape) == (4,)


def test_short_names_of_types():
    assert find_dtype("i64") is torch.int64
    assert find_dtype("half") is torch.float16
    assert find_dtype("nn") is None
    assert find_dtype("tensor") is None


def test_a_file_has_expressions_as_strings(tmp_path):
    path = tmp_path / "arguments.json"
    path.write_text(json.dumps(["randn(2, 3)", 4, [1, "zeros(2)"], None]))
    tensor, number, items, nothing = parse_arguments(f"@{path}").positional
    assert tuple(tensor.shape) == (2, 3)
    assert (number, items[0], nothing) == (4, 1, None)
    assert tuple(items[1].shape) == (2,)
    path.write_text(json.dumps({"x": "zeros(3)", "eps": 0.5}))
    keywords = dict(parse_arguments(f"@{path}").keywords)
    assert set(keywords) == {"x", "eps"}


@pytest.mark.parametrize("content", ["3", "{", '["zeros(2), 3"]'])
def test_a_file_with_something_else_is_a_mistake(content, tmp_path):
    path = tmp_path / "arguments.json"
    path.write_text(content)
    with pytest.raises(ArgumentTextError):
        parse_arguments(f"@{path}")


def test_a_file_that_is_missing_is_a_mistake():
    with pytest.raises(ArgumentTextError, match="cannot read arguments"):
        parse_arguments("@nowhere.json")


@pytest.mark.parametrize("text", ["randn(2)", "zeros(2)"])
def test_a_gpu_that_is_not_there(text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentTextError, match="PyTorch finds no GPU here"):
        parse_arguments(text, device="cuda")
