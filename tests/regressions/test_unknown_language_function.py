"""A name the language does not have is told at the user's line, with near names."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc


@helion.kernel
def misspelt(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.zeross([tile])  # type: ignore[attr-defined]
    return out


def test_a_misspelt_function_is_located_and_corrected():
    with pytest.raises(exc.UnknownLanguageFunction) as caught:
        misspelt(torch.ones(4))
    text = str(caught.value)
    assert "hl.zeross is not there" in text
    assert "hl.zeros" in text
    assert "test_unknown_language_function.py:17" in text


def test_asking_for_a_missing_name_is_an_attribute_error():
    assert not hasattr(hl, "rand_like")
    assert not hasattr(hl, "__path__")
