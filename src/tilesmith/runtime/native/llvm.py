"""llvmlite, imported on first use: it takes a twentieth of a second."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def llvm() -> Any:
    """``llvmlite.binding`` with every target it was built with."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@cache
def llvm_version() -> str:
    """What generated code depends on: the versions of llvmlite and of the LLVM in it."""
    import llvmlite

    return f"{llvmlite.__version__} {'.'.join(map(str, llvm().llvm_version_info))}"
