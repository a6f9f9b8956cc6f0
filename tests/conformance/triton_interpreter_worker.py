"""Runs saved modules of conformance cases under Triton's interpreter: JSON jobs in, problems out.

A process of its own, since TRITON_INTERPRET decides how ``triton.language`` itself is imported.
A job is [case, form]: "small" tiles, the "default" config, or small tiles and "dynamic" shapes; an
outcome is null, or the text of what went wrong.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback

# Imported first of all that may import triton: it sets TRITON_INTERPRET.
from tests.backends.triton.interpreter_worker import _patch as patch_interpreter
from tests.conformance.all_cases import CASES
from tests.conformance.host_control_kernels import STAGED
from tests.examples.triton_interpreter_worker import import_text

BY_NAME = {case.name: case for case in [*CASES, *STAGED]}


def run_job(name: str, form: str) -> None:
    """Save the module, import it, call its host function and compare."""
    case = BY_NAME[name]
    args = case.make_args()
    kernel = case.dynamic_kernel if form == "dynamic" else case.kernel
    bound = kernel.bind(args, target="cuda:90")
    config = bound.default_config() if form == "default" else case.config
    source = bound.to_triton_code(config)
    try:
        with tempfile.TemporaryDirectory() as folder:
            module = import_text(source, folder)
            case.check(getattr(module, case.kernel.name)(*args))
    except Exception as error:
        raise RuntimeError(f"with {config}\n{source}") from error


def outcome(name: str, form: str) -> str | None:
    """None, or the traceback of a job that failed."""
    try:
        run_job(name, form)
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    patch_interpreter()
    json.dump([outcome(*job) for job in json.load(sys.stdin)], sys.stdout)
