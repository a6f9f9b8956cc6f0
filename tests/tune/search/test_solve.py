"""The equations of the time model."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.tune.search.time_model import solve


@pytest.mark.parametrize("size", [1, 2, 17, 64])
@pytest.mark.parametrize("columns", [1, 3])
def test_a_positive_definite_system_is_solved(size, columns):
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    matrix = root @ root.T + np.eye(size)
    wanted = rng.normal(size=(size, columns))
    right = matrix @ wanted
    kept = matrix.copy(), right.copy()
    assert np.allclose(solve(matrix, right), wanted)
    assert np.array_equal(matrix, kept[0])
    assert np.array_equal(right, kept[1])
