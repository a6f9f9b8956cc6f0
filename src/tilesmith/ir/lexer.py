"""IR text to tokens. Whitespace separates tokens and ``//`` comments run to the end of the line."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
