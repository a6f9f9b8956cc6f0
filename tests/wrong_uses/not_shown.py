"""Classes of the catalogue that no small program shows: why, and where a test raises them."""

from __future__ import annotations

_ROOT = "a root that others are caught by; nothing raises it itself"
_PARENT = "a parent that others are caught by; nothing raises it itself"
NOT_SHOWN: dict[str, tuple[str, str]] = {
    "Base": (_ROOT, ""),
    "BaseError": (_ROOT, ""),
    "BaseWarning": (_ROOT, ""),
    "WrappingError": (_ROOT, ""),
    "HostAPIOnDevice": (_PARENT, ""),
    "InductorLoweringError": (_PARENT, ""),
    "InvalidReductionDim": (_PARENT, ""),
    "ConfigEntryIgnored": (
        "an option of a loop that Triton fails on; needs a GPU to launch on",
        "tests/backends/triton/workarounds/test_failing_passes.py",
    ),
    "ConfigReplaced": (
        "a config that Triton cannot build on the device; needs a GPU to launch on",
        "tests/jit/test_executables.py",
    ),
    "KernelNotFound": (
        "a graph that another process saved names a kernel that its module no longer has",
        "tests/diagnostics/catalogue_samples.py",
    ),
    "NotOnShards": ("needs a process group", "tests/operators/test_tensors_of_others.py"),
    "StoredConfigUnusable": (
        "a stored config that this version of the kernel no longer takes",
        "tests/diagnostics/catalogue_samples.py",
    ),
    "TuningFailed": ("a search in which every candidate fails", "tests/tune/test_faults.py"),
}
