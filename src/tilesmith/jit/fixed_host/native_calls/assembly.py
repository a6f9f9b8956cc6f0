"""A native call from the steps of host code and the parameters of machine code.

Only where all there is to a call is making tensors, one launch, and what comes after it: nothing
is left that Python would have to look at in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.frontend.containers import cell_contents, items_of
from tilesmith.frontend.source.names import parameter_names
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.jit.fixed_host.folding import NotFixedError
from tilesmith.jit.fixed_host.native_calls.ends import End, find_end
from tilesmith.jit.fixed_host.native_calls.steps import Step, StepFolder
from tilesmith.jit.fixed_host.native_calls.watching import Watched, of_module
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.calls.reader import TensorReader
from tilesmith.runtime.launchers.cpu import WORTHWHILE_BYTES, address_of
from tilesmith.runtime.native.loader import Entry

ADDRESS, INTEGER, FLOAT = range(3)
"""Kinds of what machine code is given, as native code numbers them."""
_EXTENT = re.compile(r"(\w+)\.(size|stride)\((\d+)\)")
_NUMBER = re.compile(r"float\((\w+)\)|(\w+)")


def spread(source: str, value: Any) -> Iterator[str]:
    """How Python spells the leaves of an argument, in the order of native code."""
    yield source
    if isinstance(value, torch.Tensor):
        return
    for position, cell in enumerate(getattr(value, "__closure__", None) or ()):
        held = cell_contents(cell)
        yield from spread(f"{source}.__closure__[{position}].cell_contents", held)
    for item in items_of(value) or ():
        yield from spread(f"{source}{item.suffix}", item.value)


@dataclass
class _Values:
    """Numbers of values: leaves of arguments, tensors that are made, constants."""

    leaves: dict[str, int]
    """By how Python spells them."""
    num_made: int
    given: dict[int, torch.Tensor]
    """Arguments that are tensors, by number."""
    names: dict[str, int] = field(default_factory=dict[str, int])
    forms: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Of tensors by name."""
    makers: list[Any] = field(default_factory=list[Any])
    constants: list[Any] = field(default_factory=list[Any])

    def bind(self, steps: Sequence[Step], forms: Mapping[str, torch.Tensor]) -> None:
        """Note what names stand for from now on; ``forms``: those in which some are made."""
        earlier = dict(self.names)
        for step in steps:
            self._bind(step, forms.get(step.name), earlier)

    def _bind(self, step: Step, form: torch.Tensor | None, earlier: Mapping[str, int]) -> None:
        self.forms.pop(step.name, None)
        if isinstance(step.value, torch.Tensor):
            self.forms[step.name] = step.value
        if not isinstance(step.value, torch.Tensor):
            self.names[step.name] = self.constant(step.value)
        elif step.same_as:
            self.names[step.name] = earlier[step.same_as]
        else:
            self.names[step.name] = len(self.leaves) + len(self.makers)
            self.makers.append(self._maker(step if form is None else replace(step, value=form)))

    def _maker(self, step: Step) -> tuple[Any, ...]:
        """What makes a tensor: an argument of its form, if there is one, spares torch the sizes."""
        made: torch.Tensor = step.value
        function, given, words = step.maker
        if function is torch.empty_strided:
            for number, example in self.given.items():
                if is_made_like(example, made):
                    return torch.empty_like, (), (), number
        return function, given, words

    def constant(self, value: Any) -> int:
        """The number of a value that is always the same."""
        self.constants.append(value)
        return len(self.leaves) + self.num_made + len(self.constants) - 1

    def of(self, source: str) -> int:
        """The number of what an expression over names gives."""
        if source in self.names:
            return self.names[source]
        match = re.match(r"\w+", source)
        root = match[0] if match else ""
        number = self.leaves.get(source)
        if number is None or self.names.get(root) != self.leaves[root]:
            raise NotFixedError
        return number

    def slot(self, parameter: LaunchParameter) -> tuple[int, int]:
        """What machine code is given for a parameter: its kind and the number of its value."""
        if parameter.is_tensor:
            return ADDRESS, self.of(parameter.source)
        extent = _EXTENT.fullmatch(parameter.source)
        if extent is not None and extent[1] in self.forms:
            find = (
                self.forms[extent[1]].size if extent[2] == "size" else self.forms[extent[1]].stride
            )
            return INTEGER, self.constant(find(int(extent[3])))
        match = _NUMBER.fullmatch(parameter.source)
        if match is None:
            raise NotFixedError
        is_float = parameter.dtype[0] in "bf" and parameter.dtype != "bool"
        return FLOAT if is_float else INTEGER, self.of(match[1] or match[2])


