"""``python -m tools.generate``: writes all pages and pictures of docs/ that are made by tools.

One process for all of them: each alone would import torch again.
"""

from __future__ import annotations

import torch

from tools import (
    draw_house,
    draw_indexing,
    generate_ir_docs,
    generate_language_docs,
    generate_loop_ir_docs,
    wrong_uses,
)
from tools.site import drawings


def main() -> None:
    """Write them all."""
    torch.set_num_threads(1)  # what is computed is small
    draw_house.main()  # the first: it follows a first call
    draw_indexing.main()
    generate_ir_docs.main()
    generate_loop_ir_docs.main()
    generate_language_docs.main()
    drawings.main()
    wrong_uses.main([])


if __name__ == "__main__":
    main()
