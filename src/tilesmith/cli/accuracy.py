"""``tilesmith accuracy module:kernel --args ... --against eager,compile``: which result is wrong?

Standard output has the report; the exit code says whether the kernel itself is right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.flags import KERNEL_ERROR, KernelFlags, make_command_adder
from tilesmith.cli.kernel_reference import find_function
from tilesmith.cli.output import UsageError, show
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.pages import LIGHT, PictureError, Theme, finish, new_figure
from tilesmith.numerics.doctor import findings
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.diagnosed_call import ReferenceFormError
from tilesmith.numerics.doctor.errors import LOWEST, WRONG, power_text
from tilesmith.numerics.doctor.host_run import compiled
from tilesmith.numerics.doctor.report import Diagnosis

EAGER, COMPILE = "eager", "compile"
SIZE = (9.0, 5.0)
HALF_AN_ULP = -1
COLUMNS = 4
GROUP_WIDTH = 0.84


@dataclass(frozen=True)
class AccuracyFlags(KernelFlags):
    """The options of ``tilesmith accuracy``."""

    against: Annotated[
        str,
        typer.Option(
            help="other implementations, by commas: eager (the kernel's autotune_baseline_fn, or "
            "KERNEL_eager or eager beside it), compile (that under torch.compile), "
            "module:function or name=module:function"
        ),
    ] = ""
    reference: Annotated[
        str, typer.Option(help="module:function, the same in fp64; by default the kernel's own")
    ] = ""
    repeats: Annotated[int, typer.Option(help="runs that must agree", min=1)] = 5
    configs: Annotated[int, typer.Option(help="configs to compare", min=0)] = 3
    programs: Annotated[
        int, typer.Option(help="programs to interpret; 0: what is affordable", min=0)
    ] = 0
    png: Annotated[Path | None, typer.Option(help="write a picture of the errors here")] = None
    json: Annotated[Path | None, typer.Option(help="write everything found here")] = None

    def options(self) -> findings.DiagnoseOptions:
        """How thorough to be."""
        return findings.DiagnoseOptions(
            repeats=self.repeats,
            num_configs=self.configs,
            reference=find_function(self.reference) if self.reference else None,
            max_programs=self.programs or None,
            seed=self.seed,
        )


def accuracy(flags: AccuracyFlags) -> int:
    """Which of several results is wrong, and why. All are compared with fp64."""
    kernel, arguments = flags.load()
    against = find_implementations(flags.against, kernel)
    try:
        diagnosis = diagnose(kernel, arguments, against, flags.options())
    except ReferenceFormError as error:
        raise UsageError(f"--reference: {error}") from None
    show(str(diagnosis))
    try:
        for path in filter(None, (flags.json, flags.png)):
            path.parent.mkdir(parents=True, exist_ok=True)
        if flags.json is not None:
            flags.json.write_text(json.dumps(diagnosis.to_json(), indent=1) + "\n")
        if flags.png is not None:
            flags.png.write_bytes(_picture(diagnosis))
    except OSError as error:
        names = ", ".join(map(str, filter(None, (flags.json, flags.png))))
        place = error.filename or names
        raise UsageError(f"{place} cannot be written: {error.strerror}") from None
    return 0 if is_kernel_right(diagnosis) else KERNEL_ERROR


def is_kernel_right(diagnosis: Diagnosis) -> bool:
    """Whether the kernel's errors are justified, and the same at every run."""
    repeats = diagnosis.examination.agreement(findings.OURS, findings.Scope.REPEATS)
    is_steady = repeats is None or repeats.is_same
    return is_steady and all(s.is_right for s in diagnosis.examination.statistics_of(findings.OURS))


def find_implementations(text: str, kernel: Kernel) -> dict[str, Callable[..., Any]]:
    """The functions that ``--against`` names, by their names."""
    found: dict[str, Callable[..., Any]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, is_named, reference = item.partition("=")
        if name in (findings.OURS, findings.AS_WRITTEN):
            raise UsageError(f"--against {item}: {name} is taken; give it another name")
        if is_named:
            found[name] = find_function(reference)
        elif item == EAGER:
            found[item] = find_eager(kernel)
        elif item == COMPILE:
            found[item] = compiled(find_eager(kernel, COMPILE))
        elif ":" in item:
            found[item] = find_function(item)
        else:
            raise UsageError(f"--against {item}: expected eager, compile or module:function")
    return found


def find_eager(kernel: Kernel, asked: str = EAGER) -> Callable[..., Any]:
    """The same in PyTorch: the kernel's baseline function, or one with its name beside it."""
    baseline = kernel.settings.autotune_baseline_fn
    if baseline is not None:
        return baseline
    module = sys.modules[kernel.fn.__module__]
    for name in (f"{kernel.name}_eager", "eager"):
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    fix = "name the function, as in --against eager=module:function"
    if asked == COMPILE:
        fix = "that is what torch.compile is given"
    raise UsageError(f"--against {asked}: {kernel.fn.__module__} has no {kernel.name}_eager; {fix}")


def _picture(diagnosis: Diagnosis) -> bytes:
    try:
        picture = draw_errors(diagnosis.statistics, diagnosis.examination.subject.name)
    except PictureError as error:
        raise UsageError(f"--png: {error}") from None
    if picture is None:
        raise UsageError("--png: there are no errors to draw, as there is no reference")
    return picture


def draw_errors(
    statistics: Sequence[findings.ErrorStatistics], title: str, theme: Theme = LIGHT
) -> bytes | None:
    """Bars for each output and implementation; None without any."""
    drawn = sorted((s for s in statistics if s.histogram), key=lambda item: item.output)
    if not drawn:
        return None
    figure, axes = new_figure(SIZE, theme)
    for number in range(len(drawn)):
        _draw(axes, drawn, number, theme)
    last = max(bucket for item in drawn for bucket in item.histogram)
    axes.axvline(HALF_AN_ULP + 0.5, c=theme.roofline, lw=1.3, ls="--", label="rounding alone")
    axes.set_yscale("log")
    buckets = range(LOWEST, last + 1)
    axes.set_xticks(buckets, ["NaN" if b == WRONG else power_text(b) for b in buckets])
    axes.set_xlabel("error in ulp of the result's type, up to")
    axes.set_ylabel("share of elements (log scale)")
    return finish(figure, f"{title}: errors against fp64", theme, gap=4, num_columns=COLUMNS)


def _draw(axes: Any, drawn: Sequence[findings.ErrorStatistics], number: int, theme: Theme) -> None:
    """Side by side with the others: equal errors must not hide each other."""
    item, width = drawn[number], GROUP_WIDTH / len(drawn)
    total = sum(item.histogram.values())
    places = [bucket + (number + 0.5) * width - GROUP_WIDTH / 2 for bucket in item.histogram]
    shares = [count / total for count in item.histogram.values()]
    color = theme.series[number % len(theme.series)]
    axes.bar(places, shares, width, color=color, label=f"{item.output}, {item.implementation}")


add_to = make_command_adder(accuracy=accuracy)
