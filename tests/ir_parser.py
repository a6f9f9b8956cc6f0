"""Text to IR: reads exactly what ``tilesmith.ir.printer`` prints; locations are dropped.

Names that are numbers mean unnamed values. A name must be defined before it is used and only
once; scopes and types are the verifier's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import Any, TypeVar

from tilesmith.dtypes import DTYPES_BY_NAME, DType
from tilesmith.ir.function import Block, Function, Parameter, Size
from tilesmith.ir.operation import ATTRIBUTE, NAMED, OPERAND, OPERANDS, REGION, Operation, Region
from tilesmith.ir.ops.catalog import OPS_BY_NAME
from tilesmith.ir.types import Dim, Extent, TensorType, TileType, Type, Value

_PATTERN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
      | (?P<value>%\w[\w.]*)
      | (?P<symbol>@[\w.$]+)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf\b|nan\b))
      | (?P<word>[^\W\d][\w.]*)
      | (?P<mark>[(){}\[\]<>=:,*])
      | (?P<end>\Z)
      | (?P<other>.)""",
    re.VERBOSE,
)
Token = re.Match[str]
"""A piece of text; the name of its group says of what kind."""


class IRSyntaxError(ValueError):
    """The text is not IR. Says where, with the line and a caret."""

    def __init__(self, problem: str, text: str, offset: int) -> None:
        self.line = text.count("\n", 0, offset) + 1
        start = text.rfind("\n", 0, offset) + 1
        self.column = offset - start + 1
        shown = text[start:].split("\n", 1)[0]
        pointer = " " * (self.column - 1) + "^"
        super().__init__(
            f"line {self.line}, column {self.column}: {problem}\n  {shown}\n  {pointer}"
        )


