"""``tilesmith doctor``: what is installed and what works here, in one screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Annotated

import typer

from tilesmith.checkup.report import Finding, examine
from tilesmith.cli.flags import make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.lab.reports import json_line

WIDTH = 100
NAME_WIDTH = 12
SOMETHING_WRONG = 1


@dataclass(frozen=True)
class DoctorFlags:
    """The options of ``tilesmith doctor``."""

    kernel: Annotated[str, typer.Argument(help="none: `accuracy` is for kernels")] = ""
    quick: Annotated[bool, typer.Option("--quick", help="compile and run nothing")] = False
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False


def doctor(flags: DoctorFlags) -> int:
    """Say what is installed and what works here. Paste it into a bug report."""
    if flags.kernel:
        raise UsageError(
            "this looks at the machine; for wrong results of a kernel: "
            f"tilesmith accuracy {flags.kernel} --args ..."
        )
    findings = list(examine(with_trials=not flags.quick))
    if flags.json:
        show(json_line({finding.name: asdict(finding) for finding in findings}))
    else:
        show("\n".join(line for finding in findings for line in finding_lines(finding)))
    return 0 if all(finding.is_good for finding in findings) else SOMETHING_WRONG


def finding_lines(finding: Finding) -> list[str]:
    """A finding under its name, wrapped; what is wrong is marked, and what helps comes below."""
    mark = " " if finding.is_good else "!"
    texts = wrap(finding.text, WIDTH - NAME_WIDTH - 2, break_on_hyphens=False)
    texts += wrap(f"-> {finding.hint}", WIDTH - NAME_WIDTH - 2) if finding.hint else []
    heads = [f"{mark} {finding.name}", *[""] * (len(texts) - 1)]
    return [f"{head:<{NAME_WIDTH + 2}}{text}" for head, text in zip(heads, texts)]


add_to = make_command_adder(doctor=doctor)
