"""The site: every page is reachable, generated pages show all six backends, links stay inside, nothing is fetched."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from site_pages import links, navigation, reference, side_by_side

from benchback.cli import VERBS
from benchback.registry import ALGORITHMS, BACKENDS

ROOT = Path(__file__).parents[1]
WRITTEN = sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def pages_in(nav: list[Any]) -> list[str]:
    """The pages of a navigation, in order."""
    found = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += pages_in(value) if isinstance(value, list) else [value]
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [*WRITTEN, "results/README.md", "algorithms/ppo.md", "a-guide-that-nobody-has-placed.md"]
    assert sorted(pages_in(navigation.nav(pages))) == sorted(pages)


def test_the_navigation_leaves_out_what_is_not_there() -> None:
    assert navigation.nav(["index.md"]) == [{"Start": [{"Start": "index.md"}]}]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_is_shown_in_every_framework(algorithm: str) -> None:
    """Every part in six columns, and together the parts are the files."""
    page = side_by_side.page(algorithm)
    for backend in BACKENDS:
        assert page.count(f'class="column {backend}"') == len(side_by_side.PARTS)
        source = (side_by_side.FOLDER / algorithm / f"{backend}.py").read_text()
        parts = side_by_side.parts_of(source)
        assert all(parts.values())
        shown = "".join("".join(parts.values()).split())
        assert "".join(source.split()).endswith(shown)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_part_has_the_function_it_is_named_after(algorithm: str) -> None:
    for (_, part), piece in side_by_side.pieces_of(algorithm).items():
        wanted = "class State" if part == "state" else f"def {part}("
        assert any(wanted in line for line in piece.lines)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_marked_lines_are_those_that_plain_jax_has_not(algorithm: str) -> None:
    pieces = side_by_side.pieces_of(algorithm)
    for (backend, part), piece in pieces.items():
        reference_lines = [line.strip() for line in pieces[side_by_side.REFERENCE, part].lines]
        unmarked = [
            line.strip() for at, line in enumerate(piece.lines, 1) if at not in piece.different and line.strip()
        ]
        following = iter(reference_lines)
        assert all(line in following for line in unmarked), (backend, part)
        assert backend != side_by_side.REFERENCE or not piece.different


def test_lines_that_differ_are_found() -> None:
    assert side_by_side.different(["a", "b", "c"], ["a", "x", "", "c", "y"]) == (2, 5)


@pytest.mark.parametrize(
    ("page", "markdown", "expected"),
    [
        ("relay.md", "[m](measuring.md#verdicts)", "[m](measuring.md#verdicts)"),
        ("answer.md", "[r](docs/relay.md)", "[r](relay.md)"),
        ("answer.md", "[r](docs/results/index.html)", "[r](results/report.html)"),
        ("index.md", "[c](../CONTRIBUTING.md)", "[c](extend.md)"),
        ("index.md", "[p](../src/benchback/algorithms/ppo/nnx.py)", "[p](algorithms/ppo.md)"),
        ("extend.md", "[`agent.py`](src/benchback/agent.py)", "`agent.py`"),
        ("results/README.md", "[`tables/`](tables)", "`tables/`"),
        ("results/README.md", "![x](figures/total.png)", "![x](figures/total.png)"),
        ("algorithms/index.md", "[PPO](ppo.md)", "[PPO](ppo.md)"),
        ("relay.md", "[elsewhere](https://example.org/a.md)", "[elsewhere](https://example.org/a.md)"),
        ("relay.md", "[gone](gone.md)", "[gone](gone.md)"),
        (
            "extend.md",
            "```\n[`agent.py`](src/benchback/agent.py)\n```",
            "```\n[`agent.py`](src/benchback/agent.py)\n```",
        ),
    ],
)
def test_links_lead_to_pages_of_the_site_or_become_names(page: str, markdown: str, expected: str) -> None:
    known = {
        *WRITTEN,
        "answer.md",
        "extend.md",
        "algorithms/ppo.md",
        "results/report.html",
        "results/figures/total.png",
    }
    assert links.rewritten(markdown, page, known) == expected


MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
MARKDOWN += (ROOT / "src").rglob("*.md")
GENERATED = {"answer.md", "walkthroughs/index.md", "reference/command-line.md", "reference/python.md"}
"""Pages of the site alone, to which pages of docs/ link; a strict build knows whether they are there."""
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors_of(path: Path) -> set[str]:
    """Anchors of a file's headings as GitHub makes them: lower case, without punctuation, a hyphen for each space."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", path.read_text()), re.MULTILINE)
    shown = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(path: Path) -> None:
    for address in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text())):
        target, _, anchor = address.partition("#")
        if target not in GENERATED and not re.match(r"\w+:", address):
            there = path.parent / target if target else path
            assert there.exists(), address
            assert not anchor or anchor in anchors_of(there), address


def test_the_reference_shows_what_help_prints() -> None:
    shown = reference.help_of("train", ["td3"])
    assert shown.startswith("usage: benchback train td3")
    assert "--actor-learning-rate" in shown
    assert "\x1b" not in shown


class Resources(HTMLParser):
    """Collects what a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get("src") or (values.get("href") if tag == "link" else None)
        if address:
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = sorted(site.rglob("*.html"))
    names = {path.relative_to(site).with_suffix(".md").as_posix() for path in built}
    assert {*WRITTEN, "answer.md", *(f"algorithms/{name}.md" for name in ALGORITHMS)} <= names
    commands = (site / "reference" / "command-line.html").read_text()
    assert all(f">benchback {verb}" in commands for verb in VERBS)
    for path in built:
        resources = Resources()
        resources.feed(path.read_text())
        fetched = [x for x in resources.found if re.match(r"(https?:)?//", x)]
        assert not fetched, (path, fetched)


@pytest.mark.slow
def test_the_search_works_on_pages_opened_from_disk(site: Path, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium here; pip install selenium")
    from selenium.webdriver.support.ui import WebDriverWait

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium here; apt-get install -y chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    wide = "--window-size=1300,900"  # on a narrow page the box is behind a button
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", wide, f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        browser.get((site / "index.html").as_uri())
        box = browser.find_element("css selector", "input[name=query]")
        box.click()
        box.send_keys("relay")
        titles = WebDriverWait(browser, 60).until(
            lambda page: [x.text for x in page.find_elements("css selector", ".md-search-result__item h1")]
        )
    assert "Relays" in titles
