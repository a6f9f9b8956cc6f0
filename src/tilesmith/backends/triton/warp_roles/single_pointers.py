"""One pointer for all lanes of a tile, in Gluon.

A tensor that is expanded along all axes, or an element by number, has one address. Gluon repeats
tiles only, which have a layout; a pointer gets one with the zeros that are added to it.
"""

from __future__ import annotations

from typing_extensions import override

from tilesmith.backends.triton.emission.spelling import Expr, Spelling, call
from tilesmith.ir.types import Shape


class GluonSpelling(Spelling):
    """As for Triton, but for what Gluon does not repeat."""

    @override
    def cover(self, address: Expr, shape: Shape) -> Expr:
        if address.shape or not shape:
            return super().cover(address, shape)
        zeros = call("tl.zeros", self.shape(shape), "tl.int32")
        return address.infix("+", zeros).with_shape(shape)
