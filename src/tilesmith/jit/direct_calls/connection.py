"""Where a kernel keeps what recognises its arguments, so that native code finds it there."""

from __future__ import annotations

from tilesmith.jit.definition import KernelDefinition
from tilesmith.runtime.calls.reader import ArgumentSignatures


class AnsweredKernel:
    """A kernel whose calls native code answers: those that it recognises, all others ``__call__``.

    The function ``__call__`` stays what the class has: torch.compile reads it.
    """

    __slots__ = ("_signatures",)
    definition: KernelDefinition
    _signatures: ArgumentSignatures | None

    def _connect(self, kind: type, signatures: ArgumentSignatures | None) -> None:
        """From now on these recognise arguments; ``kind`` is the class that has ``__call__``."""
        reader = None if signatures is None else self.definition.find_reader()
        if reader is not None:
            reader.answer_calls(kind, "_signatures")
        self._signatures = signatures
