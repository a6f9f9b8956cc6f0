"""Kernels and bound kernels in words: ``repr``, and a table for notebooks.

Nothing is compiled or searched for a ``repr``; the table of a bound kernel makes its code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import ms_text
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.visible.determinism import SAME_BITS, determinism_text
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.config_text import config_text
from tilesmith.store.lookup import describe_arguments
from tilesmith.store.winners import Winners

_OF_MACHINE = ("cache_dir", "logs")
"""Settings that say nothing of a kernel."""
INTERPRETED = "interpreted"
"""Where a config is of no use."""
MAX_LISTED = 8
"""Bound kernels that a table has."""
Rows = Iterable[tuple[str, str]]


class _Unquoted(str):
    """An annotation that is a text already: shown without quotes."""

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return str(self)


def signature_text(signature: inspect.Signature) -> str:
    """A signature as the user has written it.

    Example:
        >>> signature_text(inspect.signature(lambda x, y=1: x))
        '(x, y=1)'
    """
    parameters = [p.replace(annotation=_plain(p.annotation)) for p in signature.parameters.values()]
    returned = _plain(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _plain(annotation: Any) -> Any:
    return _Unquoted(annotation) if isinstance(annotation, str) else annotation


def changed_settings(settings: Settings) -> dict[str, Any]:
    """The settings that a kernel without any would not have."""
    plain = Settings()
    values = ((item.name, getattr(settings, item.name)) for item in fields(plain))
    return {
        name: value
        for name, value in values
        if name not in _OF_MACHINE and value != getattr(plain, name)
    }


class DescribedKernel:
    """A kernel that says what it is."""

    definition: KernelDefinition
    _bound_kernels: Any

    @override
    def __repr__(self) -> str:
        return f"<kernel {', '.join([self._call_text(), *self._remarks()])}>"

    def _call_text(self) -> str:
        return f"{self.definition.name}{signature_text(self.definition.arguments.plain)}"

    def _remarks(self) -> Iterator[str]:
        for name, value in changed_settings(self.definition.settings).items():
            yield f"{name}={value!r}"
        configs = self.definition.configs
        if configs:
            yield config_text(configs[0]) if len(configs) == 1 else f"{len(configs)} configs"
        count = len(self._bound_kernels)
        if count:
            yield f"bound {count} time{'s' if count > 1 else ''}"

    def _repr_html_(self) -> str:
        """A table for notebooks: signature, settings, configs, what is bound, the source."""
        code = self.definition.fn.__code__
        settings = changed_settings(self.definition.settings)
        rows = [("where", _link(code.co_filename, code.co_firstlineno))]
        rows += [("settings", escape(_listed(settings)))] if settings else []
        rows += [("config", escape(config_text(config))) for config in self.definition.configs]
        latest = list(self._bound_kernels.values())[-MAX_LISTED:]
        rows += [("bound", escape(repr(bound))) for bound in latest]
        return _table(f"kernel {self._call_text()}", rows, "source", self._source_text())

    def _source_text(self) -> str:
        try:
            return inspect.getsource(self.definition.fn)
        except OSError as error:  # a file that is gone
            return str(error)


class DescribedBoundKernel:
    """A bound kernel that says what it is, and with which config it runs."""

    definition: KernelDefinition
    target: Any
    described = ""
    """The arguments that it was bound to."""

    def _config_in_use(self) -> tuple[Config | None, str]:
        """The config of calls, None before it is chosen, and where it is from."""
        bound: Any = self
        active = bound._active
        if active is None:
            return (bound.chosen, "set") if bound.chosen else (None, "not called yet")
        if not active.runner.is_compiling:
            return active.config, INTERPRETED
        origin = "given" if bound.configs else "the default"
        return active.config, "searched or set" if bound.chosen else origin

    def _describe(self, args: tuple[Any, ...]) -> None:
        parameters = self.definition.parameters
        self.stored_as = describe_arguments(parameters, args)
        self.described = describe_arguments(parameters, args, with_values=True)

    @property
    def determinism(self) -> str:
        """Whether calls give the same bits in every run; if not, what depends on the order.

        Example:
            ``print(kernel.bind((x,)).determinism)``
        """
        config, origin = self._config_in_use()
        if origin == INTERPRETED:
            return SAME_BITS  # programs run one after the other
        return determinism_text(self, config or self._default())

    def _default(self) -> Config:
        bound: Any = self
        return bound.resolve(None)

    @override
    def __repr__(self) -> str:
        return f"<bound kernel {', '.join([self._call_text(), *self._remarks()])}>"

    def _call_text(self) -> str:
        return f"{self.definition.name}({self.described}) on {self.target}"

    def _remarks(self) -> Iterator[str]:
        settings = changed_settings(self.definition.settings)
        yield from (f"{name}={value!r}" for name, value in settings.items())
        config, origin = self._config_in_use()
        if config is None:
            yield origin
            return
        yield f"{config_text(config)} ({origin})"
        yield self.determinism

    def _repr_html_(self) -> str:
        """A table for notebooks: arguments, config, time, determinism, and the code to unfold."""
        config, origin = self._config_in_use()
        used = self._default() if config is None else config
        settings = changed_settings(self.definition.settings)
        rows = [
            ("config", f"{escape(config_text(used))} ({escape(origin)})"),
            ("time", escape(self._time_text(used))),
            ("results", escape(self.determinism)),
        ]
        rows += [("settings", escape(_listed(settings)))] if settings else []
        return _table(f"bound kernel {self._call_text()}", rows, "code", self._code_text(used))

    def _time_text(self, config: Config) -> str:
        """What a search has measured, else what the model of the device expects."""
        bound: Any = self
        for winner in reversed(Winners(bound.settings.cache_dir).entries(self.definition.name)):
            is_same = winner.key.arguments == self.stored_as and winner.config == config
            if is_same and winner.key.target == str(self.target) and not winner.is_stale:
                return f"{ms_text(winner.median_ms)}, measured"
        predicted = bound.config_spec.predict(bound.config_spec.settle(config))
        return f"{ms_text(predicted.total_ms)}, predicted"

    def _code_text(self, config: Config) -> str:
        bound: Any = self
        try:
            return bound.to_code(config)
        except errors.BaseError as error:
            return str(error)


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _link(file: str, line: int) -> str:
    """A place in a file that is there; cells of notebooks have none."""
    text = f"{escape(Path(file).name)}:{line}"
    if not Path(file).is_file():
        return text
    return f'<a href="{escape(Path(file).resolve().as_uri())}">{text}</a>'


def _table(title: str, rows: Rows, label: str, code: str) -> str:
    """HTML; the title and the code are plain texts, the rows are not."""
    cells = "".join(f"<tr><th>{name}</th><td>{content}</td></tr>" for name, content in rows)
    unfolded = f"<details><summary>{label}</summary><pre>{escape(code)}</pre></details>"
    return f"<div><code>{escape(title)}</code><table>{cells}</table>{unfolded}</div>"
