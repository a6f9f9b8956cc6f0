"""All mutants, in the order of the layers."""

from __future__ import annotations

from tools.mutants.compiling import ANALYSIS, FRONTEND, INTERPRETER, NEUTRAL_ELEMENTS, PASSES
from tools.mutants.mutant import Mutant
from tools.mutants.running import CPU, JIT, RUNTIME, SCHEDULE, TRITON, TUNER

MUTANTS: tuple[Mutant, ...] = (
    *FRONTEND,
    *NEUTRAL_ELEMENTS,
    *INTERPRETER,
    *ANALYSIS,
    *PASSES,
    *SCHEDULE,
    *TRITON,
    *CPU,
    *JIT,
    *RUNTIME,
    *TUNER,
)
