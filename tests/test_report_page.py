"""The page as a person meets it: opened from disk, filtered, read as tables, used by keyboard and on a phone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import Shape, build

from benchback.report.render import render

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium here; pip install selenium")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium here; apt-get install -y chromium chromium-driver"
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900")
CHOICE = "?env=CartPole-v1&model=small&backend=linen&backend=nnx"
UNFILTERED = {"canary"}
"""Charts that no backend is involved in."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    shape = Shape(("Asterix-MinAtar", "CartPole-v1"), ("large", "small"), ("linen", "nnx", "pytorch"), 30, 3)
    with build(folder / "page.sqlite", shape) as store:
        page, *_ = render(store, folder / "out", images=False)
    return page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def load(browser: Any, address: str) -> None:
    browser.get("about:blank")
    browser.get(address)
    ready(browser)


def ready(browser: Any) -> None:
    state = "return document.documentElement.dataset.state"
    WebDriverWait(browser, 600).until(lambda driver: driver.execute_script(state) == "ready")


def drawings(browser: Any) -> dict[str, str]:
    """What every chart shows: its marks, or that it is hidden."""
    return browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.chart')].map("
        "box => [box.id.slice(6), box.hidden ? 'hidden' : box.querySelector('svg') ? box.innerHTML : 'empty']))"
    )


def test_no_request_leaves_and_nothing_goes_wrong(browser: Any, address: str) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    load(browser, address)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert any(url == address for url in sent)
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in sent), sent
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return window.hacked") is None


def test_every_chart_is_drawn_or_says_why_not(browser: Any, address: str) -> None:
    load(browser, address)
    shown = drawings(browser)
    assert len(shown) > 25
    assert "empty" not in shown.values()
    for name in (name for name, drawn in shown.items() if drawn == "hidden"):
        assert browser.execute_script("return document.querySelector(arguments[0]).innerText", f"#{name} .missing")
    assert {name for name, drawn in shown.items() if drawn == "hidden"} == {
        "memory_device",
        "modes_steady",
        "modes_total",
        "machines",
    }


def test_filters_change_every_chart_and_the_address_restores_them(browser: Any, address: str) -> None:
    load(browser, address)
    before = drawings(browser)
    for name, value in (
        ("env", "Asterix-MinAtar"),
        ("model", "large"),
        ("backend", "pytorch"),
        ("timing", "sync"),
    ):
        browser.execute_script(
            "document.querySelector(`input[name='${arguments[0]}'][value='${arguments[1]}']`).click()", name, value
        )
        ready(browser)
    after = drawings(browser)
    unchanged = {name for name in before if before[name] == after[name] != "hidden"}
    assert unchanged == UNFILTERED
    reached, given = browser.current_url, rows(browser)
    assert "env=CartPole-v1" in reached
    load(browser, reached)
    assert labels(browser) == {"env": "CartPole-v1", "model": "small", "backend": "linen, nnx", "timing": "async"}
    again = drawings(browser)
    assert {name for name in again if (again[name] == "hidden") != (after[name] == "hidden")} == set()
    visible = [name for name, drawn in after.items() if drawn != "hidden"]
    restored = rows(browser)
    assert {name: restored[name] for name in visible} == {name: given[name] for name in visible}
    browser.execute_script("document.getElementById('reset').click()")
    ready(browser)
    assert "?" not in browser.current_url


def labels(browser: Any) -> dict[str, str]:
    found = browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.filter')].map("
        "box => [box.dataset.filter, box.querySelector('summary span').textContent]))"
    )
    return {name: text for name, text in found.items() if text != "all"}


def rows(browser: Any) -> dict[str, list]:
    """The rows every chart was given."""
    return browser.execute_script(
        "return Object.fromEntries(benchback.figures.filter(f => benchback.views.has(f.id)).map("
        "f => [f.id, benchback.views.get(f.id).view.data(f.data).map(row => f.columns.map(([name]) => row[name]))]))"
    )


@pytest.mark.parametrize("choice", ["", CHOICE])
def test_tables_match_charts(browser: Any, address: str, choice: str) -> None:
    load(browser, address + choice)
    browser.execute_script("for (const box of document.querySelectorAll('.twin')) box.open = true")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda d: d.execute_script("return document.querySelectorAll('.twin table').length") > 25)
    given = rows(browser)
    assert len(given) > 20
    for name, listed in given.items():
        cells = browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(r => [...r.cells].map(c => c.textContent))",
            f"#{name} tbody tr",
        )
        visible = browser.execute_script("return !document.querySelector(arguments[0]).hidden", f"#chart-{name}")
        if visible:
            assert len(cells) == min(len(listed), 400)
            for row, line in zip(listed[:400], cells, strict=True):
                assert all(agrees(value, cell) for value, cell in zip(row, line, strict=True)), (name, row, line)


def agrees(value: Any, cell: str) -> bool:
    """Whether a cell shows the value: numbers to four digits, nothing for nothing, texts as they are."""
    if value is None:
        return cell == ""
    if isinstance(value, bool):
        return cell == str(value).lower()
    return float(cell) == pytest.approx(value, rel=1e-3) if isinstance(value, int | float) else cell == value


def test_hostile_names_stay_text(browser: Any, address: str) -> None:
    load(browser, address)
    note = "return document.querySelector('#provenance').innerText"
    assert "<script>window.hacked=1</script>" in browser.execute_script(note)
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.execute_script("return window.hacked") is None


def test_it_can_be_used_by_keyboard(browser: Any, address: str) -> None:
    load(browser, address)
    body = browser.find_element("css selector", "body")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the verdict"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "main"
    summary = browser.find_element("css selector", "[data-filter=env] summary")
    summary.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.querySelector('[data-filter=env]').open")
    box = browser.find_element("css selector", "[data-filter=env] input")
    box.send_keys(Keys.SPACE)
    ready(browser)
    assert labels(browser) == {"env": "CartPole-v1"}
    box.send_keys(Keys.ESCAPE)
    assert not browser.execute_script("return document.querySelector('[data-filter=env]').open")


def test_light_and_dark(browser: Any, address: str) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    chart = "return document.querySelector('#chart-total svg').style.backgroundColor"
    seen = {}
    for theme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        load(browser, address)
        seen[theme] = browser.execute_script(paper), browser.execute_script(chart)
    assert seen["light"] == ("rgb(255, 255, 255)",) * 2
    assert seen["dark"] == ("rgb(21, 24, 28)",) * 2
    browser.execute_script("document.getElementById('theme').click()")
    ready(browser)
    assert (browser.execute_script(paper), browser.execute_script(chart)) == seen["light"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_scrolls_down_only(browser: Any, address: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        load(browser, address)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding_of_an_accessibility_check(browser: Any, address: str, theme: str) -> None:
    axe = pytest.importorskip(
        "axe_selenium_python", reason="no accessibility rules here; pip install axe-selenium-python"
    )
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    load(browser, address)
    rules = axe.Axe(browser)
    rules.inject()
    found = rules.run()["violations"]
    serious = [f"{x['id']}: {x['nodes'][0]['html'][:120]}" for x in found if x["impact"] in ("serious", "critical")]
    assert serious == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_page_names_its_sections_in_order(browser: Any, address: str) -> None:
    load(browser, address)
    headings = browser.execute_script("return [...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert [int(heading.split(".")[0]) for heading in headings] == list(range(1, 12))
    assert Path(address).name == "index.html"
