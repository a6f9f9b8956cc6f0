"""From the arguments of a call to the kernel bound for them.

Native code compares them with the forms seen before, where it can be had. A generated function does
the rest: it tells combinations of argument types apart one after the other, and for each it first
tries a form that was seen before, then the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from tilesmith.frontend.tracing.tracer import find_tracer
from tilesmith.jit import call_keys
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.direct_calls import SLOW_WATCHES, WATCHES, make_signatures
from tilesmith.jit.exact_forms import ExactForm
from tilesmith.jit.forms.matches import PLAIN, Match, compile_match
from tilesmith.jit.forms.readable import are_readable
from tilesmith.jit.specialization_key import alias_pattern, tensors_of
from tilesmith.jit.visible.profiling import observe
from tilesmith.operators.gradient import needs_gradient, stands_for_another
from tilesmith.operators.inside import has_levels
from tilesmith.runtime.calls.reader import ArgumentSignatures

MAX_EXACT_FORMS = 16
"""Forms of arguments whose sizes decide in ways that only code knows; others are found by key."""
MAX_TYPES = 8
"""Combinations of types that are told apart; others are found more slowly."""
MAX_FORMS = 256
"""Forms of arguments that are known without their key, for each combination."""


def is_traced() -> bool:
    """Whether torch records what happens just now, or device code of a kernel is traced."""
    return find_tracer() is not None or any(watch() for watch in (*WATCHES, *SLOW_WATCHES))


def _is_special(*values: Any) -> bool:
    """Whether tensors in values need a gradient, or stand for others."""
    tensors = tensors_of(values)
    return needs_gradient(tensors) or any(map(stands_for_another, tensors))


def _find_nothing(*args: Any) -> None:
    """What ``find`` is before the first call."""


class CallFinder:
    """Looks arguments up in a table that is filled by key."""

    def __init__(
        self,
        keys: call_keys.CallKeys,
        table: Mapping[Hashable, BoundKernel],
        lock: AbstractContextManager[Any],
        definition: KernelDefinition,
        call_anew: Callable[..., Any],
        connect: Callable[[ArgumentSignatures | None], None],
    ) -> None:
        self._keys = keys
        self._table = table
        self._lock = lock
        """Held by those who change the table or the rules of keys."""
        self._definition = definition
        self._call_anew, self._observe = call_anew, partial(observe, definition.name)
        self._connect_native = connect  # told of native code for calls to go to at once
        connect(None)
        self.run: Callable[..., Any] = call_anew
        """A function of all arguments that runs what it finds for them, else ``call_anew``."""
        self.find: Callable[..., Any] = _find_nothing
        """A function of all arguments: what the table has for them, None if nothing is found."""
        self._find_by_types: Callable[..., Any] = _find_nothing
        """The same without native code."""
        self._native: ArgumentSignatures | None = None
        self._num_exact = 0
        """Forms that hold of one set of sizes, as something is computed from these."""
        self._forms: dict[call_keys.Types, dict[Hashable, tuple[Match, Any]]] = {}
        """By the shape of the first tensor, a test of all arguments and what it stands for."""
        self._learned: set[Hashable] = set()
        """Keys of arguments whose form was looked at."""

    def forget(self) -> None:
        """Start anew: keys are made by other rules, or the table is empty."""
        self.find, self.run = _find_nothing, self._call_anew
        self._find_by_types = _find_nothing
        self._native, self._num_exact = None, 0
        self._connect_native(None)
        self._forms = {}
        self._learned.clear()

    def add(self, args: tuple[Any, ...]) -> None:
        """Find arguments like these from now on; the table has an entry for them."""
        types = tuple(map(type, args))
        if types not in self._forms and len(self._forms) < MAX_TYPES:
            self._forms[types] = {}
            self._find_by_types = self._compile(types, self._find_by_types)
            self._connect()
        self._learn(self._keys.key(args), *args)

    def _connect(self) -> None:
        if self._native is None:
            self.find, self.run = self._find_by_types, self._run_by_types
        else:
            self._native.otherwise = self._find_by_types
            self.find, self.run = self._native, self._native.run
            self._connect_native(self._native)

    def _run_by_types(self, *args: Any) -> Any:
        bound = self._find_by_types(*args)
        return self._call_anew(*args) if bound is None else self._observe(bound.call, *args)

    def _learn(self, key: Hashable, *args: Any) -> None:
        """Recognise the form of arguments that were found by their key."""
        with self._lock:
            found = self._table.get(key)
            if found is None or (key in self._learned and self._keys.are_forms):
                return  # the rules have changed meanwhile, or another thread was first
            # Of arguments that share storage the kernel knows; other calls need not pay for that.
            pattern = alias_pattern(args) if self._keys.is_alias_sensitive else ()
            if len(set(pattern)) == len(pattern):
                self._add_form(args, found)
            self._learned.add(key)

    def _add_form(self, args: tuple[Any, ...], found: BoundKernel) -> None:
        if self._add_native(args, found):
            return
        types = tuple(map(type, args))
        position = self._position(types)
        if position is None or types not in self._forms:
            return
        forms = self._forms[types]
        if len(forms) == MAX_FORMS:
            forms.clear()
            self._learned.clear()
        names, _ = self._keys.expression(types)
        constants = self._definition.constant_positions(args)
        match = compile_match(names, args, found.written_arguments, constants)
        if match(*args):
            forms[args[position].shape] = match, found

    def _add_native(self, args: tuple[Any, ...], found: BoundKernel) -> bool:
        """Have native code find them, where it can judge them."""
        is_exact = not self._keys.are_forms
        is_known = self._keys.are_exact_forms and self._num_exact < MAX_EXACT_FORMS
        is_readable = (is_known or not is_exact) and are_readable(args)
        reader = self._definition.find_reader() if is_readable else None
        if reader is None:
            return False
        if self._native is None:
            self._native = make_signatures(
                reader,
                are_sizes_fixed=self._keys.are_sizes_fixed,
                num_args=len(args),
                otherwise=self._find_by_types,
                anew=self._call_anew,
                observer=self._observe,
            )
            self._connect()
        if len(self._native) == MAX_FORMS:
            self._native.clear()
            self._learned.clear()
        try:
            written, is_read_once = tuple(found.written_arguments), found.definition.is_read_once
            constants = found.definition.constant_positions(args)
            places = tuple(range(len(args)) if is_exact else constants)
            result = ExactForm(found) if is_exact else found
            self._native.add(args, written, result, is_read_once, places, is_exact)
            self._num_exact += is_exact
        except RuntimeError:  # a type that DLPack does not know
            return False
        return True

    def _position(self, types: call_keys.Types) -> int | None:
        """Of the tensor whose shape tells forms apart in Python; None where only keys do."""
        are_forms = self._keys.are_forms and self._keys.are_sizes_fixed
        return call_keys.first_tensor(types) if are_forms else None

    def _compile(self, types: call_keys.Types, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        names, key = self._keys.expression(types)
        listed = ", ".join(names)
        tests = " and ".join(f"type({name}) is t{i}" for i, name in enumerate(names))
        scope = self._keys.scope(types) | {f"t{i}": kind for i, kind in enumerate(types)}
        scope |= {"find_form": self._forms[types].get, "find_key": self._table.get}
        scope |= {"otherwise": otherwise, "check": self._keys.check, "is_special": _is_special}
        scope |= {"learned": self._learned, "learn": self._learn, "is_traced": is_traced}
        scope["may_learn"] = lambda: self._num_exact < MAX_EXACT_FORMS
        scope |= {"has_levels": has_levels, "are_recorded": torch.is_grad_enabled}
        lines = [
            f"def find({listed}):",
            "    if is_traced() or has_levels(): return None",
            f"    if not ({tests or True}): return otherwise({listed})",
            *self._special_lines(types, names),
            "    try:",
            *self._form_lines(types, names),
            f"        key_of_call = {key}",
            "        found = find_key(key_of_call)",
            *self._learn_lines(types, names),
            "        return found",
            "    except RuntimeError:",
            f"        check({listed})",
            "        raise",
        ]
        exec("\n".join(lines), scope)
        return scope["find"]

    def _special_lines(self, types: call_keys.Types, names: Sequence[str]) -> Iterator[str]:
        tensors = [name for name, kind in zip(names, types) if issubclass(kind, torch.Tensor)]
        required = " or ".join(f"{name}.requires_grad" for name in tensors)
        if tensors:
            yield f"    if are_recorded() and ({required}): return None"
            # Tensors of torch.func's transforms have sizes, but no memory: they stand for others.
            absent = " or ".join(f"not {name}.data_ptr() and {name}.numel()" for name in tensors)
            yield "    try:"
            yield f"        if {absent}: return None"
            yield "    except RuntimeError: return None"
        plain = (*PLAIN, torch.Tensor)
        held = [name for name, kind in zip(names, types) if not issubclass(kind, plain)]
        if held:
            yield f"    if is_special({', '.join(held)}): return None"

    def _form_lines(self, types: call_keys.Types, names: Sequence[str]) -> Iterator[str]:
        position = self._position(types)
        if position is not None:
            yield f"        known = find_form({names[position]}.shape)"
            yield f"        if known is not None and known[0]({', '.join(names)}): return known[1]"

    def _learn_lines(self, types: call_keys.Types, names: Sequence[str]) -> Iterator[str]:
        if self._keys.are_forms:
            yield "        if found is not None and key_of_call not in learned:"
            yield f"            learn(key_of_call, {', '.join(names)})"
        elif self._keys.are_exact_forms:
            yield "        if found is not None and may_learn():"
            yield f"            learn(key_of_call, {', '.join(names)})"
