"""Roles of emitted modules in every order: nobody waits for ever, nobody reads the wrong tile."""

from __future__ import annotations

import re

import pytest

from tests.backends.triton.warp_roles.gluon_memory import ProtocolError
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import model_args, model_text

KERNELS = ("attention", "causal_attention", "matmul")
ONE_PIECE = [(turns,) for turns in range(6)]
TWO_PIECES = [(0, 0), (0, 2), (1, 0), (1, 1), (2, 3), (3, 2), (5, 1)]
MORE_PIECES = [(4, 4), (3, 5), (5, 5), (2, 1, 2), (1, 1, 1, 1), (3, 0, 3)]


def explore(name, groups, stages, kept, turns, text=None, **options):
    text = model_text(name, groups, stages, kept) if text is None else text
    return Explorer(record(text, name, model_args(name, groups), turns), **options).explore()


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["attention", "matmul"])
def test_one_piece_in_every_order(name, groups, stages):
    for turns in ONE_PIECE:
        assert explore(name, groups, stages, 0, turns) > sum(turns) * groups


@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize(("groups", "stages"), [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("name", ["attention", "matmul"])
def test_two_pieces_in_every_order(name, groups, stages, kept):
    for turns in TWO_PIECES[1::2]:
        explore(name, groups, stages, kept, turns)


def test_kept_rings_have_both_lengths():
    assert "_wait(kept_full, piece, 1)" in model_text("attention", 2, 2, 1)
    assert "_wait(kept_full, piece, 2)" in model_text("attention", 2, 2, 2)


def test_three_groups_in_every_order():
    explore("attention", 3, 2, 0, (3,))
    explore("matmul", 3, 3, 2, (2, 1))


@pytest.mark.full
@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_more_sizes_in_every_order(name, groups, stages, kept):
    pieces = [*TWO_PIECES, *(MORE_PIECES if groups < 3 else [])] if kept else ONE_PIECE
    for turns in pieces:
        explore(name, groups, stages, kept, turns[: 2 if kept else 1])


@pytest.mark.parametrize("name", ["attention", "matmul"])
def test_stops_between_waits_change_nothing(name):
    for groups, stages, kept, turns in [(1, 1, 1, (2, 1)), (1, 2, 2, (2, 1)), (2, 1, 0, (2,))]:
        coarse = explore(name, groups, stages, kept, turns)
        assert explore(name, groups, stages, kept, turns, is_fine=True) > coarse


def without(pattern):
    """The last line that fits goes."""

    def change(text):
        (*_, found) = re.finditer(rf"^( *){pattern}.*\n", text, re.MULTILINE)
        return f"{text[: found.start()]}{found[1]}pass\n{text[found.end() :]}"

    return change


def instead(old, new):
    return lambda text: text.replace(old, new)


def earlier(pattern, *, than):
    """The first line that fits comes before the one that it follows."""

    def change(text):
        swapped = re.compile(rf"^( *{than}.*\n)( *{pattern}.*\n)", re.MULTILINE)
        return swapped.sub(r"\2\1", text)

    return change


WAIT = r"[\w, ]+ = warpgroup_mma_wait\("
MISTAKES = {
    "an early release is missing": ("attention", without(r"mbarrier\.arrive\(early_empty")),
    "a late release is missing": ("attention", without(r"mbarrier\.arrive\(late_empty")),
    "a kept release is missing": ("attention", without(r"mbarrier\.arrive\(kept_empty")),
    "a sum's release is missing": ("matmul", without(r"mbarrier\.arrive\(late_empty")),
    "an early release before its product is done": (
        "attention",
        earlier(r"mbarrier\.arrive\(early_empty", than=WAIT),
    ),
    "a late release before its product is done": (
        "attention",
        earlier(r"mbarrier\.arrive\(late_empty", than=WAIT),
    ),
    "a kept release before its result is stored": (
        "attention",
        earlier(r"mbarrier\.arrive\(kept_empty", than=r"tma\.store_wait"),
    ),
    "a sum's release before its product is done": (
        "matmul",
        instead("warpgroup_mma_wait(0", "warpgroup_mma_wait(1"),
    ),
    "the tile before is waited for": (
        "attention",
        instead("_wait(late_full, step + turn - 1,", "_wait(late_full, step + turn - 2,"),
    ),
    "the tile after is waited for": (
        "attention",
        instead("_wait(early_full, step + turn,", "_wait(early_full, step + turn + 1,"),
    ),
    "no tile is waited for": ("matmul", without(r"_wait\(late_full")),
    "no kept tile is waited for": ("attention", without(r"_wait\(kept_full")),
    "a stage fewer in a wait for room": (
        "attention",
        instead("early_empty, step + turn - STAGES,", "early_empty, step + turn - STAGES - 1,"),
    ),
    "a stage fewer in a sum's wait for room": (
        "matmul",
        instead("step + turn - STAGES, STAGES", "step + turn - STAGES - 1, STAGES"),
    ),
    "no wait for room": ("attention", without(r"_wait\(late_empty")),
    "one group's release counts for all": (
        "attention",
        instead("early_empty = _barriers(STAGES, GROUPS)", "early_empty = _barriers(STAGES, 1)"),
    ),
    "a wait for the other parity": ("attention", instead("& 1) ^ 1)", "& 1))")),
    "steps of the tile before are forgotten": ("matmul", instead("step += turns", "step += 1")),
    "a tile is read from the next slot": (
        "attention",
        instead("v_tiles.index((step + turn - 1)", "v_tiles.index((step + turn)"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake):
    name, change = MISTAKES[mistake]
    kept = 1 if "kept" in mistake else 2
    text = model_text(name, 2, 2, kept)
    wrong = change(text)
    assert wrong != text
    with pytest.raises(ProtocolError):
        explore(name, 2, 2, kept, (3, 2), wrong)
