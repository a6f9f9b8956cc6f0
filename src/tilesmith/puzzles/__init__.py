"""Twelve small tasks that teach tiles: ``from tilesmith.puzzles import puzzle, puzzles``.

``puzzle(1)`` shows its task; ``puzzle(1).check(kernel)`` says whether a kernel solves it, and draws
which elements its programs touch.
"""

from tilesmith.puzzles.checking import Outcome
from tilesmith.puzzles.puzzle import Puzzle
from tilesmith.puzzles.table import puzzle, puzzles

__all__ = ["Outcome", "Puzzle", "puzzle", "puzzles"]
