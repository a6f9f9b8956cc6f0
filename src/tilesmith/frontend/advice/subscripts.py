"""What stands before a subscript."""

from __future__ import annotations

import ast


def subscripted(text: str) -> str:
    """What a subscript is of; "" where the text is none.

    Example:
        >>> subscripted("scales[index[0]]"), subscripted("1 +")
        ('scales', '')
    """
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError:
        return ""
    return ast.unparse(found.value) if isinstance(found, ast.Subscript) else ""