def is_made_like(example: torch.Tensor, form: torch.Tensor) -> bool:
    """Whether ``torch.empty_like`` makes tensors of this form of such arguments.

    Of axes with less than two elements arguments may have any stride, and so would what is made.
    """
    if example.shape != form.shape or example.dtype != form.dtype or example.device != form.device:
        return False
    return min(form.shape, default=0) > 1 and torch.empty_like(example).stride() == form.stride()


def _values_of(
    split: SplitKernel, args: Sequence[Any], assignments: Sequence[Sequence[Step]], end: End
) -> _Values:
    names = parameter_names(split.source.tree)
    leaves = [place for name, value in zip(names, args) for place in spread(name, value)]
    numbers = {place: number for number, place in enumerate(leaves)}
    made = [step for steps in assignments for step in steps if step.is_new]
    given = {numbers[name]: x for name, x in zip(names, args) if type(x) is torch.Tensor}
    values = _Values(numbers, len(made), given)
    values.names |= {name: numbers[name] for name in names}
    values.forms |= {name: x for name, x in zip(names, args) if isinstance(x, torch.Tensor)}
    for steps in assignments:
        values.bind(steps, end.forms)
    return values


def _check_made(steps: Sequence[Step], device: torch.device, reader: TensorReader) -> None:
    """Raise where a tensor that is made needs more than being made."""
    for step in steps:
        if not step.is_new:
            continue
        if step.value.nbytes >= WORTHWHILE_BYTES or step.value.device != device:
            raise NotFixedError  # it gets huge pages, or an error says where it is
        if type(step.value) is not torch.Tensor or step.value.requires_grad:
            raise NotFixedError
        forms = reader.Forms(lambda *args: None, True, 0, 0, 0)
        forms.add((step.value,), (), None)  # RuntimeError for types that cannot be read


@dataclass(frozen=True)
class NativeCode:
    """Machine code that is linked into this process, and what its launcher knows of it."""

    entry: Entry
    artifact: Artifact
    options: LaunchOptions

    @classmethod
    def of(cls, launcher: Any, owner: int) -> NativeCode:
        """That of a launcher (``native_launcher``), for calls of another owner if that is not 0."""
        options: LaunchOptions = launcher.options
        options = replace(options, owner=owner or options.owner)
        return cls(launcher.code, launcher.artifact, options)


def native_call(
    split: SplitKernel,
    folder: StepFolder,
    native: NativeCode,
    args: Sequence[Any],
    plain: tuple[Callable[..., Any], tuple[Watched, ...]],
) -> Callable[..., Any]:
    """A function of arguments of one form; NotFixedError where native code cannot do it all.

    ``plain``: what runs calls in all other cases, and what must be as it was in these.
    """
    reader, assignments = native.options.reader, list(folder.assignments())
    steps = [step for bound in assignments for step in bound]
    if reader is None or not native.options.owner:
        raise NotFixedError
    end = find_end(split, folder, steps)
    _check_made(steps, native.options.device, reader)
    values = _values_of(split, args, assignments, end)
    slots = tuple(values.slot(parameter) for parameter in native.artifact.parameters)
    results = [values.names[name] for name in end.names]
    if end.after is not None:
        results.insert(0, values.constant(SimpleNamespace(device=native.options.device)))
    scope = split.source.function.__globals__
    return reader.FixedCall(
        address=address_of(native.entry),
        owner=native.options.owner,
        otherwise=plain[0],
        num_leaves=len(values.leaves),
        makers=tuple(values.makers),
        slots=slots,
        constants=tuple(values.constants),
        watched=plain[1] + of_module(scope, folder.watched),
        results=tuple(results),
        is_tuple=end.is_tuple,
        after=end.after,
        count_threads=_counter(native),
        kept=native.entry,
    )


def _counter(native: NativeCode) -> Callable[[], int] | None:
    """What is asked for the number of threads; None where machine code uses one."""
    if "@GOMP_parallel" not in native.artifact.llvm:
        return None
    fixed = native.options.num_threads
    return fixed.__int__ if fixed else torch.get_num_threads
