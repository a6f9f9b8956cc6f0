"""The generator the tests compare with is Triton's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tests.frontend import philox_reference

SOURCE = SimpleNamespace(
    source="""
import triton
import triton.language as tl

@triton.jit
def _fill(offsets, out, words, four, seed):
    i = tl.arange(0, 64)
    at = tl.load(offsets + i)
    tl.store(out + i, tl.rand(seed, at))
    tl.store(words + i, tl.randint(seed, at).to(tl.int32, bitcast=True))
    a, b, c, d = tl.rand4x(seed, at)
    tl.store(four + i, a)
    tl.store(four + i + 64, b)
    tl.store(four + i + 128, c)
    tl.store(four + i + 192, d)

def launch(offsets, out, words, four, seed):
    _fill[(1,)](offsets, out, words, four, seed)
"""
)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**40 + 12345, -3])
@pytest.mark.parametrize("step", [1, 3, 2**31 + 7, 2**40 + 11])
def test_words_and_uniform_numbers_are_those_of_triton(interpreter, seed: int, step: int) -> None:
    offsets = torch.arange(64) * step
    if step < 2**20:
        offsets = offsets.to(torch.int32)
    out, four = torch.zeros(64), torch.zeros(4, 64)
    given = (offsets, out, torch.zeros(64, dtype=torch.int32), four, seed)
    _, found, words, found_four, _ = interpreter.interpret(SOURCE, *given)
    expected = philox_reference.words_at(offsets.numpy(), seed)
    assert words.numpy().view("uint32").tolist() == expected[0].tolist()
    uniform = [philox_reference.uniform(word) for word in expected]
    assert torch.equal(found, uniform[0])
    assert torch.equal(found_four, torch.stack(uniform))