class TokenStream:
    """Tokens read one by one, with errors that point at them. The last is of kind ``end``."""

    def __init__(self, text: str) -> None:
        self._tokens = [match for match in _PATTERN.finditer(text) if match.lastgroup != "skip"]
        self._next = 0
        for token in self._tokens:
            if token.lastgroup == "other":
                raise self.error(f"unexpected character {token[0]!r}", token)

    @property
    def peek(self) -> Token:
        """The next token, not taken."""
        return self._tokens[self._next]

    def take(self) -> Token:
        """The next token."""
        token = self.peek
        self._next += token.lastgroup != "end"
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it reads so."""
        found = self.peek[0] == text and self.peek.lastgroup in ("word", "mark")
        self._next += found
        return found

    def expect(self, text: str) -> Token:
        """Take the next token, which must read so."""
        token = self.peek
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {token[0] or 'end of text'!r}", token)
        return token

    def expect_kind(self, kind: str) -> Token:
        """Take the next token, which must be of that kind."""
        token = self.take()
        if token.lastgroup != kind:
            raise self.error(f"expected a {kind}, found {token[0] or 'end of text'!r}", token)
        return token

    def error(self, problem: str, token: Token) -> IRSyntaxError:
        """A syntax error at a token."""
        return IRSyntaxError(problem, token.string, token.start())


Item = TypeVar("Item")
_LITERAL_WORDS = {
    "none": None, "true": True, "false": False, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip
_BLOCK_ATTRIBUTES = ("fixed", "slot", "extent", "low", "high")


def parse_function(text: str) -> Function:
    """The function that prints as ``text``.

    Example:
        >>> parse_function("func @empty { }").name
        'empty'
    """
    return _FunctionParser(text).function()


class _TermParser:
    """Types, literals and bracketed lists: what can be read without knowing any names."""

    def __init__(self, text: str) -> None:
        self._tokens = TokenStream(text)

    def _type(self) -> Type:
        if self._tokens.peek[0] == "tensor":
            return self._tensor_type()
        return TileType(self._dtype(), self._sequence("[", "]", self._dim))

    def _tensor_type(self) -> TensorType:
        self._tokens.expect("tensor")
        self._tokens.expect("<")
        dtype, shape = self._dtype(), self._sequence("[", "]", self._extent)
        for mark in (",", "strides", "="):
            self._tokens.expect(mark)
        strides = self._sequence("[", "]", self._extent)
        for mark in (",", "alias", "="):
            self._tokens.expect(mark)
        alias = self._integer()
        is_wide = self._tokens.accept(",")
        if is_wide:
            self._tokens.expect("wide")
        self._tokens.expect(">")
        return TensorType(dtype, shape, strides, alias, is_wide)

    def _dtype(self) -> DType:
        token = self._tokens.expect_kind("word")
        if token[0] not in DTYPES_BY_NAME:
            raise self._tokens.error(f"unknown element type {token[0]!r}", token)
        return DTYPES_BY_NAME[token[0]]

    def _dim(self) -> Dim:
        factors = [self._extent()]
        while self._tokens.accept("*"):
            factors.append(self._extent())
        return Dim(() if factors == [1] else tuple(factors))

    def _extent(self) -> Extent:
        if self._tokens.peek.lastgroup == "number":
            return self._integer()
        return self._tokens.expect_kind("word")[0]

    def _integer(self) -> int:
        token = self._tokens.expect_kind("number")
        try:
            return int(token[0])
        except ValueError:
            raise self._tokens.error(f"expected an integer, found {token[0]!r}", token) from None

    def _attributes(self, allowed: list[str] | tuple[str, ...]) -> dict[str, Any]:
        """``{name=literal, ...}``, or nothing at all."""
        found: dict[str, Any] = {}
        if self._tokens.peek[0] != "{":
            return found
        for token, value in self._sequence("{", "}", self._attribute):
            if token[0] not in allowed or token[0] in found:
                raise self._tokens.error(f"unexpected attribute {token[0]!r}", token)
            found[token[0]] = value
        return found

    def _attribute(self) -> tuple[Token, Any]:
        name = self._tokens.expect_kind("word")
        self._tokens.expect("=")
        return name, self._literal()

    def _literal(self) -> Any:
        token = self._tokens.peek
        if token[0] == "[":
            return self._sequence("[", "]", self._literal)
        if token.lastgroup == "string":
            return self._string()
        self._tokens.take()
        if token.lastgroup == "number":
            return int(token[0]) if token[0].lstrip("-").isdecimal() else float(token[0])
        if token.lastgroup == "word" and token[0] in _LITERAL_WORDS:
            return _LITERAL_WORDS[token[0]]
        raise self._tokens.error(f"expected a literal, found {token[0]!r}", token)

    def _string(self) -> str:
        token = self._tokens.expect_kind("string")
        try:
            return json.loads(token[0])
        except json.JSONDecodeError as error:
            raise self._tokens.error(f"bad string: {error.msg}", token) from None

    def _sequence(self, opening: str, closing: str, parse: Callable[[], Item]) -> tuple[Item, ...]:
        self._tokens.expect(opening)
        found: list[Item] = []
        while not self._tokens.accept(closing):
            if found:
                self._tokens.expect(",")
            found.append(parse())
        return tuple(found)


class _FunctionParser(_TermParser):
    """Recursive descent; ``_values`` holds every name defined so far, whatever its scope."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values: dict[str, Value] = {}

    def function(self) -> Function:
        self._tokens.expect("func")
        name = self._tokens.expect_kind("symbol")[0][1:]
        self._tokens.expect("{")
        parameters = self._declarations("param", self._parameter)
        blocks = self._declarations("block", self._block)
        sizes = self._declarations("size", self._size)
        tunables = self._declarations("tunable", self._tunable)
        body = Region((), self._operations())
        if self._tokens.peek.lastgroup != "end":
            raise self._tokens.error("expected the end of the text", self._tokens.peek)
        return Function(name, parameters, blocks, sizes, body, tunables)

    def _declarations(self, keyword: str, parse: Callable[[], Item]) -> tuple[Item, ...]:
        found: list[Item] = []
        while self._tokens.accept(keyword):
            found.append(parse())
        return tuple(found)

    def _parameter(self) -> Parameter:
        value = self._typed_value()
        self._tokens.expect("from")
        return Parameter(value, self._string())

    def _block(self) -> Block:
        name = self._tokens.expect_kind("word")[0]
        return Block(name, **self._attributes(_BLOCK_ATTRIBUTES))

    def _size(self) -> Size:
        name = self._tokens.expect_kind("word")
        attributes = self._attributes(("hint",))
        if "hint" not in attributes:
            raise self._tokens.error("a size needs its hint", name)
        return Size(name[0], attributes["hint"])

    def _tunable(self) -> tuple[str, Any]:
        name = self._tokens.expect_kind("word")[0]
        return name, self._attributes(("value",)).get("value")

    def _operations(self) -> tuple[Operation, ...]:
        """Ops up to and including the closing brace."""
        found: list[Operation] = []
        while not self._tokens.accept("}"):
            found.append(self._operation())
        return tuple(found)

    def _operation(self) -> Operation:
        names = self._result_names()
        token = self._tokens.expect_kind("word")
        cls = OPS_BY_NAME.get(token[0])
        if cls is None:
            raise self._tokens.error(f"unknown op {token[0]!r}", token)
        fields = self._operands(cls)
        fields.update(self._attributes([item.name for item in cls.fields_of(ATTRIBUTE)]))
        for item in cls.fields_of(ATTRIBUTE):
            if item.name not in fields and item.default is MISSING:
                raise self._tokens.error(f"{cls.name} needs the attribute {item.name!r}", token)
        types = self._result_types(len(names))
        for item in cls.fields_of(REGION):
            fields[item.name] = self._region()
        # Results come last, as they do in the printer: inside its own regions a result has no name.
        results = tuple(self._define(name, type_) for name, type_ in zip(names, types))
        return cls(results=results, **fields)

    def _result_names(self) -> list[Token]:
        if self._tokens.peek.lastgroup != "value":
            return []
        names = [self._tokens.take()]
        while self._tokens.accept(","):
            names.append(self._tokens.expect_kind("value"))
        self._tokens.expect("=")
        return names

    def _result_types(self, count: int) -> list[Type]:
        if not count:
            return []
        self._tokens.expect(":")
        types = [self._type()]
        while len(types) < count:
            self._tokens.expect(",")
            types.append(self._type())
        return types

    def _operands(self, cls: type[Operation]) -> dict[str, Any]:
        placed = [item for item in cls.fields_of(OPERAND) if not item.metadata[NAMED]]
        named = {item.name for item in cls.fields_of(OPERAND)} - {item.name for item in placed}
        readers = [(item, self._operand) for item in placed]
        if not readers and len(cls.fields_of(OPERANDS)) == 1:
            (item,) = cls.fields_of(OPERANDS)
            return {item.name: self._sequence("(", ")", self._use)}
        readers += [(item, self._operand_list) for item in cls.fields_of(OPERANDS)]
        fields: dict[str, Any] = {}
        self._tokens.expect("(")
        for position, (item, read) in enumerate(readers):
            if position:
                self._tokens.expect(",")
            fields[item.name] = read(item)
        while self._tokens.accept(","):
            fields |= self._named_operand(named - set(fields))
        self._tokens.expect(")")
        return fields

    def _named_operand(self, names: set[str]) -> dict[str, Value]:
        token = self._tokens.take()
        if token[0] not in names:
            raise self._tokens.error(f"no operand {token[0]!r} is wanted here", token)
        self._tokens.expect("=")
        return {token[0]: self._use()}

    def _operand(self, item: Field[Any]) -> Value | None:
        if item.default is None and self._tokens.accept("none"):
            return None
        return self._use()

    def _operand_list(self, _: Field[Any]) -> tuple[Value, ...]:
        return self._sequence("[", "]", self._use)

    def _region(self) -> Region:
        args = self._sequence("(", ")", self._typed_value)
        self._tokens.expect("{")
        return Region(args, self._operations())

    def _typed_value(self) -> Value:
        name = self._tokens.expect_kind("value")
        self._tokens.expect(":")
        return self._define(name, self._type())

    def _define(self, token: Token, value_type: Type) -> Value:
        if token[0] in self._values:
            raise self._tokens.error(f"{token[0]} is defined twice", token)
        name = token[0][1:]
        value = Value(value_type, "" if name.isdecimal() else name)
        self._values[token[0]] = value
        return value

    def _use(self) -> Value:
        token = self._tokens.expect_kind("value")
        if token[0] not in self._values:
            raise self._tokens.error(f"{token[0]} is not defined here", token)
        return self._values[token[0]]
