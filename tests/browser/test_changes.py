"""What the page does when data changes while it is open, with data that a test gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from watch.browser import Browser
from watch.folders import running_files, synthetic, write_manifest
from watch.watching import Served, watching

from experiments.watch.report.file import write_report

pytestmark = pytest.mark.browser

ON_DEMAND = 2
TICK = "(Railyard.app.source.stream.dispatchEvent(new MessageEvent('tick', {data: given[0]})), 1)"
"""A tick as if from the server."""


def test_every_verdict_of_a_point_is_shown_and_its_checks_stay_unfolded(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point=0")
    browser.until("Railyard.debug.tick.updates > 0")  # the first tick reads the overview again
    checks = [{"name": "timers", "says": "late by 1 ms", "ok": True, "judged": True}]
    more = {
        "title": "failover, second part",
        "faithful": False,
        "verdict": "NOT FAITHFUL",
        "points": [0],
        "checks": checks,
    }
    first = browser.text("#verdict h3")
    browser.js(
        """(found => (found.verdicts.push(given[0]), Railyard.app.source.overview = async () => found,
        Railyard.app.overview = Railyard.app.overviews[0] = found, Railyard.emit('overview'), 1))
        (JSON.parse(JSON.stringify(Railyard.app.overview)))""",
        more,
    )
    assert browser.text("#verdict > .verdict").splitlines()[:2] == [first, "NOT FAITHFUL"]
    titles = browser.js("[...document.querySelectorAll('#verdict h4')].map(e => e.innerText)")
    assert len(titles) == 2 and titles[1] == "failover, second part"
    assert "faithful" in browser.text("#verdict").replace("NOT FAITHFUL", "")
    last = "[...document.querySelectorAll('#verdict details')].pop()"
    assert not browser.js(f"{last}.open")
    browser.js(f"({last}.querySelector('summary').click(), 1)")
    browser.until(f"{last}.open")
    browser.js("(Railyard.emit('overview'), 1)")
    assert browser.js(f"{last}.open")


def test_an_overview_that_says_the_same_leaves_the_drawing_and_the_stamps(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&t=0.9")
    browser.until("document.querySelectorAll('path.circuit').length > 0")
    again = "Railyard.app.overview = JSON.parse(JSON.stringify(Railyard.app.overview))"
    kept = browser.js(
        f"""((svg, stamp) => ({again}, Railyard.emit('overview'),
        [document.querySelector('#fabric-svg') === svg, document.querySelector('#stamps .stamp') === stamp]))
        (document.querySelector('#fabric-svg'), document.querySelector('#stamps .stamp'))"""
    )
    assert kept == [True, True]
    change = "Object.values(Railyard.app.overview.plans).forEach(plan => plan.height += 1)"
    browser.js(f"({again}, {change}, Railyard.emit('overview'), 1)")
    assert browser.js("document.querySelectorAll('path.circuit').length") > 0


def test_marks_and_bars_that_are_read_again_are_told_once(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    mark = {"t": 1.0, "end": 5.0, "kind": "fault", "rail": None, "ranks": [1], "ports": [], "says": "rank 1 fails"}
    read = {"start": 3.0, "end": 6.0, "marks": [mark]}
    merge = "Railyard.derive.marks(Railyard.derive.marks([], given[0]), given[0])"
    assert browser.js(merge, read) == [mark]
    later = {"start": 3.0, "end": 6.0, "marks": []}
    known = [{**mark, "t": 7.0, "end": None}, {**mark, "end": 2.0}, {**mark, "t": 4.0, "end": None}]
    assert browser.js("Railyard.derive.marks(given[0], given[1])", known, later) == [known[1], known[0]]


def test_ports_of_joined_bars_have_no_certain_circuit(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    lanes = [{"id": f"rail0:{n}", "group": "rail0", "port": n, "rank": None} for n in (1, 2)]
    bar = {"s": [0.0], "e": [1.0], "k": [0], "b": [0], "st": [-1]}
    bars = {"rail0:1": {**bar, "l": [1], "p": [2]}, "rail0:2": {**bar, "l": [0], "p": [0]}}
    given = {"thinned": True, "kinds": ["dp"], "labels": ["several", "dp0"], "lanes": lanes, "bars": bars, "marks": []}
    found = browser.js("Railyard.derive.state(given[0], 0.5)", given)
    assert found["unsure"] == 1 and [each["b"] for each in found["circuits"]["rail0"]] == [2]


def test_a_point_that_is_read_over_several_calls_is_asked_for_until_it_is_whole(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    partly = """((source, ask) => source.timeline = async (...given) =>
      Object.assign(await ask.apply(source, given), {loaded: window.share}))
      (Railyard.app.source, Railyard.app.source.timeline)"""
    browser.js(f"(window.share = 0.375, {partly}, Railyard.model.setPoint(0), 1)")
    browser.until("document.querySelector('#happened').innerText.includes('37 %')")
    assert "37 %" in browser.text("#tl-empty") and "Nothing failed" not in browser.text("#happened")
    browser.js("(window.share = 1, 1)")
    browser.js(
        TICK, json.dumps({"run": 0, "revision": 9, "point": 4, "now": 1.0, "live": False, "parts": ["timeline"]})
    )
    browser.until("document.querySelector('#happened').innerText.includes('Nothing failed')")
    assert browser.js("document.querySelector('#tl-empty').hidden")


def test_a_comparison_is_made_again_when_a_run_changes(browser: Browser, finished: Path) -> None:
    with watching(finished, finished) as served:
        browser.open(f"{served.url}#view=comparison")
        browser.until("document.querySelectorAll('#comparison td').length > 10")
        assert browser.js("[...document.querySelectorAll('#stamps strong')].map(e => e.innerText)") == [
            "A: NOT FAITHFUL", "B: NOT FAITHFUL",
        ]  # fmt: skip
        browser.asked()
        browser.js(TICK, json.dumps({"run": 1, "revision": 9, "point": 4, "now": 1.0, "parts": ["overview"]}))
        browser.until("Railyard.app.comparison !== null")
        assert [url for url in browser.asked() if "comparison.json" in url] != []
        browser.click("#tabs button:nth-child(2)")
        browser.until(
            "performance.getEntriesByType('resource').filter(e => e.name.includes('overview.json?run=1')).length > 1"
        )
        row: dict[str, Any] = {"title": "t", "cells": [], "points": [], "interval": [0.1, 0.2], "percent": 0.02}
        rows = [{**row, "percent_interval": [-0.1, 0.14]}, {**row, "percent_interval": [0.01, 0.03]}]
        table = {"title": "T", "main": True, "columns": [], "rows": rows}
        browser.click("#tabs button:last-child")
        browser.js("(Railyard.app.comparison = {tables: [given[0]]}, Railyard.emit('comparison'), 1)", table)
        drawn = browser.js("[...document.querySelectorAll('.forest g')].map(e => e.getAttribute('class'))")
        assert drawn == ["around", "clear"]
        assert "+1.0 %" in browser.js("document.querySelector('.forest').textContent")


def test_the_report_of_a_run_that_was_killed_shows_its_point(browser: Browser, tmp_path: Path) -> None:
    point, events = synthetic()
    write_manifest(tmp_path, [point], ended=False)
    for path, written in running_files(tmp_path, 0, events).items():
        path.write_text("".join(event.to_line() + "\n" for event in written))
    browser.open(write_report([tmp_path]).as_uri())
    browser.until("document.querySelectorAll('#tl-bars path').length > 10")
    assert browser.js("Railyard.debug.window.live") is False and browser.js("document.querySelector('#follow').hidden")
    browser.js("(delete Railyard.app.source.runs[0].timelines[0], Railyard.model.setPoint(0), 1)")
    browser.until("document.querySelector('#tl-empty').innerText.includes('is not in this file')")
    assert "Nothing failed" not in browser.text("#happened")
