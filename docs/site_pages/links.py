"""Links into the repository become links of the site, or plain names where the site has no such page."""

import re
from collections.abc import Iterable
from posixpath import dirname, join, normpath, relpath

from benchback.registry import ALGORITHMS, BACKENDS
from site_pages import ROOT

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```[ \t]*$)", re.MULTILINE | re.DOTALL)
REPORT = "results/report.html"
ORIGINS = {
    "answer.md": "README.md",
    "extend.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    **{f"algorithms/{name}.md": f"src/benchback/algorithms/{name}/README.md" for name in ALGORITHMS},
}
"""Page of the site -> the file of the repository whose text it shows."""
PAGES = {origin: page for page, origin in ORIGINS.items()} | {
    "README.md": "index.md",
    "docs/results/index.html": REPORT,
    **{f"src/benchback/algorithms/{a}/{b}.py": f"algorithms/{a}.md" for a in ALGORITHMS for b in BACKENDS},
}
"""File of the repository -> the page of the site that shows it."""


def rewritten(markdown: str, page: str, known: Iterable[str]) -> str:
    """The text of a page with its links resolved as in the file it comes from; code stays as it is."""
    known = set(known)
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _rewritten(part, page, known) for part in parts)


def _rewritten(text: str, page: str, known: set[str]) -> str:
    return LINK.sub(lambda match: _link(match, page, known), text)


def _link(match: re.Match[str], page: str, known: set[str]) -> str:
    mark, text, address = match.groups()
    target, hash, anchor = address.partition("#")
    if not target or re.match(r"\w+:", target):
        return match[0]
    path = normpath(join(dirname(ORIGINS.get(page, join("docs", page))), target))
    inside = PAGES.get(path) or path.removeprefix("docs/")
    if inside in known and (path in PAGES or path.startswith("docs/")):
        return f"{mark}[{text}]({relpath(inside, dirname(page) or '.')}{hash}{anchor})"
    if normpath(join(dirname(page), target)) in known:  # a generated page's link to another one
        return match[0]
    # What is in the repository and not in the site is named; what is nowhere stays, so that a strict build says so.
    return text if (ROOT / path).exists() else match[0]
