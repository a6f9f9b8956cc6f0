"""Launches an artifact after those that it begins with, over memory that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from tilesmith.artifacts import Artifact
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.runtime.launchers.turns import in_turn

MakePlain = Callable[[], Callable[..., None]] | None


def triton_launcher(
    artifact: Artifact,
    captured: Sequence[str],
    constants: Sequence[Any],
    options: LaunchOptions,
    make_plain: MakePlain = None,
) -> TritonLauncher:
    """A launcher of one kernel, or of several in their order."""
    kind = _InOrder if artifact.before else TritonLauncher
    return in_turn(kind(artifact, captured, constants, options, make_plain), options.device)


class _InOrder(TritonLauncher):
    """What each launch makes is made once for all of them, and handed on by name."""

    def __init__(
        self,
        artifact: Artifact,
        captured: Sequence[str],
        constants: Sequence[Any],
        options: LaunchOptions,
        make_plain: MakePlain,
    ) -> None:
        # Host code may have variables of any name.
        fresh = {p.name: f"__made_{p.name}" for p in artifact.parameters if p.is_made_at_launch}
        sources = {p.name: p.source for p in artifact.parameters}
        made = {fresh[name]: sources[name] for name in fresh}
        names, sources = [*captured, *made], sources | fresh
        own = _with_sources(artifact, sources)
        # What a call has read of its tensors is for one launch only.
        options, find_other = replace(options, owner=0, find_other=None), options.find_other
        plain = make_plain and (lambda: _first_of(make_plain(), len(captured)))
        other = find_other and (lambda problem: _first_of(find_other(problem), len(captured)))
        super().__init__(own, names, constants, replace(options, find_other=other), plain)
        first = [
            TritonLauncher(_with_sources(item, sources), names, constants, options, _give_up)
            for item in artifact.before
        ]
        launches = [*(item.launch for item in first), self.launch]
        self.launch = _in_order(launches, captured, made, constants, self._launch_plain)


class _CannotLaunchError(Exception):
    """An earlier launch has a tensor that it cannot describe."""


def _give_up() -> NoReturn:
    raise _CannotLaunchError


def _with_sources(artifact: Artifact, sources: dict[str, str]) -> Artifact:
    parameters = tuple(replace(p, source=sources[p.name]) for p in artifact.parameters)
    return replace(artifact, parameters=parameters)


def _first_of(launch: Callable[..., None], count: int) -> Callable[..., None]:
    return lambda *values: launch(*values[:count])


def _in_order(
    launches: Sequence[Callable[..., None]],
    captured: Sequence[str],
    made: dict[str, str],
    constants: Sequence[Any],
    plain: Callable[..., None],
) -> Callable[..., None]:
    """A function of the captured values that makes memory and launches one after the other."""
    given = ", ".join(captured)
    lines = [f"def __launch({given}):"]
    lines += [f"    {name} = {source}" for name, source in made.items()]
    listed = ", ".join([*captured, *made])
    *first, last = [f"    __launch{i}({listed})" for i in range(len(launches))]
    # Whatever earlier launches did is done again by the kernel that needs none of them.
    lines += ["    try:", *(f"    {line}" for line in first)]
    lines += [f"    except __CannotLaunchError: return __plain({listed})", last]
    scope: dict[str, Any] = {f"__launch{i}": launch for i, launch in enumerate(launches)}
    scope |= {"torch": torch, "__constants__": tuple(constants)}
    scope |= {"__plain": plain, "__CannotLaunchError": _CannotLaunchError}
    exec("\n".join(lines), scope, found := dict[str, Any]())
    return found["__launch"]
