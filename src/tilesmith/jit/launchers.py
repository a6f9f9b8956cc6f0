"""Launchers: a trace under a config, ready to run on the values that host code hands over."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.compiler.interpreter_tiles import whole_tile_sizes
from tilesmith.compiler.specialization import Variant
from tilesmith.diagnostics.logs import topic_log
from tilesmith.interpreter.run import run_prepared
from tilesmith.interpreter.schedules.scheduled import prepare_run
from tilesmith.ir.function import Function
from tilesmith.jit.compiled_kernel import CompiledKernel
from tilesmith.jit.runners import Runner
from tilesmith.runtime.arguments import FindOther, Launcher, LaunchOptions, compile_reader
from tilesmith.runtime.launchers.cpu import native_launcher
from tilesmith.runtime.launchers.in_order import triton_launcher
from tilesmith.schedule.by_pointers import by_pointers
from tilesmith.schedule.config import Config

CODE, LAUNCH = topic_log("code"), topic_log("launch")


def _options(site: CompiledKernel, other: FindOther | None = None) -> LaunchOptions:
    """What launchers are told besides the artifact."""
    definition, settings = site.definition, site.settings
    # Arguments that reach device code as they are given.
    arguments = frozenset(definition.parameters) & definition.split.keyed
    folder, reader = Path(settings.cache_dir), definition.find_reader()
    owner = id(site) if site.definition.is_read_once else 0
    return LaunchOptions(folder, site.device, arguments, reader, owner, other, settings.num_threads)


def _show(site: CompiledKernel, make_code: Callable[[], str]) -> None:
    """Print code if asked to; a launcher is made once per config and trace, so once."""
    if site.settings.print_output_code:
        sys.stderr.write(f"{make_code()}\n")
    if CODE.isEnabledFor(logging.INFO):
        code = make_code()
        name, lines = site.definition.name, code.count("\n") + 1
        CODE.info("%s: %d lines for %s", name, lines, site.target)
        CODE.debug("%s:\n%s", name, code)


def launch_natively(site: CompiledKernel, variant: Variant, config: Config) -> Launcher:
    """Native code of the CPU, built at once."""
    if site.device.type != "cpu":
        raise errors.BackendUnsupported(
            operation=f"running on tensors of device {site.device}",
            backend="cpu",
            fix="pass tensors of the CPU or of a GPU; kernel.bind(args) shows code without any",
        )
    artifact = site.specialization.artifact(config, site.target, variant)
    _show(site, lambda: artifact.readable)
    captured, constants = site.definition.split.captured, variant.trace.constants
    return native_launcher(artifact, captured, constants, _options(site))


def launch_with_triton(
    site: CompiledKernel, variant: Variant, config: Config, other: FindOther | None = None
) -> Launcher:
    """A Triton kernel, built at its first launch; a plain one where that cannot take a call.

    ``other`` launches what would take minutes to build.
    """
    spec = site.specialization.spec(site.target, variant)
    launcher = triton_launcher(
        site.specialization.artifact(config, site.target, variant),
        site.definition.split.captured,
        variant.trace.constants,
        _options(site, other),
        lambda: launch_with_triton(site, variant, by_pointers(spec, config), other),
    )
    _show(site, lambda: f"# {launcher.path}\n{launcher.artifact.source}")
    return launcher.launch


def interpret(
    site: CompiledKernel, variant: Variant, config: Config, *, races: bool = False
) -> Launcher:
    """The reference interpreter; ``races``: with every access checked."""
    blocks = config.get("block_sizes", [])
    sizes = whole_tile_sizes(variant.function)
    for block in variant.function.blocks:
        if block.slot is not None and block.slot < len(blocks):
            sizes[block.name] = blocks[block.slot]
    LAUNCH.info("%s: is interpreted, blocks %s", site.definition.name, sizes)
    captured, constants = site.definition.split.captured, variant.trace.constants
    return reference_launcher(variant.function, sizes, captured, constants, races=races)


def launch_directly(
    site: CompiledKernel, variant: Variant, config: Config, _: FindOther | None = None
) -> Launcher:
    """What a backend's own launcher makes of an artifact."""
    artifact = site.specialization.artifact(config, site.target, variant)
    _show(site, lambda: artifact.readable)
    make = site.definition.backends.named(artifact.backend).launch
    assert make is not None
    run = make(artifact)
    sources = [parameter.source for parameter in artifact.parameters]
    read = compile_reader(site.definition.split.captured, sources, variant.trace.constants)

    def launch(*values: Any) -> None:
        run(*read(*values))

    return launch


LaunchMaker = Callable[..., Launcher]
"""Of a compiled kernel, a variant and a config; if code is built at a launch also ``FindOther``."""
LAUNCHERS: dict[str, LaunchMaker] = {
    "triton": launch_with_triton,
    "cpu": launch_natively,
    "reference": interpret,
}
"""Of backends whose launchers need more than an artifact, by the backend's name."""


def find_launcher(runner: Runner) -> LaunchMaker:
    """What makes the launchers of a runner."""
    if runner.is_checked:
        return partial(interpret, races=True)
    return LAUNCHERS.get(runner.backend.name, launch_directly)


def reference_launcher(
    function: Function,
    sizes: Mapping[str, int],
    captured: Sequence[str],
    constants: Sequence[Any],
    *,
    races: bool = False,
) -> Callable[..., None]:
    """A function of the captured values that runs the kernel on them."""
    names = [parameter.value.name for parameter in function.parameters]
    read = compile_reader(captured, [p.source for p in function.parameters], constants)
    prepared = prepare_run(function, races=races)

    def launch(*values: Any) -> None:
        arguments = dict(zip(names, read(*values)))
        complete = {**{size.name: arguments[size.name] for size in function.sizes}, **sizes}
        with torch.no_grad(), _without_autocast():
            run_prepared(prepared, arguments, complete, races=races)

    return launch


def _without_autocast() -> AbstractContextManager[Any]:
    """A kernel says which types it computes in; the caller's autocast must not change them."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    stack = ExitStack()
    for kind in kinds:
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack
