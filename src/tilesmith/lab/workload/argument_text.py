"""Arguments of a kernel from text: ``randn(64, 128, dtype=bf16), 3, None``.

Only what is listed here is understood: the text is parsed, never executed. A mistake is an
``ArgumentTextError`` that points at its place.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from tilesmith.diagnostics.file_problems import file_problem

DTYPE_ALIASES = {
    "bf16": torch.bfloat16, "f16": torch.float16, "fp16": torch.float16, "f32": torch.float32,
    "fp32": torch.float32, "f64": torch.float64, "fp64": torch.float64, "fp8": torch.float8_e4m3fn,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
    **{f"i{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)}, "u8": torch.uint8,
}  # fmt: skip
NAMES: dict[str, Any] = {"inf": float("inf"), "nan": float("nan"), "bool": torch.bool}
FACTORIES = ("randn", "rand", "zeros", "ones", "full", "empty", "randint", "arange")
VIEWS = ("t", "transpose", "permute", "contiguous", "to", "view", "reshape", "expand", "unsqueeze")
PROPERTIES = ("T", "mT")
TRANSPOSED = "transposed"
FUNCTIONS = (*FACTORIES, TRANSPOSED)
MAX_EXPONENT = 64
_OPENING = "_("

_MISTAKES = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch raises for arguments it cannot take; AssertionError: it was built without CUDA."""
_OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip


class ArgumentTextError(ValueError):
    """Text that does not stand for arguments, shown with the place of the mistake."""

    def __init__(self, problem: str, text: str, start: int = 0, end: int | None = None) -> None:
        self.problem = problem
        start = min(max(start, 0), len(text))
        width = max((len(text) if end is None else end) - start, 1)
        super().__init__(f"{problem}\n  {text}\n  {' ' * start}{'^' * width}")


@dataclass(frozen=True)
class Arguments:
    """What a kernel is called with."""

    positional: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()


def parse_arguments(text: str, *, device: str = "cpu", seed: int = 0) -> Arguments:
    """Arguments from an expression list; ``@file.json`` reads them from a file.

    Example:
        >>> parse_arguments("zeros(2, 3).T, 4, eps=1e-5").keywords
        (('eps', 1e-05),)
    """
    reader = _Reader(device, seed)
    if text.startswith("@"):
        return _from_file(Path(text[1:]), reader)
    return reader.read(text)


