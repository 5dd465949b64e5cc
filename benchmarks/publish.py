"""Write docs/results anew from the store of a campaign, and print what the texts around it have to say.

    benchback run hour --note "what else the machine did"
    python benchmarks/publish.py runs/hour.sqlite

Replaces the page, the tables, the export and the figures of docs/results, the two that are pictures of the page
included, for which it needs chromium and its driver. The sentences it prints are for README.md, docs/results/README.md
and, where figures of the campaign are mentioned, the other pages of docs/.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchback.analysis.claims import Claim, all_claims
from benchback.analysis.export import export
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.summary import variant_rows
from benchback.analysis.wording import comparison_text, variant_name
from benchback.measure.results import open_trainings
from benchback.report.prose import verdict
from benchback.report.render import render

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TABLES = ("*.md", "claims.json")
PICTURES = {"answer": ("#matrix-heat_steady table", 1.5), "page_verdict": ("", 1.0)}
"""Figure -> the part of the page that it shows, empty for its first screen, and how much it is enlarged."""
WINDOW = "1100,1480"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    flags = parser.parse_args()
    figures = flags.out / "figures"
    with open_trainings(flags.store) as store, tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        render(store, report)
        shutil.copy(report / "index.html", flags.out / "index.html")
        shutil.rmtree(flags.out / "tables", ignore_errors=True)
        (flags.out / "tables").mkdir()
        for pattern in TABLES:
            for file in (report / "tables").glob(pattern):
                shutil.copy(file, flags.out / "tables")
        for figure in figures.glob("*.png"):
            if figure.stem not in PICTURES:
                shutil.copy(report / "figures" / figure.name, figure)
        export(store, flags.out / "export", "parquet")
        source = read(store)
        print("\n".join(facts(source, all_claims(source))))
    take_pictures(flags.out / "index.html", figures)


def facts(source: Source, claims: Sequence[Claim]) -> Iterator[str]:
    """What the texts say of a campaign, a line each."""
    done = [run.attempt for run in source.runs if run.attempt is not None and run.attempt.outcome == "ok"]
    began, last = min(x.started_at for x in done), max(done, key=lambda x: x.started_at)
    took_s = (datetime.fromisoformat(last.started_at) - datetime.fromisoformat(began)).total_seconds()
    minutes, commit = (took_s + last.duration_s) / 60, source.strata[-1].get("git_commit")
    yield f"- {len(done)} runs, {minutes:.0f} minutes; commit {commit}"
    said = verdict(source, claims)
    yield f"- {said.recommendation}"
    for setting in said.settings:
        yield from (
            f"- {text}" for text in (*setting.comparisons, *setting.depends, *setting.missing, setting.evidence)
        )
    rows = [(group.cells[0], row) for group in source.groups for row in variant_rows(group)]
    for backend in dict.fromkeys(row["backend"] for _, row in rows):
        starts = [row["cold_start_s"] for _, row in rows if row["backend"] == backend and row["cold_start_s"]]
        if starts:
            yield f"- {backend} starts within {min(starts):.1f} to {max(starts):.1f} s ({len(starts)} cells)"
    for claim in claims:
        if claim.subject.twin and claim.metric == "steady" and (claim.env, claim.model) == ("*", "*"):
            yield f"- {variant_name(claim.subject)}: {comparison_text(claim.overall, claim.along)}"


def take_pictures(page: Path, figures: Path) -> None:
    """Pictures of the page: its answer and its first screen."""
    for name, (selector, scale) in PICTURES.items():
        with browser(scale) as driver:
            driver.get(page.resolve().as_uri())
            wait_until_drawn(driver)
            found = driver.find_element("css selector", selector) if selector else driver
            (found.screenshot if selector else driver.save_screenshot)(str(figures / f"{name}.png"))


@contextmanager
def browser(scale: float) -> Iterator[Any]:
    """A browser without a screen, closed when the context ends."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    look = (f"--window-size={WINDOW}", f"--force-device-scale-factor={scale}")
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *look):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def wait_until_drawn(driver: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    state = "return document.documentElement.dataset.state"
    WebDriverWait(driver, 120).until(lambda x: x.execute_script(state) == "ready")


if __name__ == "__main__":
    main()
