"""All generated pages by name."""

from site_pages import ROOT, reference, side_by_side, walkthroughs


def generated_pages() -> dict[str, str]:
    """File of the site -> its Markdown."""
    return {
        "answer.md": answer(),
        "extend.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "changes.md": (ROOT / "CHANGELOG.md").read_text(),
        **side_by_side.pages(),
        **walkthroughs.pages(),
        **reference.pages(),
    }


REPORT = """
## The campaign, to explore

The report of a whole campaign, as `benchback report` writes it: choose environments, model sizes and metrics; every
number names the runs it came from. It is also [on a page of its own](docs/results/index.html); read
[how it was measured](docs/results/README.md) and [how to read it](docs/reading-the-report.md).

<iframe class="report" src="results/report.html" title="Report of a campaign" loading="lazy"></iframe>
"""


def answer() -> str:
    """What the README says before its first heading, and the report."""
    _, _, text = (ROOT / "README.md").read_text().partition("\n")
    return f"# The answer\n{text.partition(chr(10) + '## ')[0]}\n{REPORT}"
