"""Random numbers: known answers, independence of tiles, seeds of every kind, statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.frontend import philox_reference
from tests.host_backends import BACKENDS, on_backend
from tilesmith import exc
from tilesmith.frontend.functions.philox import philox

ONES = 0xFFFFFFFF
PLACES = (0, 1, 2, 3)

backends = pytest.mark.parametrize("backend", BACKENDS)
# Counter, key and result of the authors' published test vectors.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def traced(values: Iterable[torch.Tensor]) -> Any:
    """Tiles as device code sees them: tensors to the type checker, proxies while tracing."""
    return tuple(values)


@helion.kernel
def words_of(counter: torch.Tensor, key: torch.Tensor, out: torch.Tensor) -> None:
    for t in hl.tile(counter.size(1)):
        words: Any = philox(traced(counter[i, t] for i in PLACES), traced(key[i] for i in (0, 1)))
        for i in PLACES:
            out[i, t] = words[i]


@backends
@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected, backend: str) -> None:
    assert philox(counter, key) == expected
    assert tuple(map(int, philox_reference.philox(counter, key))) == expected
    counters = torch.tensor([[word] * 5 for word in counter], dtype=torch.uint32)
    out = torch.zeros(4, 5, dtype=torch.uint32)
    on_backend(words_of, backend)(counters, torch.tensor(key, dtype=torch.uint32), out)
    assert out.tolist() == [[word] * 5 for word in expected]


@helion.kernel
def noise(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.shape):
        out[t, u] = hl.rand([t, u], seed)
    return out


def noise_with(kernel, shape: tuple[int, int], *blocks: int, **options) -> torch.Tensor:
    x = torch.empty(shape)
    bound = kernel.bind((x, 7))
    return bound.compile_config(helion.Config(block_sizes=list(blocks), **options))(x, 7)


@backends
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 8), (5, 9), (17, 31)])
def test_block_sizes_do_not_matter(shape: tuple[int, int], backend: str) -> None:
    kernel = on_backend(noise, backend)
    expected = philox_reference.rand(shape, 7)
    assert torch.equal(kernel(torch.empty(shape), 7), expected)
    for blocks in ((1, 1), (4, 8), (8, 2), (32, 32)):
        assert torch.equal(noise_with(kernel, shape, *blocks), expected)
    flat = noise_with(kernel, shape, 4, 8, flatten_loops=[True], loop_orders=[[1, 0]])
    assert torch.equal(flat, expected)


@backends
def test_sizes_known_at_run_time_only_do_not_matter(backend: str) -> None:
    dynamic = on_backend(noise, backend, static_shapes=False)
    for shape in ((3, 7), (5, 9)):
        assert torch.equal(dynamic(torch.empty(shape), 7), philox_reference.rand(shape, 7))


@backends
@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 + 1, 2**63 - 1, -(2**63)])
def test_all_64_bits_of_a_seed_count(seed: int, backend: str) -> None:
    found = on_backend(noise, backend)(torch.empty(2, 5), seed)
    assert torch.equal(found, philox_reference.rand((2, 5), seed))


@backends
def test_statistics(backend: str) -> None:
    x = torch.empty(1000, 1000)
    kernel = on_backend(noise, backend)
    first, second = kernel(x, 1).double(), kernel(x, 2).double()
    assert torch.equal(first, kernel(x, 1).double())
    for values in (first, second):
        assert 0 <= values.min() < 1e-5
        assert 1 - 1e-5 < values.max() < 1
        # Five standard deviations of the mean and the variance of 10^6 uniform numbers.
        assert abs(values.mean() - 1 / 2) < 5 * (1 / 12e6) ** 0.5
        assert abs(values.var() - 1 / 12) < 5 * (1 / 180e6) ** 0.5
        counts = torch.histc(values, 100, 0, 1)
        assert ((counts - 10_000) ** 2 / 10_000).sum() < 99 + 5 * (2 * 99) ** 0.5
    for other in (second, first.roll(1, 0), first.roll(1, 1)):
        correlation = ((first - 0.5) * (other - 0.5)).mean() * 12
        assert abs(correlation) < 5e-3


def test_the_largest_word_stays_below_one() -> None:
    words = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    assert philox_reference.uniform(words).tolist() == [0.0, 2.0**-31 * (1 - 2.0**-24)] + [
        1 - 2.0**-24
    ] * 2 + [0.0]


@helion.kernel
def far_away(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.tile(2**33, 2**33 + x.size(1)):
            out[t, u.index - 2**33] = hl.rand([t, u], seed)
    return out


@backends
def test_positions_beyond_32_bits(backend: str) -> None:
    found = on_backend(far_away, backend)(torch.empty(3, 5), 9)
    rows, columns = np.arange(3)[:, None], np.arange(2**33, 2**33 + 5)
    word = philox_reference.word_at(rows * (2**33 + 5) + columns, 9)
    assert torch.equal(found, philox_reference.uniform(word))


@helion.kernel
def by_tiles_of_one(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.shape, block_size=[1, None]):
        out[t, u] = hl.rand([t, u], seed)
    return out


@helion.kernel
def by_other_sizes(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.rand(x[t, :].shape, seed=seed, device=x.device)
    return out


@helion.kernel
def by_offsets(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.shape):
        at = t.index[:, None] * x.size(1) + u.index[None, :]
        out[t, u] = hl.rand([t, u], seed, offsets=at)
    return out


@backends
@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("kernel", [by_tiles_of_one, by_other_sizes, by_offsets])
@pytest.mark.parametrize("shape", [(1, 1), (4, 9), (5, 13)])
def test_shapes_may_be_given_in_many_ways(kernel, shape, is_static: bool, backend: str) -> None:
    rebuilt = on_backend(kernel, backend, static_shapes=is_static)
    assert torch.equal(rebuilt(torch.empty(shape), 3), philox_reference.rand(shape, 3))


@helion.kernel
def by_seed(x: torch.Tensor, seed) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand([t], seed)
    return out


@helion.kernel
def by_loaded_seed(x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand([t], seeds[1])
    return out


SEEDS = [
    5,
    hl.constexpr(5),  # pyright: ignore[reportCallIssue]
    torch.tensor(5),
    torch.tensor([5]),
    torch.tensor([[5]], dtype=torch.int32),
]


@backends
@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_seeds_of_every_kind(seed, backend: str) -> None:
    expected = philox_reference.rand((11,), 5)
    assert torch.equal(on_backend(by_seed, backend)(torch.empty(11), seed), expected)


@backends
def test_a_loaded_seed(backend: str) -> None:
    found = on_backend(by_loaded_seed, backend)(torch.empty(11), torch.tensor([4, 5, 6]))
    assert torch.equal(found, philox_reference.rand((11,), 5))


@pytest.mark.parametrize("seed", [0.5, torch.tensor([1, 2]), torch.tensor([1.0]), "five", None])
def test_what_is_no_seed_is_refused(seed) -> None:
    with pytest.raises(TypeError, match="the seed is") as caught:
        by_seed(torch.empty(11), seed)
    assert isinstance(caught.value, exc.InvalidArgumentKind)
    assert "test_random.py" in str(caught.value)


@helion.kernel
def whole(x: torch.Tensor, low, high, seed: int) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.int32)
    for t, u in hl.tile(x.shape):
        out[t, u] = hl.randint([t, u], low, high, seed)
    return out


@backends
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 2), (-3, 9), (5, 1000), (-(2**31), 2**31 - 1)]
)
def test_integers_of_a_range(low: int, high: int, backend: str) -> None:
    kernel = on_backend(whole, backend)
    expected = philox_reference.randint((50, 70), low, high, 11)
    assert torch.equal(kernel(torch.empty(50, 70), low, high, 11), expected)
    fixed = [hl.constexpr(bound) for bound in (low, high)]  # pyright: ignore[reportCallIssue]
    assert torch.equal(kernel(torch.empty(50, 70), *fixed, 11), expected)
    if high - low < 100:
        assert expected.unique().tolist() == list(range(low, high))


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low=3 is not below high=3"):
        whole(torch.empty(2, 2), hl.constexpr(3), hl.constexpr(3), 0)  # pyright: ignore[reportCallIssue]


@helion.kernel
def without_a_loop(x: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(16)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand([block], 3).sum()
    return out


@helion.kernel
def of_no_list(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand("t", 3)  # pyright: ignore[reportArgumentType]
    return out


@helion.kernel
def by_fractions(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand4x(3, x[t])[0]
    return out


@helion.kernel
def of_torch(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.randperm(8)
    return out


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (without_a_loop, "no loop steps over the axis block"),
        (of_no_list, "the shape is a str"),
        (by_fractions, "offsets is a device value"),
        (of_torch, "use hl.rand"),
    ],
)
def test_mistakes_are_told_at_their_line(kernel, text: str) -> None:
    with pytest.raises(exc.BaseError, match=text) as caught:
        kernel(torch.empty(11))
    assert "test_random.py" in str(caught.value)
