"""The module of a kernel of several launches: the modules of its stages in one, and host code.

Names at the top of a stage's module get the stage's number where an earlier stage has them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilesmith.compiler.module_source import (
    OTHER_TRITON,
    FoldLanguage,
    free_names,
    lines_for_names,
    own_names,
    without_notes,
)
from tilesmith.frontend.source.kernel_source import parse_text
from tilesmith.frontend.source.split_kernel import on_device
from tilesmith.frontend.trace import Trace
from tilesmith.frontend.tracing.guards import root_of
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.types import TensorType
from tilesmith.jit.staging.configs import StageSession
from tilesmith.jit.staging.source import Run, StagedSource, StageSource, replace_runs

_NOT_REACHED = "not reached with the arguments that this module was made for"
_ALWAYS = ("import torch", "import triton", "import triton.language as tl")


@dataclass(frozen=True)
class StageForm:
    """The code of a stage for one kind of values: a module, and when it may be used."""

    text: str
    trace: Trace

    def conditions(self, stage: StageSource, *, are_tensors_compared: bool) -> str:
        """An expression of the stage's parameters; empty where there is nothing to ask."""
        numbers = [
            f"{guard.number} == {guard.value[1]!r}"
            for guard in self.trace.guards
            if root_of(guard.number) in stage.computed and isinstance(guard.value, tuple)
        ]
        return " and ".join([*(self._tensors() if are_tensors_compared else ()), *numbers])

    def _tensors(self) -> Iterator[str]:
        for parameter in self.trace.function.parameters:
            kind, source = parameter.value.type, parameter.source
            if not isinstance(kind, TensorType) or "__" in source:
                continue
            yield f"{source}.dtype == {to_torch(kind.dtype)}"
            if all(isinstance(extent, int) for extent in (*kind.shape, *kind.strides)):
                yield f"({source}.shape, {source}.stride()) == ({kind.shape}, {kind.strides})"


Forms = Sequence[StageForm]


def staged_text(source: StagedSource, texts: Sequence[str | None]) -> str:
    """The code of all stages, each below a line that says where its loops stand."""
    numbered = enumerate(zip(source.stages, texts), 1)
    return "\n\n".join(
        f"# stage {number}, line {stage.line}: {_NOT_REACHED}"
        if text is None
        else f"# stage {number}, line {stage.line}\n{text}"
        for number, (stage, text) in numbered
    )


def staged_module(
    source: StagedSource, forms: Sequence[Forms], session: StageSession, device: str
) -> str:
    """One module from those of the stages' forms (none: not compiled) and host code.

    ``session`` has what host code gets from the language; ``device`` is an expression for the
    kernel's device.
    """
    module = source.source.function.__globals__
    calls = [_call(stage, stage.tree.name) if f else "" for stage, f in zip(source.stages, forms)]
    host = staged_host(source, calls, session, device, "triton")
    joined = _Joined()
    joined.head |= {line: None for line in lines_for_names(module, free_names(host))}
    if OTHER_TRITON in free_names(host):
        joined.head[f"import triton as {OTHER_TRITON}"] = None
    for stage, found in zip(source.stages, forms):
        joined.add_stage(stage, found)
    return joined.text(ast.unparse(host))


class _Joined:
    """Parts of a module that several modules are put into."""

    def __init__(self) -> None:
        self.head: dict[str, None] = dict.fromkeys(_ALWAYS)
        """Imports and constants."""
        self._parts: list[str] = []
        self._taken: set[str] = set()

    def text(self, host: str) -> str:
        """The module."""
        imports = sorted(line for line in self.head if line.startswith(("import ", "from ")))
        constants = [line for line in self.head if line not in imports]
        head = ["\n".join(imports), *(["\n".join(constants)] if constants else [])]
        return "\n\n\n".join(["\n\n".join(head), *self._parts, f"{host}\n"])

    def add_stage(self, stage: StageSource, forms: Forms) -> None:
        """All forms of a stage, and a function that chooses one where there is a choice."""
        shapes = {tuple(form.conditions(stage, are_tensors_compared=True)) for form in forms}
        whens = [form.conditions(stage, are_tensors_compared=len(shapes) > 1) for form in forms]
        if not any(whens):
            # The newest trace serves all values.
            forms, whens = forms[:1], whens[:1]
        else:
            self._taken.add(stage.tree.name)
        names = [self._add(form.text, stage.tree.name) for form in forms]
        if any(whens):
            self._parts.append("\n".join(_choice(stage, names, whens)))

    def _add(self, text: str, function: str) -> str:
        """Add a module; its host function may get another name."""
        names = set(_names_at_top(text))
        number = len(self._parts) + 1
        renamed = {name: f"{name}_{number}" for name in sorted(names & self._taken)}
        for name, new in renamed.items():
            text = re.sub(rf"(?<![\w.]){name}\b", new, text)  # but in attributes
        self._taken |= {renamed.get(name, name) for name in names}
        imports, _, rest = text.partition("\n\n")
        self.head |= {line: None for line in imports.splitlines()}
        self._parts.append(rest.strip("\n"))
        return renamed.get(function, function)


def _call(stage: StageSource, name: str) -> str:
    return f"{name}({', '.join(arg.arg for arg in stage.tree.args.args)})"


def _choice(stage: StageSource, names: Sequence[str], whens: Sequence[str]) -> Iterator[str]:
    yield f"def {_call(stage, stage.tree.name)}:"
    for name, when in zip(names, whens):
        yield f"    if {when or True}:"
        yield f"        return {_call(stage, name)}"
    yield f"    raise NotImplementedError({_NOT_REACHED!r})"


def _names_at_top(text: str) -> Iterator[str]:
    """Names that a module defines, other than by imports."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (t.id for t in statement.targets if isinstance(t, ast.Name))


def staged_host(
    source: StagedSource, calls: Sequence[str], session: StageSession, device: str, triton: str
) -> ast.FunctionDef:
    """Host code with a call for each stage that is reached; ``triton`` is what has ``cdiv``."""
    whole, left = source.source, iter(calls)
    fold = FoldLanguage(session.host_blocks, session.tunable_values, whole.function.__globals__)
    tree = without_notes(parse_text(whole.text, whole.function, is_unrolled=False))
    fold.triton = OTHER_TRITON if triton in own_names(tree) else triton

    def call_stage(_: Run) -> list[ast.stmt]:
        return ast.parse(next(left) or f"raise NotImplementedError({_NOT_REACHED!r})").body

    tree.body = replace_runs(tree.body, whole.function, call_stage)
    tree.body = [new for old in tree.body if (new := fold.visit(old)) is not None]
    if device:
        tree.body = on_device(tree.body, whole.function.__globals__, device)
    return ast.fix_missing_locations(tree)
