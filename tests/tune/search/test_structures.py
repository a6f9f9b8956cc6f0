"""Searches over kernels that can be run in several structures."""

from __future__ import annotations

import pytest

from tests.schedule import programs
from tests.specs import form_spec
from tests.tune.search.landscapes import Landscape, run, space_of
from tilesmith.backends.triton.heuristics.row_launches import TWO_LAUNCHES
from tilesmith.backends.triton.heuristics.shared_rows import PRODUCT_FORMS
from tilesmith.targets import parse_target
from tilesmith.tune.search.candidate_pool import CandidatePool, jump, neighbours, structure_of
from tilesmith.tune.search.methods import METHODS, make_method

SPEC = form_spec(programs.matmul_row_norm(131072, 2048, 512), parse_target("cuda:90"))
MODEL = Landscape(lambda config: SPEC.predict(config).total_ms, noise=0.0, failures=0.0)
SPLIT = tuple(PRODUCT_FORMS)
OTHERS = {*SPLIT, TWO_LAUNCHES}


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"FiniteSearch"}))
def test_every_method_searches_all_structures(method):
    search = make_method(method, {})(space_of(SPEC), 0)
    outcomes = run(search, MODEL, 80)
    assert len(outcomes) >= 40
    assert {structure_of(o.config) for o in outcomes} == {"", *OTHERS}
    assert all(SPEC.normalize(o.config) == o.config for o in outcomes)
    best = min(outcomes, key=lambda outcome: outcome.time_ms)
    assert structure_of(best.config) in OTHERS


@pytest.mark.parametrize("structure", SPLIT)
def test_a_step_stays_in_its_structure(structure):
    pool = CandidatePool(space_of(SPEC), 0)
    config = next(c for c in SPEC.seed_configs() if structure_of(c) == structure)
    near = neighbours(pool, config)
    assert len(near) > 10
    assert {structure_of(other) for other in near} == {structure}
    # Also along what only this structure has: tiles of columns and of rows.
    assert {tuple(other.block_sizes[2:]) for other in near} > {tuple(config.block_sizes[2:])}
    landed = jump(pool, config)
    assert landed is not None
    assert structure_of(landed) == structure
