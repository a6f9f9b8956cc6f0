"""Which words each instruction may have beside its types: what is not listed is refused.

A word that were passed over would give wrong results without a word.
"""

from __future__ import annotations

import re

from tools.ptx_machine.kinds import KINDS, PAIRS
from tools.ptx_machine.text import Instruction, PtxError

_ORDER = "relaxed acquire release acq_rel weak volatile cta gpu sys cluster"
_SHARED = "shared shared::cta shared::cluster"
_COMPARED = "eq ne lt le gt ge lo ls hi hs num nan equ neu ltu leu gtu geu and or xor ftz"
_ROUNDED = "rn rz rm rp ftz sat"
_APPROXIMATE = "rn approx ftz"
_MATRICES = "sync aligned m8n8 x1 x2 x4 trans shared shared::cta"
_CHANGED = "add min max and or xor exch inc dec cas noftz v2 v4 v8"
_LISTED = {
    "setp": _COMPARED,
    "cvt": "rzi rni rmi rpi rn rz rna ftz sat satfinite relu",
    "ld": f"{_SHARED} {_ORDER} global local param const nc v2 v4 v8 ca cg cs lu cv L1 L2",
    "st": f"{_SHARED} {_ORDER} global local v2 v4 v8 wb cg cs wt L1 L2",
    "atom": f"{_SHARED} {_ORDER} global {_CHANGED}",
    "red": f"{_SHARED} {_ORDER} global {_CHANGED}",
    "cvta": "to global shared shared::cta local param const",
    "mapa": "shared::cluster",
    "cp": f"{_SHARED} async ca cg global L2 commit_group wait_group wait_all mbarrier arrive noinc "
    "bulk tensor tile 1d 2d 3d 4d 5d mbarrier::complete_tx::bytes multicast::cluster bulk_group "
    "read",
    "createpolicy": "fractional L2",
    "shfl": "sync up down bfly idx",
    "vote": "sync all any ballot",
    "redux": "sync add min max and or xor NaN",
    "elect": "sync",
    "ldmatrix": _MATRICES,
    "stmatrix": _MATRICES,
    "mma": "sync aligned m16n8k4 m16n8k8 m16n8k16 m16n8k32 row col satfinite",
    "mbarrier": f"{_SHARED} {_ORDER} init inval expect_tx arrive try_wait test_wait parity",
    "wgmma": "fence mma_async wait_group commit_group sync aligned",
    "bar": "sync arrive warp cta",
    "barrier": "sync arrive wait cta cluster aligned acquire release relaxed",
    "bra": "uni",
    "brx": "idx uni",
    "ret": "uni",
    "abs": "ftz",
    "neg": "ftz",
    **dict.fromkeys(("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), _APPROXIMATE),
    "div": f"{_APPROXIMATE} full",
    **dict.fromkeys(("add", "sub", "addc", "subc"), f"{_ROUNDED} cc"),
    **dict.fromkeys(("mul", "mad", "madc"), f"{_ROUNDED} cc lo hi wide"),
    "fma": f"{_ROUNDED} relu",
    "min": "NaN ftz relu",
    "max": "NaN ftz relu",
    "shf": "l r wrap clamp",
}
WORDS = {name: frozenset(listed.split()) for name, listed in _LISTED.items()}
FREE = ("fence", "membar", "prefetch", "nanosleep", "griddepcontrol", "setmaxnreg", "discard")
"""Nothing is done for these, whatever they say."""


def check_words(instruction: Instruction) -> None:
    """Raise for a word that is not known beside this name."""
    name, *words = instruction.parts
    if name in FREE:
        return
    known = WORDS.get(name, frozenset())
    for word in words:
        is_type = word in KINDS or word in PAIRS or word == "b128"
        is_shape = name == "wgmma" and re.fullmatch(r"m64n\d+k\d+", word)
        is_hint = word.split("::")[0] in ("L1", "L2") and word.split("::")[0] in known
        if not (is_type or is_shape or is_hint or word in known):
            raise PtxError(f".{word} of {name} is not known")
