"""Every backend, listed."""

from __future__ import annotations

from tilesmith.backends.cpu.backend import CPU_BACKEND
from tilesmith.backends.interface import BackendTable
from tilesmith.backends.reference.backend import REFERENCE_BACKEND
from tilesmith.backends.triton.backend import TRITON_BACKEND

BACKENDS = BackendTable((TRITON_BACKEND, CPU_BACKEND, REFERENCE_BACKEND))
