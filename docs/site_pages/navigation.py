"""The navigation: known pages in a chosen order, whatever of them exists; others follow in a section of their own."""

from collections.abc import Iterable
from typing import Any

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "Start": "index.md",
        "FAQ": "faq.md",
        "Glossary": "glossary.md",
        "Changes": "changes.md",
    },
    "The answer": {
        "The answer": "answer.md",
        "A campaign in full": "results/README.md",
        "What was measured": "performance.md",
        "Every backend learns": "learning.md",
    },
    "Algorithms": {
        "Six frameworks, one algorithm": "algorithms/index.md",
    },
    "Walkthroughs": {
        "Walkthroughs": "walkthroughs/index.md",
    },
    "Guides": {
        "Environments": "environments.md",
        "Your own environment": "your-environment.md",
        "Networks": "networks.md",
        "Networks with a memory": "recurrent.md",
        "Plug-ins": "plug-ins.md",
        "Eject": "eject.md",
        "As a library": "library.md",
        "Studies": "studies.md",
        "Tuning, videos, profiles": "tuning-and-evidence.md",
        "Many agents in one program": "population.md",
        "Discovering an objective": "discovery.md",
        "Which backend for my project": "advise.md",
    },
    "Measuring": {
        "How it measures": "measuring.md",
        "Relays": "relay.md",
        "Finding slow-downs": "regressions.md",
        "Many machines": "cluster.md",
        "How to read a report": "reading-the-report.md",
    },
    "Reference": {
        "Command line": "reference/command-line.md",
        "Python": "reference/python.md",
    },
    "Extend": {
        "Contributing": "extend.md",
    },
}
"""Section -> title of a page -> its file; titles of pages that are not named here are their own."""
FOLDERS = {"algorithms/": "Algorithms", "walkthroughs/": "Walkthroughs", "reference/": "Reference"}
"""Folder -> the section that gets all of its pages."""
OTHER = "Guides"
"""The section of pages that no one has placed."""


def nav(pages: Iterable[str]) -> list[Any]:
    """The navigation of these pages, as mkdocs.yml would hold it: every page once, unplaced ones in the given order."""
    left = list(pages)
    sections: dict[str, list[Any]] = {}
    for section, known in SECTIONS.items():
        sections[section] = [{title: name} for title, name in known.items() if name in left]
    placed = {name for known in SECTIONS.values() for name in known.values()}
    for name in left:
        if name not in placed:
            sections[section_of(name)].append(name)
    return [{section: entries} for section, entries in sections.items() if entries]


def section_of(name: str) -> str:
    """The section of a page that is not placed by name."""
    return next((section for folder, section in FOLDERS.items() if name.startswith(folder)), OTHER)
