"""Options of a command as a dataclass, and the command that is made of them and a function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, extract_tb, format_exception_only, format_list
from typing import Annotated, Any, get_type_hints

import typer

from tilesmith.cli.kernel_reference import ReferenceNotFoundError, find_function, find_kernel
from tilesmith.cli.output import UsageError
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.workload.argument_text import (
    Arguments,
    ArgumentTextError,
    default_device,
    parse_arguments,
)
from tilesmith.settings import SettingError
from tilesmith.targets import parse_target

PACKAGE = str(Path(__file__).parents[1])
KERNEL_ERROR, USAGE_ERROR, INTERRUPTED = 1, 2, 130
"""Exit codes, beside 0."""

ARGS_HELP = (
    "the kernel's arguments: randn(4096, 4096, dtype=bf16), 3, eps=1e-5; also zeros, ones, full, "
    "rand, randint, arange, views such as .T or [::2]; @file.json reads them from a file"
)


@dataclass(frozen=True)
class KernelFlags:
    """Which kernel, and for which arguments."""

    kernel: Annotated[str, typer.Argument(help="module:kernel or path/to/file.py:kernel")]
    args: Annotated[str, typer.Option("--args", help=ARGS_HELP)] = ""
    inputs: Annotated[
        str, typer.Option(help="module:function that returns the arguments, instead of --args")
    ] = ""
    device: Annotated[str, typer.Option(help="cpu or cuda; default: a GPU if there is one")] = ""
    seed: Annotated[int, typer.Option(help="seed of random numbers", min=0)] = 0

    def load(self) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel and all of its arguments."""
        if self.args and self.inputs:
            raise UsageError("--args and --inputs: give the kernel's arguments with one of them")
        if not self.args and not self.inputs:
            raise UsageError("give the kernel's arguments with --args, or with --inputs")
        kernel = find_kernel(self.kernel)
        if self.inputs:
            given = self._from_function()
        else:
            device = self.device or default_device()
            given = parse_arguments(self.args, device=device, seed=self.seed)
        return kernel, kernel.normalize_args(*given.positional, **dict(given.keywords))

    def _from_function(self) -> Arguments:
        make = find_function(self.inputs)
        try:
            inspect.signature(make).bind()
        except TypeError:
            raise UsageError(f"--inputs {self.inputs}: it must need no arguments") from None
        made = make()
        if made is None:
            raise UsageError(f"--inputs {self.inputs} returned None; expected a tuple or a dict")
        if isinstance(made, dict):
            return Arguments((), tuple((str(name), value) for name, value in made.items()))
        return Arguments(tuple(made) if isinstance(made, (list, tuple)) else (made,))


@dataclass(frozen=True)
class BoundFlags(KernelFlags):
    """A kernel for a device that need not be here."""

    target: Annotated[
        str, typer.Option(help="a device that need not be here: cuda:90, hip:gfx942, cpu")
    ] = ""

    def bind(self) -> BoundKernel:
        """The kernel for its arguments."""
        try:
            parse_target(self.target or "cpu")
        except ValueError as error:
            raise UsageError(f"--target: {error}") from None
        kernel, arguments = self.load()
        return kernel.bind(arguments, target=self.target or None)


def make_command_adder(**runs: Callable[..., int]) -> Callable[[typer.Typer], None]:
    """What adds commands to an application, each a function from its flags to the exit code."""

    def add_to(app: typer.Typer) -> None:
        for name, run in runs.items():
            app.command(name)(_make_command(run))

    return add_to


def _make_command(run: Callable[..., int]) -> Callable[..., None]:
    """The function with the fields of its flags as parameters, as typer wants it.

    A field with a function beside its option is given as the text that the function takes.
    """
    wanted = get_type_hints(run)
    flags = wanted.pop("flags")
    hints = get_type_hints(flags, include_extras=True)
    readers = {n: read for n, hint in hints.items() for read in hint.__metadata__ if callable(read)}

    def act(context: typer.Context, values: dict[str, Any]) -> int:
        for name, read in readers.items():
            text = values.pop(name)
            try:
                values |= {} if text is None else {name: read(text)}
            except ValueError as error:
                raise UsageError(f"{options_of(context)[name]} {error}") from None
        return run(flags(**values), **({"context": context} if "context" in wanted else {}))

    def command(context: typer.Context, **values: Any) -> None:
        raise typer.Exit(_run_safely(lambda: act(context, values)))

    parameters = dict(inspect.signature(flags).parameters)
    for name, read in readers.items():
        (kind,) = get_type_hints(read).keys() - {"return"}
        hints[name] = Annotated[get_type_hints(read)[kind] | None, hints[name].__metadata__[0]]
        parameters[name] = parameters[name].replace(default=None)
    resolved = [item.replace(annotation=hints[name]) for name, item in parameters.items()]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    command.__annotations__ = {"context": typer.Context, **hints}
    command.__doc__ = run.__doc__
    vars(command)["__signature__"] = inspect.Signature([*resolved, context])
    return command


def options_of(context: typer.Context) -> dict[str, str]:
    """What stands on the command line for each parameter of a command."""
    items = context.command.params
    return {str(item.name): " or ".join([*item.opts, *item.secondary_opts]) for item in items}


def _run_safely(act: Callable[[], int]) -> int:
    """Mistakes of the caller are a message, not a traceback."""
    try:
        return act()
    except (ArgumentTextError, ReferenceNotFoundError, SettingError, UsageError) as error:
        typer.echo(f"error: {error}", err=True)
        return USAGE_ERROR
    except BaseError as error:
        typer.echo(f"error: {error}", err=True)
        return KERNEL_ERROR
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        own = _frames_of_user(error)
        if not own:
            raise
        typer.echo("".join([*format_list(own), *format_exception_only(error)]).rstrip(), err=True)
        return KERNEL_ERROR


def _frames_of_user(error: Exception) -> list[FrameSummary]:
    """The frames below our last one: what the user's module or host code did."""
    frames = extract_tb(error.__traceback__)
    ours = [place for place, frame in enumerate(frames) if frame.filename.startswith(PACKAGE)]
    below = frames[ours[-1] + 1 :] if ours else []
    machinery = ("<frozen", str(importlib.__file__))
    return [frame for frame in below if not frame.filename.startswith(machinery)]
