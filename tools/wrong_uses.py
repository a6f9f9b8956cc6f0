"""``python -m tools.wrong_uses``: writes into docs/wrong_uses what each wrong use says.

Nothing is judged here: read the difference, and mend what is unclear.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.wrong_uses.pages import FOLDER, uses_of, with_texts
from tests.wrong_uses.produce import produce


def main(arguments: Sequence[str] | None = None) -> None:
    """Write all pages, or those whose names are given."""
    parser = argparse.ArgumentParser(prog="python -m tools.wrong_uses", description=__doc__)
    parser.add_argument("pages", nargs="*", help="names of pages; all by default")
    names = parser.parse_args(arguments).pages
    for page in sorted(FOLDER.glob("*.md")):
        if names and page.stem not in names:
            continue
        texts = {use.name: produce(use).text for use in uses_of(page)}
        page.write_text(with_texts(page, texts), encoding="utf-8")


if __name__ == "__main__":
    main()