def _from_file(path: Path, reader: _Reader) -> Arguments:
    """A JSON list or object; strings in it are expressions, other values stand for themselves."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = f"cannot read arguments: {file_problem(error, path)}"
        raise ArgumentTextError(problem, f"@{path}", 1) from None
    if isinstance(content, dict):
        return Arguments((), tuple((str(n), _from_json(v, reader)) for n, v in content.items()))
    if isinstance(content, list):
        return Arguments(tuple(_from_json(value, reader) for value in content))
    raise ArgumentTextError("the file must hold a JSON list or object", f"@{path}", 1)


def _from_json(value: Any, reader: _Reader) -> Any:
    if isinstance(value, str):
        return reader.read_one(value)
    return [_from_json(item, reader) for item in value] if isinstance(value, list) else value


class _Reader(ast.NodeVisitor):
    """Evaluates the expressions of one call, with one random generator."""

    def __init__(self, device: str, seed: int) -> None:
        try:
            self._device = torch.device(device)
        except RuntimeError as error:
            raise ArgumentTextError("unknown device; expected cpu or cuda", device) from error
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._text = ""

    def read(self, text: str) -> Arguments:
        """All arguments of a call."""
        # Brackets may span lines; in one line every place is a column.
        self._text = " ".join(text.splitlines())
        call = self._parse()
        positional = tuple(map(self.visit, call.args))
        keywords = tuple((self._keyword(k), self.visit(k.value)) for k in call.keywords)
        return Arguments(positional, keywords)

    def read_one(self, text: str) -> Any:
        """The value of one expression."""
        found = self.read(text)
        if len(found.positional) != 1 or found.keywords:
            raise ArgumentTextError("expected one expression", text)
        return found.positional[0]

    def _parse(self) -> ast.Call:
        try:
            tree = ast.parse(f"{_OPENING}{self._text})", mode="eval")
        except SyntaxError as error:
            place = (error.offset or 1) - 1 - len(_OPENING)
            # A bracket that stays open takes ours for its own; what is missing is at the end.
            place = len(self._text) if place < 0 else place
            raise ArgumentTextError(error.msg, self._text, place, place + 1) from None
        if not isinstance(tree.body, ast.Call) or not isinstance(tree.body.func, ast.Name):
            raise ArgumentTextError("unmatched ')'", self._text)
        return tree.body

    def _keyword(self, keyword: ast.keyword) -> str:
        if keyword.arg is None:
            raise self._error("** is not understood", keyword.value)
        return keyword.arg

    @override
    def generic_visit(self, node: ast.AST) -> Any:
        raise self._error("this kind of expression is not understood", node)

    @override
    def visit_Constant(self, node: ast.Constant) -> Any:
        if node.value is None or isinstance(node.value, (bool, int, float, str)):
            return node.value
        raise self._error("this kind of value is not understood", node)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.visit, node.elts))

    def visit_List(self, node: ast.List) -> Any:
        return list(map(self.visit, node.elts))

    def visit_Name(self, node: ast.Name) -> Any:
        found = NAMES.get(node.id, find_dtype(node.id))
        if found is None:
            raise self._error(_unknown("name", node.id, (*DTYPE_ALIASES, *NAMES, *FUNCTIONS)), node)
        return found

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self._operation(node, node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self._operation(node, node.left, node.right)

    def _operation(self, node: ast.UnaryOp | ast.BinOp, *operands: ast.expr) -> Any:
        apply = _OPERATORS.get(type(node.op))
        if apply is None:
            raise self._error("this operator is not understood", node)
        values = [self.visit(operand) for operand in operands]
        for operand, value in zip(operands, values):
            if not isinstance(value, (int, float)):
                raise self._error("only numbers can be combined", operand)
        if isinstance(node.op, (ast.Pow, ast.LShift)) and abs(values[1]) > MAX_EXPONENT:
            raise self._error(f"exponents go up to {MAX_EXPONENT}", operands[1])
        return self._attempt(node, apply, *values)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not _is_torch(node.value):
            return self._view(node, PROPERTIES)
        found = find_dtype(node.attr)
        if found is None:
            raise self._error(_unknown("dtype", f"torch.{node.attr}", _torch_dtypes()), node)
        return found

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        tensor, index = self._tensor(node.value), self.visit(node.slice)
        return self._attempt(node, operator.getitem, tensor, index)

    def visit_Slice(self, node: ast.Slice) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.visit(part) for part in parts))

    def visit_Call(self, node: ast.Call) -> Any:
        function = self._function(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        keywords = {self._keyword(k): self.visit(k.value) for k in node.keywords}
        return self._attempt(node, function, *arguments, **keywords)

    def _function(self, node: ast.expr) -> Callable[..., Any]:
        if isinstance(node, ast.Attribute) and not _is_torch(node.value):
            return self._view(node, VIEWS)
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name == TRANSPOSED:
            return lambda tensor: tensor.mT
        if name not in FACTORIES:
            raise self._error(_unknown("function", name, FUNCTIONS), node)
        return lambda *sizes, **options: self._make(name, sizes, options)

    def _view(self, node: ast.Attribute, allowed: tuple[str, ...]) -> Any:
        tensor = self._tensor(node.value)
        if node.attr not in allowed:
            raise self._error(_unknown("view", node.attr, (*PROPERTIES, *VIEWS)), node)
        return self._attempt(node, getattr, tensor, node.attr)

    def _make(self, name: str, sizes: tuple[Any, ...], options: dict[str, Any]) -> torch.Tensor:
        """A new tensor; types that torch cannot draw at random are converted to."""
        options = {"device": self._device, **options}
        if torch.device(options["device"]).type == "cuda" and default_device() != "cuda":
            raise ValueError("PyTorch finds no GPU here")
        if isinstance(options.get("dtype"), str):
            given = options["dtype"]
            options["dtype"] = find_dtype(given.removeprefix("torch."))
            if options["dtype"] is None:
                known = (*DTYPE_ALIASES, *_torch_dtypes())
                raise ValueError(_unknown("dtype", given, known))
        if name.startswith("rand"):
            options["generator"] = self._generator(torch.device(options["device"]))
        wanted = options.get("dtype")
        if name in ("randn", "rand") and wanted is not None and wanted.itemsize < 2:
            return getattr(torch, name)(*sizes, **{**options, "dtype": torch.float32}).to(wanted)
        return getattr(torch, name)(*sizes, **options)

    def _generator(self, device: torch.device) -> torch.Generator | None:
        if device.type == "meta":
            return None
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def _tensor(self, node: ast.expr) -> torch.Tensor:
        value = self.visit(node)
        if not isinstance(value, torch.Tensor):
            raise self._error("only a tensor has views", node)
        return value

    def _attempt(self, node: ast.expr, function: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        try:
            return function(*args, **kw)
        except ArgumentTextError:
            raise
        except _MISTAKES as error:
            problem = str(error).strip().splitlines()
            raise self._error(problem[0] if problem else type(error).__name__, node) from None

    def _error(self, problem: str, node: Any) -> ArgumentTextError:
        start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
        # Offsets of the parser count bytes.
        line = f"{_OPENING}{self._text})".encode()
        places = (len(line[:offset].decode()) - len(_OPENING) for offset in (start, end))
        return ArgumentTextError(problem, self._text, *places)


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def find_dtype(name: str) -> torch.dtype | None:
    """The dtype of a name or of one of its short forms."""
    found = DTYPE_ALIASES.get(name, getattr(torch, name, None))
    return found if isinstance(found, torch.dtype) else None


def _torch_dtypes() -> tuple[str, ...]:
    return tuple(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


def _unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name.removeprefix("torch."), known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return f"unknown {what} {name!r}; {hint}"


def default_device() -> str:
    """Where tensors are made unless the user says so: a GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
