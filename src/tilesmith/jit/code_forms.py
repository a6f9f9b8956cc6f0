"""How code for a CPU can be shown: the loop nest, LLVM IR or assembly."""

from __future__ import annotations

from tilesmith.artifacts import Artifact
from tilesmith.diagnostics import errors
from tilesmith.runtime.native.machine_code import code_maker

FORMS = ("loops", "llvm", "assembly")
_ALIASES = {"asm": "assembly"}


def show_native(artifact: Artifact, form: str) -> str:
    """The code of an artifact in one of ``FORMS``."""
    form = _ALIASES.get(form, form)
    if form == "loops":
        return artifact.readable
    if form == "llvm":
        return artifact.llvm
    return code_maker(artifact.target).make_assembly(artifact.llvm)


def check_form(form: str) -> None:
    """Raise unless code can be shown in that form; empty is the usual one."""
    known = ("triton", *FORMS)
    if form and _ALIASES.get(form, form) not in known:
        raise errors.InvalidArgumentValue(
            function="to_code", problem=f"there is no form {form!r}", expected=", ".join(known)
        )
