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


def unfold(browser: Any) -> None:
    """Open every section, and show all figures of a family at once."""
    browser.execute_script(
        "for (const x of document.querySelectorAll('details.section')) x.open = true;"
        "for (const x of document.querySelectorAll('figure')) x.hidden = false;"
        "benchback.drawAll()"
    )
    ready(browser)


def click(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)
    ready(browser)


def choose_only(browser: Any, name: str, value: str) -> None:
    """Uncheck all other values of a filter."""
    browser.execute_script(
        "for (const x of document.querySelectorAll(`input[name='${arguments[0]}']`))"
        "  if (x.checked !== (x.value === arguments[1])) x.click()",
        name,
        value,
    )
    ready(browser)


def matrix(browser: Any, name: str) -> dict[str, dict[str, str]]:
    """What a table of ratios shows: row -> column -> the number, with the technical names of variants."""
    return browser.execute_script(
        "const table = document.querySelector(`#matrix-${arguments[0]} table`);"
        "const name = cell => cell.title || cell.firstChild.textContent;"
        "const columns = [...table.tHead.rows[0].cells].slice(1).map(name);"
        "return Object.fromEntries([...table.tBodies[0].rows].map(row => [name(row.cells[0]), Object.fromEntries("
        "[...row.cells].slice(1).map((cell, at) => [columns[at], cell.querySelector('b')?.textContent ?? '']))]))",
        name,
    )


def drawings(browser: Any) -> dict[str, str]:
    """What every chart shows: its marks, or that it is hidden."""
    return browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.chart')].map("
        "box => [box.id.slice(6),"
        " box.closest('.nothing') ? 'hidden' : box.querySelector('svg') ? box.innerHTML : 'empty']))"
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


def test_every_chart_is_drawn_and_what_is_not_there_is_named(browser: Any, address: str) -> None:
    load(browser, address)
    unfold(browser)
    shown = drawings(browser)
    assert len(shown) > 20
    assert not {"empty", "hidden"} & set(shown.values())
    absent = browser.execute_script("return document.getElementById('absent').textContent")
    for title in ("Device memory", "Compile modes: total", "The same cells in another store"):
        assert title in absent
        assert title not in browser.execute_script("return document.querySelector('main').innerText.split('Not on')[0]")


def test_no_block_is_empty_when_a_choice_leaves_nothing_of_it(browser: Any, address: str) -> None:
    load(browser, f"{address}?timing=async")
    unfold(browser)
    named = browser.execute_script("return document.getElementById('unchosen').textContent")
    assert "Rollout and update: seconds" in named
    assert not browser.execute_script("return document.getElementById('phases_seconds').checkVisibility()")


def test_it_opens_folded_at_a_third_of_its_height(browser: Any, address: str) -> None:
    height = "return document.documentElement.scrollHeight"
    load(browser, address)
    folded = browser.execute_script(height)
    assert browser.execute_script("return document.querySelectorAll('details.section[open]').length") == 0
    assert browser.execute_script("return [...benchback.views.keys()]") == []
    browser.execute_script("document.getElementById('unfold').click(); benchback.drawAll()")
    ready(browser)
    assert 3 * folded < browser.execute_script(height)


def test_a_link_opens_its_section_and_the_bar_stays(browser: Any, address: str) -> None:
    load(browser, address)
    browser.find_element("css selector", "nav a[href='#s5']").click()
    WebDriverWait(browser, 20).until(lambda d: d.execute_script("return benchback.views.has('curves_env_steps')"))
    assert browser.execute_script("return document.getElementById('s5').open")
    browser.execute_script("window.scrollTo(0, 600)")
    assert browser.execute_script("return document.getElementById('bar').getBoundingClientRect().top") == 0


def test_the_heat_table_shows_the_claims_and_obeys_the_filters(browser: Any, address: str) -> None:
    claims = (
        "return benchback.selected({data: 'claims', where: {figure: 'steady', twin: false}, one: ['timing'],"
        " matrix: 'model'}).map(row => [row.variant, row.model, row.env, row.ratio])"
    )
    load(browser, address)
    before = matrix(browser, "heat_steady")
    assert set(before) == {"linen/jit/phase", "nnx/split/phase", "pytorch/compile/phase"}
    assert before["linen/jit/phase"] == {"large": "1", "small": "1"}
    # PyTorch takes 3 times as long with the small model, and less than that with the large one.
    assert float(before["pytorch/compile/phase"]["small"]) == pytest.approx(3, rel=0.03)
    assert 1.1 < float(before["pytorch/compile/phase"]["large"]) < 1.6
    choose_only(browser, "env", "CartPole-v1")
    after = matrix(browser, "heat_steady")
    rows = browser.execute_script(claims)
    assert {env for _, _, env, _ in rows} == {"CartPole-v1"}
    for variant, model, _, ratio in rows:
        assert float(after[variant][model]) == pytest.approx(ratio, abs=0.006)
    assert after != before


