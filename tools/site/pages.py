"""Pages of docs/ as pages of the site: links that lead out of docs lead to what the site has.

Links to examples lead to the gallery; those to sources and tests become plain text, since a page
that is opened from a disk has no repository around it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"`[^`\n]+`|(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
"""Code in a line, which is left alone, or a link: its words and where it leads."""
TOP_PAGES = {
    "README.md": "index.md",
    "docs/index.md": "index.md",
    "docs/gallery.md": "gallery/index.md",
    "CONTRIBUTING.md": "how/contributing.md",
    "SECURITY.md": "how/security.md",
    "CHANGELOG.md": "how/changelog.md",
}
"""Pages at the root of the repository that are pages of the site, too."""
FOLDERS = {
    "speed": ("measured", "benchmarks"),
    "how": (
        *("architecture", "ir", "loop_ir", "warp_roles", "kernel_life", "rooms", "tried"),
        "reliability_runs",
    ),
    "compatibility": ("language", "torch"),
    "reference": (
        "indexing",
        "ops",
        "errors",
        "language_reference",
        "settings",
        "config_keys",
        "commands",
        "error_examples",
    ),
    "guides": (
        *("tuning", "facts", "accuracy", "export", "shapes", "visible", "logs"),
        *("explorer", "fleet", "team", "upgrading", "reliability"),
    ),
}
"""Where pages of docs/ stand in the site."""
GENERATED = frozenset(
    f"docs/{name}.md"
    for name in (
        "language_reference",
        "settings",
        "config_keys",
        "commands",
        "error_examples",
        "kernel_life",
    )
)
"""Pages that only the site has; pages of docs/ link to them as if they stood there."""


DECISIONS = """\
Why things are as they are, in the order in which that was decided. Each page says what the question
was, what was chosen, what it costs, and often when to look at it again."""


def site_path(path: str) -> str | None:
    """Where the site has a file of the repository, given from the root; None: nowhere."""
    if path in TOP_PAGES:
        return TOP_PAGES[path]
    if path.startswith("examples/") and path.endswith(".py"):
        return f"gallery/{path.removeprefix('examples/').removesuffix('.py')}.md"
    return _path_of_docs(path.removeprefix("docs/")) if path.startswith("docs/") else None


def _path_of_docs(name: str) -> str:
    if name.startswith("decisions"):
        return f"how/{name}" if name.endswith(".md") else "how/decisions/index.md"
    if name.endswith(".svg"):
        return f"pictures/{posixpath.basename(name)}"
    stem = name.removesuffix(".md")
    folder = next((folder for folder, names in FOLDERS.items() if stem in names), None)
    return f"{folder}/{name}" if folder else name


def rewritten(text: str, source: str) -> str:
    """The text of a page with links as the site has them; ``source``: its path from the root."""
    place = site_path(source) or source
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    # Every second part is a block of code.
    return "".join(
        part if number % 2 else _relinked(part, source, place) for number, part in enumerate(parts)
    )


def _relinked(text: str, source: str, place: str) -> str:
    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = target.partition("#")
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = site_path(whole.rstrip("/"))
        if found is None or not _is_there(whole):
            return words
        relative = posixpath.relpath(found, posixpath.dirname(place) or ".")
        return f"[{words}]({relative}{f'#{anchor}' if anchor else ''})"

    text = LINK.sub(link, text)
    return re.sub(r"!\[([^\]]*)\]\(([^)]+\.svg)\)", lambda m: _picture(m, source, place), text)


def _picture(match: re.Match[str], source: str, place: str) -> str:
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
    relative = posixpath.relpath(site_path(whole) or whole, posixpath.dirname(place) or ".")
    return f"![{match[1]}]({relative})"


def _is_there(path: str) -> bool:
    return path in GENERATED or (ROOT / path).exists()


def staged_pages() -> dict[str, str]:
    """All pages that are written by hand or by other tools, by their place in the site."""
    found: dict[str, str] = {}
    for path in sorted(DOCS.rglob("*.md")):
        source = path.relative_to(ROOT).as_posix()
        place = site_path(source)
        if place is not None and place != "gallery/index.md":
            found[place] = rewritten(path.read_text(encoding="utf-8"), source)
    for name, place in TOP_PAGES.items():
        if name != "README.md" and not name.startswith("docs/"):
            found[place] = rewritten((ROOT / name).read_text(encoding="utf-8"), name)
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    lines = [f"- [{_title(path)}]({path.name})" for path in decisions]
    for path in decisions:  # the menu has none of them
        found[f"how/decisions/{path.name}"] += "\n[All decisions](index.md)\n"
    found["how/decisions/index.md"] = "\n".join(["# Decisions", "", DECISIONS, "", *lines, ""])
    return found


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
