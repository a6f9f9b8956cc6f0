"""Calls of functions of the program's own."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzzing.pointwise import FUNCTIONS
from tests.fuzzing.statements import Compute, text_of

FORMS = ("plain", "keyword", "default", "pair", "nested", "early")
PARAMETERS = {"plain": ", bias", "keyword": ", *, bias", "pair": ", bias", "early": ", is_plain"}
"""What a helper takes after its operands; the others have a default."""
ARGUMENTS = {"plain": ", None", "keyword": ", bias=None", "pair": ", None", "early": ", True"}


@dataclass(frozen=True)
class HelperCall(Compute):
    """What ``Compute`` does, by a helper.

    Attributes:
        form: how it takes one more argument; "pair" returns that, too, "nested" calls another
            helper, "early" returns from a branch.
    """

    helper: str = ""
    form: str = "plain"

    @property
    def definition(self) -> list[str]:
        """The lines of the helper, and of the one it calls."""
        names = ", ".join(f"p{n}" for n in range(len(self.operands)))
        expression = FUNCTIONS[self.function].text.format(*names.split(", "))
        head = f"def {self.helper}({names}{PARAMETERS.get(self.form, ', bias=None')}):"
        if self.form == "early":
            return [head, "    if is_plain:", f"        return {expression}", "    return p0", ""]
        inner = f"{self.helper}_inner"
        before = [f"def {inner}({names}):", f"    return {expression}", ""]
        is_nested = self.form == "nested"
        return [
            *(before if is_nested else []),
            head,
            f"    found = {f'{inner}({names})' if is_nested else expression}",
            "    if bias is not None:",
            "        found = found + bias",
            f"    return found{', bias' if self.form == 'pair' else ''}",
            "",
        ]

    def lines(self) -> list[str]:
        operands = ", ".join(text_of(x, self.result.axes) for x in self.operands)
        rest = f", {self.helper}_rest" if self.form == "pair" else ""
        call = f"{self.helper}({operands}{ARGUMENTS.get(self.form, '')})"
        return [f"{self.result.name}{rest} = {call}"]
