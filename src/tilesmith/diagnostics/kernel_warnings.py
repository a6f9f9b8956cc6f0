"""Remarks on kernels that work, but perhaps not as meant; and how they reach the user.

They are printed to stderr, once for each class and place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import TextIO

from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.location import SourceLocation


class TensorOperationInWrapper(BaseWarning):
    message = "{operation} runs on the host, as a separate torch operation"
    note = "ignore_warnings=[exc.TensorOperationInWrapper] silences this"
    fix = "move it into the device loop to fuse it"


class TensorOperationsInHostCall(TensorOperationInWrapper):
    """Tensor compute inside a function that host code calls."""

    message = "`{operation}` computes on tensors on the host, as separate torch operations"


class TiledKMatmulAccumulationWarning(BaseWarning):
    message = "`{name} += ...` adds matrix products {how}"
    note = (
        "`{name} += a @ b` alone is accumulated exactly;\n"
        "a product that is scaled, or used twice, is rounded as torch rounds it"
    )
    fix = "use `{name} = torch.addmm({name}, a, b)` or `{name} = hl.dot(a, b, acc={name})`"


class IndicesFormProduct(BaseWarning):
    message = "two indices of tile `{tile}` in `{tensor}[...]` form a product of shape {shape}"
    note = "every row is combined with every column, as in Helion; torch would pair them"
    fix = (
        "pair them: {tensor}[hl.paired(i, j)]; for the product, say so: {tensor}[i[:, None], "
        "j[None, :]]"
    )


class GradientDropped(BaseWarning):
    """An argument requires a gradient, and the kernel has none."""

    message = "`{argument}` requires a gradient, but kernel `{function}` has no backward"
    note = "its results are constants for autograd; missing_gradient='error' refuses such calls"
    fix = (
        "give it one: {function}.register_backward(...); or call it under torch.no_grad(), or with "
        "`{argument}.detach()`"
    )


class NondeterministicResult(BaseWarning):
    """``torch.use_deterministic_algorithms(True, warn_only=True)``."""

    message = "{deed} `{tensor}` in any order: {harm} from run to run"
    found = "{meeting} meet in one element"
    note = "torch.use_deterministic_algorithms(True) asks for the same bits in every run"


class WrongDevice(BaseWarning):
    message = "{operation} gives a tensor on {device}, but the kernel runs on {kernel_device}"
    fix = 'pass device=, or move it: .to("{kernel_device}")'


class BlockSizeIgnoredInInterpretMode(BaseWarning):
    message = "block sizes {block_sizes} are ignored in reference mode"


class ReduceIdentityNotGiven(BaseWarning):
    message = "other=0, the default of hl.reduce, is not the identity of `{function}`"
    note = "lanes past the end of a tile are left out instead"
    fix = "pass other=<the identity of `{function}`>, e.g. float('-inf') for a maximum"


class BlockPtrIndexingUnavailable(BaseWarning):
    message = 'indexing="block_ptr" is not available here: pointers are used instead'


class ProcessGroupNameNotFound(BaseWarning):
    message = "kernel `{function}` has no hl.ProcessGroupName argument: the world group is used"


class NoAOTHeuristicWarning(BaseWarning):
    message = "kernel `{function}` has no heuristic file for {device}: the default config is used"


class ConfigReplaced(BaseWarning):
    message = "the default config does not build, the next one is used: {problem}"
    found = "failed: {failed}\nused: {used}"
    fix = "pass config=..., or let kernel.autotune(args) find one"


class ConfigEntryIgnored(BaseWarning):
    message = "{entry} has no effect on this loop: {problem}"
    fix = "leave it out"


class TuningFailed(BaseWarning):
    """A search in which no candidate works, or that could not be done."""

    message = "tuning kernel `{function}` found no config: {problem}"
    note = "{used} is used instead"


class StoredConfigUnusable(BaseWarning):
    message = "the stored config of kernel `{function}` is not used: {problem}"


ALL_WARNINGS = tuple(
    found
    for found in globals().copy().values()
    if isinstance(found, type) and issubclass(found, BaseWarning) and found is not BaseWarning
)


class WarningLog:
    """Prints warnings and remembers which; one log lives as long as the kernel it belongs to."""

    def __init__(
        self, ignore: tuple[type[BaseWarning], ...] = (), stream: TextIO | None = None
    ) -> None:
        self.ignore = ignore
        self._stream = stream
        self._printed: set[tuple[type[BaseWarning], object]] = set()

    def warn(self, warning: type[BaseWarning], *, loc: SourceLocation, **details: object) -> None:
        """Print a warning about ``loc``, unless its class is ignored or it was printed before."""
        place = loc if loc.line else tuple(map(str, details.values()))
        if issubclass(warning, self.ignore) or (warning, place) in self._printed:
            return
        self._printed.add((warning, place))
        # Looked up now and not at import, so that a redirected stderr is respected.
        stream = self._stream or sys.stderr
        text = warning(loc=loc, related=None, **details).report()
        # A kernel runs also where nobody reads: stderr may be closed, full or None.
        with suppress(AttributeError, OSError, ValueError):
            stream.write(f"{text}\n")


def find_warnings(items: Iterable[str | type]) -> tuple[type[BaseWarning], ...]:
    """The warning classes meant by ``ignore_warnings``: classes, or names of classes."""
    return tuple(map(_find_warning, items))


def _find_warning(item: str | type) -> type[BaseWarning]:
    known = {cls.__name__: cls for cls in (BaseWarning, *ALL_WARNINGS)}
    if isinstance(item, str) and item in known:
        return known[item]
    if isinstance(item, type) and issubclass(item, BaseWarning):
        return item
    near = get_close_matches(str(item), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    raise ValueError(f"ignore_warnings: {item!r} is not a warning of this package; {hint}")
