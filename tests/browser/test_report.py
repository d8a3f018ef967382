"""The report as a file in a real browser: offline, the same as the page of a server, and nothing of the data runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from watch.browser import Browser
from watch.folders import DOT
from watch.rail_results import rail_results
from watch.watching import Served

from commands.page.report.comparison import Side, comparison
from commands.page.report.file import write_report
from measure.results.results import FIGURES

pytestmark = [pytest.mark.browser, pytest.mark.beside]

HOSTILE = '</script><img src=x onerror="document.title=1">{}'
"""A pattern for names of operations, from whoever wrote the events."""
ON_DEMAND = 2
MOMENT = f"#run=0&point={ON_DEMAND}&from=0&to=2&t=0.9"


@pytest.fixture(scope="module")
def folder(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = rail_results(tmp_path_factory.mktemp("results") / "run", names=HOSTILE, command=HOSTILE.format("run"))
    (made / FIGURES).mkdir()
    (made / FIGURES / "step-time.png").write_bytes(DOT)
    return made


@pytest.fixture(scope="module")
def report(folder: Path) -> str:
    return write_report([folder]).as_uri()


def test_it_opens_from_a_file_asks_for_nothing_and_closes_its_record(browser: Browser, report: str) -> None:
    browser.open(report)
    browser.until("document.querySelectorAll('#tl-bars path').length > 10")
    assert browser.asked() == [report]
    assert browser.js("Railyard.debug.failures") == []
    assert [entry for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.js("document.getElementById('record').open") is False
    assert "NOT FAITHFUL" in browser.text("#stamps")
    assert browser.js("document.querySelector('#figures img').naturalWidth") == 1
    assert browser.text("#figures figcaption") == "Step time"
    assert "opus-slope" in browser.text("#claims")


def test_it_shows_what_the_page_of_a_server_shows(browser: Browser, report: str, page: Served) -> None:
    drawn, edges = list[Any](), list[list[float]]()
    for address in (f"{page.url}{MOMENT}", f"{report}{MOMENT}"):
        browser.open(address)
        browser.until("document.querySelectorAll('path.circuit').length && Railyard.debug.boxes('rank1').length")
        lanes = browser.js("Railyard.debug.lanes")
        boxes = [(lane, box) for lane in lanes for box in browser.js("Railyard.debug.boxes(given[0])", lane)]
        shown = [(lane, box) for lane, box in boxes if box["start"] < 2.0]
        edges.append([edge for _, box in shown for edge in (box["start"], box["end"])])
        kinds = [(lane, box["kind"]) for lane, box in shown]
        drawn.append((lanes, kinds, browser.circuits(), browser.text("#points table")))
    assert drawn[0] == drawn[1] and len(edges[0]) > 100
    assert edges[0] == pytest.approx(edges[1], abs=1e-3)


def test_names_of_a_hostile_run_are_text(browser: Browser, report: str) -> None:
    browser.open(f"{report}{MOMENT}")
    browser.js("document.getElementById('record').open = true")
    assert "onerror" in browser.text("#record")
    assert browser.js("document.querySelectorAll('img[src=x], img:not([data-file]):not(#figures img)').length") == 0
    assert browser.js("document.title") not in ("1", "")


def test_a_script_that_somebody_adds_does_not_run(browser: Browser, report: str, folder: Path, tmp_path: Path) -> None:
    page = (folder / "report.html").read_text()
    added = "<script>document.title = 'added'</script><img src='x' onerror=\"document.title = 'added'\">"
    changed = tmp_path / "changed.html"
    changed.write_text(page.replace("</body>", f"{added}</body>"))
    browser.open(changed.as_uri())
    assert browser.js("document.title") != "added"
    said = [entry["message"] for entry in browser.driver.get_log("browser")]
    assert sum("Content Security Policy" in message for message in said) >= 2


def test_without_scripts_the_record_is_there_and_what_they_would_fill_is_not(browser: Browser, report: str) -> None:
    run = browser.driver.execute_cdp_cmd
    run("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(report)
        tree = run("Accessibility.getFullAXTree", {})["nodes"]
        said = [str(node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")]
    finally:
        run("Emulation.setScriptExecutionDisabled", {"value": False})
    everything = "\n".join(said)
    for wanted in ("on-demand", "Verdict", "NOT FAITHFUL", "Facts about the run", "python", "opus-slope"):
        assert wanted in everything, wanted
    assert "Time line" not in said and "Copy link" not in said


def test_two_runs_are_compared(browser: Browser, folder: Path, tmp_path: Path) -> None:
    longer = rail_results(tmp_path / "longer", longer=1.1)
    compared = comparison(Side.read(folder), Side.read(longer))
    path = write_report([folder, longer], tmp_path / "two.html", compared=compared)
    browser.open(path.as_uri())
    tabs = "[...document.querySelectorAll('#tabs button')]"
    assert browser.js(f"{tabs}.length") == 3
    browser.js(f"{tabs}.pop().click()")
    cells = browser.js("[...document.querySelectorAll('#comparison td')].map(cell => cell.innerText)")
    assert cells[0] == "electrical 0 ms" and cells.count("+10.00") == 5
    drawn = browser.js("[...document.querySelectorAll('.forest g')].map(e => e.getAttribute('class'))")
    bold = browser.js("[...document.querySelectorAll('.compared tbody tr')].map(e => e.className.split(' ')[0])")
    assert [name.replace("around", "") for name in drawn] == bold
    browser.js(f"{tabs}[1].click()")
    browser.until("Railyard.debug.window.run === 1 && document.querySelectorAll('#tl-bars path').length > 10")
    assert browser.js("Railyard.debug.failures") == []


def test_a_phone_sees_no_more_than_its_width(browser: Browser, report: str) -> None:
    browser.size(390, 844)
    browser.open(report)
    browser.js("document.getElementById('record').open = true")
    assert browser.js("document.documentElement.scrollWidth") <= 390
