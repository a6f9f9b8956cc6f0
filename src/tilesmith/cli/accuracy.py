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
from tilesmith.cli.json_option.words import HELP, STDOUT
from tilesmith.cli.kernel_reference import find_function
from tilesmith.cli.output import UsageError, make_folder, show, tell
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.drawing.chart import Chart, Dots, standalone
from tilesmith.lab.drawing.scale import Scale
from tilesmith.numerics.doctor import findings
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.diagnosed_call import ReferenceFormError
from tilesmith.numerics.doctor.errors import LOWEST, WRONG, power_text
from tilesmith.numerics.doctor.host_run import compiled
from tilesmith.numerics.doctor.report import Diagnosis

EAGER, COMPILE = "eager", "compile"
HALF_AN_ULP = -1
NUM_COLOURS = 8


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
    programs: Annotated[int, typer.Option(help="to interpret; 0: what is affordable", min=0)] = 0
    svg: Annotated[Path | None, typer.Option(help="write a picture of the errors here")] = None
    json: Annotated[Path | None, typer.Option(metavar="[FILE]", help=HELP)] = None

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
    if kernel.staged is not None:
        raise UsageError(f"{kernel.name} has several launches; the doctor looks at one at a time")
    against = find_implementations(flags.against, kernel)
    files = [path for path in (flags.json, flags.svg) if path not in (None, STDOUT)]
    for path in files:
        make_folder(path.parent)
    try:
        diagnosis = diagnose(kernel, arguments, against, flags.options())
    except ReferenceFormError as error:
        raise UsageError(f"--reference: {error}") from None
    found = json.dumps(diagnosis.to_json(), indent=1)
    show(found if flags.json == STDOUT else str(diagnosis))
    names = ", ".join(map(str, files))
    try:
        if flags.json in files:
            flags.json.write_text(found + "\n")
        if flags.svg is not None:
            flags.svg.write_bytes(_picture(diagnosis))
    except OSError as error:
        raise UsageError(f"{error.filename or names} cannot be written: {error.strerror}") from None
    if files:
        tell(f"wrote {names}")
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
    picture = draw_errors(diagnosis.statistics, diagnosis.examination.subject.name)
    if picture is None:
        raise UsageError("--svg: there are no errors to draw, as there is no reference")
    return standalone(picture)


def draw_errors(statistics: Sequence[findings.ErrorStatistics], title: str) -> str | None:
    """A line for each output and implementation; None without any."""
    drawn = sorted((s for s in statistics if s.histogram), key=lambda item: item.output)
    if not drawn:
        return None
    last = max(bucket for item in drawn for bucket in item.histogram)
    names = {float(b): "NaN" if b == WRONG else power_text(b) for b in range(LOWEST, last + 1)}
    shares = [_shares(item) for item in drawn]
    least = min(share for found in shares for _, share in found)
    heights = Scale(least / 2, 1.5, is_log=True)
    labels = ("error in ulp of the result's type, up to", "share of elements (log scale)")
    across = Scale(LOWEST - 0.5, last + 0.5)
    chart = Chart(f"{title}: errors against fp64", across, heights, labels, names=names)
    rounding = HALF_AN_ULP + 0.5
    chart.line([(rounding, heights.low), (rounding, 1.5)], "roof dashed", "rounding alone")
    for number, (item, found) in enumerate(zip(drawn, shares)):
        tips = [f"{names[bucket]}: {share:.3g}" for bucket, share in found]
        style = f"series{number % NUM_COLOURS}"
        chart.line(found, style)
        chart.dots(Dots(found, style, f"{item.output}, {item.implementation}", tips))
    return chart.text()


def _shares(item: findings.ErrorStatistics) -> list[tuple[float, float]]:
    total = sum(item.histogram.values())
    return [(float(b), count / total) for b, count in sorted(item.histogram.items()) if count]


add_to = make_command_adder(accuracy=accuracy)