def test_pairs_are_one_matrix_of_times_as_long(browser: Any, address: str) -> None:
    load(browser, f"{address}?env=CartPole-v1&model=small")
    unfold(browser)
    found = matrix(browser, "pairs_steady")
    assert len(found) == 3
    assert float(found["pytorch/compile/phase"]["linen/jit/phase"]) == pytest.approx(3, rel=0.03)
    for a, line in found.items():
        assert line[a] == ""
        for b in found.keys() - {a}:
            assert float(line[b]) * float(found[b][a]) == pytest.approx(1, abs=0.02)


def test_cells_that_differ_are_shown_as_a_range(browser: Any, address: str) -> None:
    load(browser, address)
    unfold(browser)
    low, high = matrix(browser, "pairs_steady")["pytorch/compile/phase"]["linen/jit/phase"].split(" to ")
    assert float(low) < 1.6 < 2.9 < float(high)


def test_one_family_can_be_seen_alone(browser: Any, address: str) -> None:
    load(browser, address)
    text = "return document.getElementById('answer').textContent + document.getElementById('sentences').textContent"
    assert "PyTorch" in browser.execute_script(text)
    click(browser, "[data-family=JAX]")
    assert set(matrix(browser, "heat_steady")) == {"linen/jit/phase", "nnx/split/phase"}
    assert "PyTorch" not in browser.execute_script(text)
    assert "backend=linen&backend=nnx" in browser.current_url
    click(browser, "[data-family=JAX]")
    assert "?" not in browser.current_url


def test_the_text_obeys_the_filters(browser: Any, address: str) -> None:
    load(browser, address)
    said = "return document.getElementById('sentences').textContent"
    over_all = browser.execute_script(said)
    assert over_all.startswith("ppo, async")
    choose_only(browser, "model", "small")
    assert browser.execute_script("return document.getElementById('answer').textContent").startswith("small: ")
    small = browser.execute_script(said)
    assert small.startswith("small: ppo, async")
    assert small != over_all
    # The small model, which is listed last, was timed in async only.
    choose_only(browser, "timing", "sync")
    assert "Nothing of what is chosen" in browser.execute_script("return document.getElementById('answer').textContent")


def test_tabs_of_one_name_are_chosen_together(browser: Any, address: str) -> None:
    load(browser, address)
    unfold(browser)
    click(browser, "[data-shows=forest_total]")
    hidden = "return Object.fromEntries([...document.querySelectorAll('figure')].map(x => [x.id, x.hidden]))"
    found = browser.execute_script(hidden)
    for family in ("heat", "forest", "pairs"):
        assert not found[f"{family}_total"]
        assert found[f"{family}_steady"]
    assert not found["curves_env_steps"]


def test_names_are_plain_and_tell_the_variant(browser: Any, address: str) -> None:
    load(browser, address)
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#matrix-heat_steady tbody th')].map(x => [x.textContent, x.title])"
    )
    assert ["Flax NNX, split", "nnx/split/phase"] in heads


def test_filters_change_every_chart_and_the_address_restores_them(browser: Any, address: str) -> None:
    load(browser, address)
    unfold(browser)
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
    unfold(browser)
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
    unfold(browser)
    browser.execute_script("for (const box of document.querySelectorAll('.twin')) box.open = true")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda d: d.execute_script("return document.querySelectorAll('.twin table').length") > 25)
    given, names = rows(browser), browser.execute_script("return benchback.names")
    assert len(given) > 20
    for name, listed in given.items():
        cells = browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(r => [...r.cells].map(c => c.textContent))",
            f"#{name} tbody tr",
        )
        visible = browser.execute_script("return !document.getElementById(arguments[0]).closest('.nothing')", name)
        if visible:
            assert len(cells) == min(len(listed), 400)
            for row, line in zip(listed[:400], cells, strict=True):
                assert all(agrees(names.get(value, value), cell) for value, cell in zip(row, line, strict=True)), (
                    name,
                    row,
                    line,
                )


def agrees(value: Any, cell: str) -> bool:
    """Whether a cell shows the value: numbers to four digits, nothing for nothing, texts as they are."""
    if value is None:
        return cell == ""
    if isinstance(value, bool):
        return cell == str(value).lower()
    return float(cell) == pytest.approx(value, rel=1e-3) if isinstance(value, int | float) else cell == value


def test_hostile_names_stay_text(browser: Any, address: str) -> None:
    load(browser, address)
    unfold(browser)
    for place in ("#provenance", ".machine"):
        text = browser.execute_script("return document.querySelector(arguments[0]).innerText", place)
        assert "<script>window.hacked=1</script>" in text
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
        unfold(browser)
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
        unfold(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding_of_an_accessibility_check(browser: Any, address: str, theme: str) -> None:
    axe = pytest.importorskip(
        "axe_selenium_python", reason="no accessibility rules here; pip install axe-selenium-python"
    )
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    load(browser, address)
    unfold(browser)
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
