"""The implementations of an operator by name; how each is made is left to the worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version

from tilesmith.bench.case import Operator
from tilesmith.bench.row import Owner

OURS = "tilesmith"
EAGER = "eager"
HELION = "helion"


class Kind(str, Enum):
    """How an implementation is made."""

    DEFAULT = "our kernel as a first call takes it, without any search"
    TUNED = "our kernel after a search"
    EAGER = "PyTorch"
    COMPILED = "torch.compile"
    COMPILED_MAX = "torch.compile, max-autotune"
    FUNCTION = "a function from any module"
    HELION = "our kernel's source under Helion"


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator."""

    name: str
    kind: Kind
    target: str = ""
    """As ``module:function``; empty where the operator has it."""
    is_installed: bool = True

    def answers_to(self, pattern: str) -> bool:
        """Whether a name or pattern means it: its own name, or that of its kind for any kernel."""
        general = {Kind.DEFAULT: OURS, Kind.TUNED: f"{OURS}_tuned", Kind.HELION: HELION}
        return pattern == general.get(self.kind) or fnmatchcase(self.name, pattern)

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner.OURS if self.kind in (Kind.DEFAULT, Kind.TUNED) else Owner.THEIRS

    @property
    def problem(self) -> str:
        """Why it cannot run."""
        return "" if self.is_installed else f"{self.name} is not installed"


def implementations_of(operator: Operator, plugins: Iterable[str] = ()) -> list[Implementation]:
    """Ours first, then PyTorch, then others; plug-ins are ``[operator=]module:function``.

    A name that comes twice means the last.
    """
    found = [
        *_ours(operator),
        Implementation(EAGER, Kind.EAGER),
        Implementation("torch_compile", Kind.COMPILED),
        Implementation("torch_compile_max", Kind.COMPILED_MAX),
        *(Implementation(name, Kind.FUNCTION, target) for name, target in operator.others.items()),
        *_helion(operator),
        *_plugins(operator, plugins),
    ]
    return list({implementation.name: implementation for implementation in found}.values())


def is_helion_installed() -> bool:
    """Whether there is a package of that name; our own names under that alias are none."""
    try:
        return bool(version(HELION))
    except PackageNotFoundError:
        return PathFinder.find_spec(HELION) is not None


def plugin_name(target: str) -> str:
    """What a plug-in is called: ``fast.products:matmul`` is ``products.matmul``."""
    module, _, function = target.partition(":")
    return f"{module.rpartition('.')[2]}.{function}"


def _ours(operator: Operator) -> Iterator[Implementation]:
    for suffix, target in _suffixes(operator).items():
        yield Implementation(f"{OURS}{suffix}", Kind.DEFAULT, target)
        yield Implementation(f"{OURS}{suffix}_tuned", Kind.TUNED, target)


def _helion(operator: Operator) -> Sequence[Implementation]:
    return [
        Implementation(f"{HELION}{suffix}", Kind.HELION, target, is_helion_installed())
        for suffix, target in _suffixes(operator).items()
    ]


def _suffixes(operator: Operator) -> dict[str, str]:
    """Targets by what is added to names: nothing where there is one kernel only."""
    if len(operator.kernels) == 1:
        return {"": next(iter(operator.kernels.values()))}
    return {f"_{name}": target for name, target in operator.kernels.items()}


def _plugins(operator: Operator, plugins: Iterable[str]) -> Iterator[Implementation]:
    for text in plugins:
        owner, _, target = text.rpartition("=")
        if owner in ("", operator.name):
            yield Implementation(plugin_name(target), Kind.FUNCTION, target)
