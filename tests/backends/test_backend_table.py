"""Backends are found by name, and the reference backend hands over the IR itself."""

from __future__ import annotations

import pytest

from tests.backends.triton.kernels import matmul, parse, schedule
from tests.ir_parser import parse_function
from tilesmith.backends.table import BACKENDS
from tilesmith.ir.printer import print_function


def test_backends_are_listed():
    assert [backend.name for backend in BACKENDS.backends] == ["triton", "cpu", "reference"]


def test_unknown_backend_is_named():
    with pytest.raises(ValueError, match=r"unknown backend 'metal'.*triton, cpu, reference"):
        BACKENDS.named("metal")


def test_reference_artifact_is_the_ir_text():
    function = parse(matmul(64, 64, 64))
    symbols = {"tile_m": 16, "tile_n": 16, "tile_k": 16}
    artifact = BACKENDS.named("reference").emit(function, schedule(symbols=symbols))
    assert print_function(parse_function(artifact.source)) == print_function(function)
    assert artifact.options == {"symbols": symbols}
    assert [parameter.source for parameter in artifact.parameters] == ["x", "y", "out"]
