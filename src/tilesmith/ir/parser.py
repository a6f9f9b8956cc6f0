"""Text to IR: reads exactly what ``printer.py`` prints. Locations are comments and are dropped.

Names that are numbers mean unnamed values. A name must be defined before it is used and only
once; scopes and types are the verifier's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass
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
      | (?P<mark>[(){}\[\]<>=:,*])""",
    re.VERBOSE,
)


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


@dataclass(frozen=True)
class Token:
    """A piece of text; ``kind`` is the name of its group in the pattern, or ``end``."""

    kind: str
    text: str
    offset: int


def tokenize(text: str) -> list[Token]:
    """All tokens of the text, ending with one of kind ``end``."""
    tokens: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _PATTERN.match(text, offset)
        if match is None:
            raise IRSyntaxError(f"unexpected character {text[offset]!r}", text, offset)
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, match.group(), offset))
        offset = match.end()
    tokens.append(Token("end", "end of text", offset))
    return tokens


class TokenStream:
    """Tokens read one by one, with errors that point at them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._next = 0

    @property
    def peek(self) -> Token:
        """The next token, not taken."""
        return self._tokens[self._next]

    def take(self) -> Token:
        """The next token."""
        token = self.peek
        self._next += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it reads so."""
        found = self.peek.text == text and self.peek.kind in ("word", "mark")
        self._next += found
        return found

    def expect(self, text: str) -> Token:
        """Take the next token, which must read so."""
        token = self.peek
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {token.text!r}", token)
        return token

    def expect_kind(self, kind: str) -> Token:
        """Take the next token, which must be of that kind."""
        token = self.take()
        if token.kind != kind:
            raise self.error(f"expected a {kind}, found {token.text!r}", token)
        return token

    def error(self, problem: str, token: Token) -> IRSyntaxError:
        """A syntax error at a token."""
        return IRSyntaxError(problem, self._text, token.offset)


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
        return self._tensor_type() if self._tokens.peek.text == "tensor" else self._tile_type()

    def _tile_type(self) -> TileType:
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
        if token.text not in DTYPES_BY_NAME:
            raise self._tokens.error(f"unknown element type {token.text!r}", token)
        return DTYPES_BY_NAME[token.text]

    def _dim(self) -> Dim:
        factors = [self._extent()]
        while self._tokens.accept("*"):
            factors.append(self._extent())
        return Dim(() if factors == [1] else tuple(factors))

    def _extent(self) -> Extent:
        if self._tokens.peek.kind == "number":
            return self._integer()
        return self._tokens.expect_kind("word").text

    def _integer(self) -> int:
        token = self._tokens.expect_kind("number")
        try:
            return int(token.text)
        except ValueError:
            raise self._tokens.error(f"expected an integer, found {token.text!r}", token) from None

    def _attributes(self, allowed: list[str] | tuple[str, ...]) -> dict[str, Any]:
        """``{name=literal, ...}``, or nothing at all."""
        found: dict[str, Any] = {}
        if self._tokens.peek.text != "{":
            return found
        for token, value in self._sequence("{", "}", self._attribute):
            if token.text not in allowed or token.text in found:
                raise self._tokens.error(f"unexpected attribute {token.text!r}", token)
            found[token.text] = value
        return found

    def _attribute(self) -> tuple[Token, Any]:
        name = self._tokens.expect_kind("word")
        self._tokens.expect("=")
        return name, self._literal()

    def _literal(self) -> Any:
        token = self._tokens.peek
        if token.text == "[":
            return self._sequence("[", "]", self._literal)
        if token.kind == "string":
            return self._string()
        self._tokens.take()
        if token.kind == "number":
            return int(token.text) if token.text.lstrip("-").isdecimal() else float(token.text)
        if token.kind == "word" and token.text in _LITERAL_WORDS:
            return _LITERAL_WORDS[token.text]
        raise self._tokens.error(f"expected a literal, found {token.text!r}", token)

    def _string(self) -> str:
        token = self._tokens.expect_kind("string")
        try:
            return json.loads(token.text)
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
        name = self._tokens.expect_kind("symbol").text[1:]
        self._tokens.expect("{")
        parameters = self._declarations("param", self._parameter)
        blocks = self._declarations("block", self._block)
        sizes = self._declarations("size", self._size)
        tunables = self._declarations("tunable", self._tunable)
        body = Region((), self._operations())
        if self._tokens.peek.kind != "end":
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
        name = self._tokens.expect_kind("word").text
        return Block(name, **self._attributes(_BLOCK_ATTRIBUTES))

    def _size(self) -> Size:
        name = self._tokens.expect_kind("word")
        attributes = self._attributes(("hint",))
        if "hint" not in attributes:
            raise self._tokens.error("a size needs its hint", name)
        return Size(name.text, attributes["hint"])

    def _tunable(self) -> tuple[str, Any]:
        name = self._tokens.expect_kind("word").text
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
        cls = OPS_BY_NAME.get(token.text)
        if cls is None:
            raise self._tokens.error(f"unknown op {token.text!r}", token)
        fields = self._operands(cls)
        fields.update(self._attributes([item.name for item in cls.fields_of(ATTRIBUTE)]))
        self._check_attributes(cls, fields, token)
        types = self._result_types(len(names))
        for item in cls.fields_of(REGION):
            fields[item.name] = self._region()
        # Results come last, as they do in the printer: inside its own regions a result has no name.
        results = tuple(self._define(name, type_) for name, type_ in zip(names, types))
        return cls(results=results, **fields)

    def _result_names(self) -> list[Token]:
        if self._tokens.peek.kind != "value":
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
        if token.text not in names:
            raise self._tokens.error(f"no operand {token.text!r} is wanted here", token)
        self._tokens.expect("=")
        return {token.text: self._use()}

    def _operand(self, item: Field[Any]) -> Value | None:
        if item.default is None and self._tokens.accept("none"):
            return None
        return self._use()

    def _operand_list(self, _: Field[Any]) -> tuple[Value, ...]:
        return self._sequence("[", "]", self._use)

    def _check_attributes(self, cls: type[Operation], fields: dict[str, Any], token: Token) -> None:
        for item in cls.fields_of(ATTRIBUTE):
            if item.name not in fields and item.default is MISSING:
                raise self._tokens.error(f"{cls.name} needs the attribute {item.name!r}", token)

    def _region(self) -> Region:
        args = self._sequence("(", ")", self._typed_value)
        self._tokens.expect("{")
        return Region(args, self._operations())

    def _typed_value(self) -> Value:
        name = self._tokens.expect_kind("value")
        self._tokens.expect(":")
        return self._define(name, self._type())

    def _define(self, token: Token, value_type: Type) -> Value:
        if token.text in self._values:
            raise self._tokens.error(f"{token.text} is defined twice", token)
        name = token.text[1:]
        value = Value(value_type, "" if name.isdecimal() else name)
        self._values[token.text] = value
        return value

    def _use(self) -> Value:
        token = self._tokens.expect_kind("value")
        if token.text not in self._values:
            raise self._tokens.error(f"{token.text} is not defined here", token)
        return self._values[token.text]
