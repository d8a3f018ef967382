"""The page of a finished run in a real browser: what it draws is what the events say."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from synthetic_job import COMPUTE, GATHER, SEND, WINDOW
from watch.browser import Browser
from watch.rail_results import rail_results
from watch.watching import Served, watching

from measure.results.results import Results

pytestmark = [pytest.mark.browser, pytest.mark.beside]

DARK = 0.2
STEP = 2 * DARK + GATHER + WINDOW + SEND + COMPUTE
ON_DEMAND = 2
"""The point with a reconfiguration delay of ``DARK`` seconds."""


SHOWN = """
(e => e === document.body || getComputedStyle(e).outlineStyle !== 'none'
  || parseFloat(getComputedStyle(e.querySelector('rect')).strokeWidth) >= 2)(document.activeElement)
"""
"""Whether the element that has the keyboard is outlined."""
COLOURS = """
[...document.querySelectorAll('h1, h2, h3, p, td, th, button, .stamp, .quiet, li')]
  .filter(e => e.checkVisibility() && e.innerText && !e.disabled).map(e => {
    let under = e;
    while (under && getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;
    const ground = under ? getComputedStyle(under).backgroundColor : 'rgb(255, 255, 255)';
    return [getComputedStyle(e).color, ground, e.innerText.slice(0, 30)];
  })
"""
"""Colour, ground and beginning of each text that can be seen."""


def seconds(browser: Browser, lane: str, window: tuple[float, float]) -> dict[str, list[tuple[float, float]]]:
    """The boxes of a lane as drawn, with their edges back in seconds."""
    left, scale = browser.pixels(window)
    return {
        kind: [((a - left) / scale + window[0], (b - left) / scale + window[0]) for a, b in sorted(boxes)]
        for kind, boxes in browser.boxes(lane).items()
    }


def joined(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1] + 1e-9:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def test_the_page_asks_for_nothing_outside_of_its_origin(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    browser.until("document.querySelectorAll('#tl-bars path').length > 10")
    asked = browser.asked()
    assert {f"{page.url}{name}" for name in ("", "main.js", "page.css", "overview.json?")} <= set(asked)
    assert [url for url in asked if not url.startswith(page.url)] == []
    assert browser.js("Railyard.debug.failures") == []
    assert (
        browser.js("fetch('http://192.0.2.1/').then(() => 'sent', error => String(error))")
        == "TypeError: Failed to fetch"
    )


def test_the_boxes_of_the_time_line_are_where_the_events_say(browser: Browser, page: Served, finished: Path) -> None:
    window = (0.0, 3 * STEP)
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&from={window[0]}&to={window[1]}&t=0.1")
    browser.until("document.querySelectorAll('#tl-bars g[data-lane=rank0] path').length > 2")
    shown = browser.js("Railyard.debug.window")
    assert (shown["point"], shown["from"], shown["to"]) == (ON_DEMAND, window[0], pytest.approx(window[1]))
    events = Results.open(finished).events()
    (point,) = (e for e in events if e.kind == "point" and e["point"] == ON_DEMAND)
    expected = defaultdict(list)
    for e in events:
        if point.end is None or e.end is None or not (point.t <= e.t < point.end) or e.get("rank") != 0:
            continue
        kind = {"compute": "compute", "communicate": e.get("dimension"), "wait": "dark"}.get(e.kind)
        if kind is not None:
            expected[kind].append((e.t - point.t, e.end - point.t))
    drawn = seconds(browser, "rank0", window)
    pixel = (window[1] - window[0]) / shown["width"]
    assert drawn.keys() == expected.keys() == {"compute", "dp", "pp", "dark"}
    for kind, boxes in expected.items():
        assert joined(drawn[kind]) == [pytest.approx(box, abs=1.1 * pixel) for box in joined(boxes)], kind


def test_zooming_keeps_the_boxes_at_their_times(browser: Browser, page: Served) -> None:
    window = (STEP, STEP + DARK + 0.5 * GATHER)
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&from={window[0]}&to={window[1]}&t={STEP + 0.1}")
    browser.until("document.querySelectorAll('#tl-bars g[data-lane=rank0] path').length > 1")
    drawn = seconds(browser, "rank0", window)
    pixel = (window[1] - window[0]) / browser.js("Railyard.debug.window.width")
    assert drawn["dark"] == [pytest.approx((window[0], window[0] + DARK), abs=1.1 * pixel)]
    assert drawn["dp"] == [pytest.approx((window[0] + DARK, window[1]), abs=1.1 * pixel)]
    port = seconds(browser, "rail0:2", window)
    assert port["dark"] == [pytest.approx((window[0], window[0] + DARK), abs=1.1 * pixel)]


def test_the_drawing_shows_the_circuits_and_dark_ports_of_the_moment(browser: Browser, page: Served) -> None:
    def at(t: float) -> set[tuple[str, int, int]]:
        browser.open(f"{page.url}#run=0&point={ON_DEMAND}&t={t}")
        browser.until("document.querySelector('#fabric-says').innerText !== ''")
        return {circuit for circuit in browser.circuits() if circuit[0] == "rail0"}

    gathers, sends = {("rail0", 2, 3), ("rail0", 6, 7)}, {("rail0", 2, 5), ("rail0", 4, 7)}
    assert at(DARK + 0.5 * GATHER) == gathers
    assert at(STEP - 0.5 * COMPUTE) == sends
    assert at(DARK + GATHER + WINDOW + 0.5 * DARK) == set()
    assert "16 ports dark" in browser.text("#fabric-says")
    fills = browser.js("[...document.querySelectorAll('#fabric-svg circle.port')].map(c => getComputedStyle(c).fill)")
    assert sum("hatch" in fill for fill in fills) == 16, "dark ports are hatched"


def test_a_run_that_is_not_faithful_is_stamped(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    assert "NOT FAITHFUL" in browser.text("#stamps .stamp")
    top, height, size, visible = browser.js(
        """(s => [s.getBoundingClientRect().top, s.getBoundingClientRect().height,
        parseFloat(getComputedStyle(s.querySelector('strong')).fontSize), s.checkVisibility()])
        (document.querySelector('#stamps .stamp'))"""
    )
    assert visible and 0 <= top < 200 and height >= 20 and size >= 14
    browser.js(f"Railyard.model.setPoint({ON_DEMAND})")
    browser.until("document.querySelector('#verdict').innerText.includes('NOT FAITHFUL')")
    browser.js("Railyard.model.setPoint(0)")
    browser.until("!document.querySelector('#verdict').innerText.includes('NOT FAITHFUL')")
    assert "faithful" in browser.text("#verdict")


def test_the_table_has_the_points_with_their_predictions(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    rows = browser.js(
        "[...document.querySelectorAll('#points tr[data-points]')].map(r => [...r.cells].map(c => c.innerText))"
    )
    assert [row[:2] for row in rows] == [
        ["electrical", "0"], ["on-demand", "0"], ["on-demand", "200"], ["provisioned", "0"], ["provisioned", "200"],
    ]  # fmt: skip
    assert float(rows[2][2]) == pytest.approx(STEP, abs=1e-3)
    browser.click("#points tr[data-points='[4]']")
    browser.until("Railyard.debug.window.point === 4")


def test_a_link_brings_back_the_moment(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    browser.js("Railyard.model.setPoint(3)")
    browser.until("Railyard.debug.window.point === 3 && document.querySelectorAll('#tl-bars path').length > 2")
    browser.keys("+", "+", "]")
    link = browser.until("/point=3&from=0[.]/.test(location.hash) && location.href")
    before = browser.js("Railyard.debug.window")
    browser.open(link)
    after = browser.js("Railyard.debug.window")
    for key in ("run", "point"):
        assert after[key] == before[key]
    for key in ("from", "to", "t"):
        assert after[key] == pytest.approx(before[key], abs=1e-3)


def test_wrong_links_show_something_that_is_there(browser: Browser, page: Served) -> None:
    for wrong in ("#run=9&point=99", "#point=-1&from=5&to=1&t=x", "#from=1e308&to=-1e308", "#%00<script>"):
        browser.open(page.url + wrong)
        shown = browser.js("Railyard.debug.window")
        assert 0 <= shown["from"] < shown["to"] and shown["point"] in range(5), wrong


def test_keys_alone_move_through_everything(browser: Browser, page: Served) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(f"{page.url}#run=0&point={ON_DEMAND}")
    browser.until("document.querySelectorAll('#tl-bars path').length > 2")
    whole = browser.js("Railyard.debug.window")
    browser.keys("+")
    zoomed = browser.until(
        "Railyard.debug.window.to - Railyard.debug.window.from < given[0] && Railyard.debug.window", whole["to"] * 0.9
    )
    browser.keys(Keys.ARROW_RIGHT)
    browser.until("Railyard.debug.window.from > given[0]", zoomed["from"])
    browser.keys("0")
    browser.until("Railyard.debug.window.from === 0 && Railyard.debug.window.to === given[0]", whole["to"])
    browser.keys("n")
    browser.until("Railyard.debug.window.point === 3")
    browser.keys("?")
    browser.until("document.querySelector('#helper').open")
    browser.keys(Keys.ESCAPE)
    browser.until("!document.querySelector('#helper').open")
    reached = set()
    for _ in range(30):
        browser.keys(Keys.TAB)
        reached.add(browser.js("document.activeElement.id || document.activeElement.tagName"))
        assert browser.js(SHOWN), "what has the keyboard can be seen"
    assert {"theme", "copy", "help", "TR", "fabric-svg", "tl"} <= reached


def test_a_hostile_name_is_text(chromium: Browser, browser: Browser, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="document.title=1">{}</script><script>document.title=2</script>'
    folder = rail_results(tmp_path / "out", [("on-demand", 0.2)], names=hostile)
    with (folder / "points" / "000" / "events.jsonl").open("a") as out:
        out.write("this is no event\n")
    with watching(folder) as served:
        browser.open(f"{served.url}#run=0&point=0&t={DARK + GATHER + WINDOW / 2}")
        browser.until("document.querySelectorAll('#tl-bars g[data-lane=rank0] path').length > 2")
        browser.js("document.querySelector('#tl').focus()")
        browser.keys(",")
        browser.until("document.body.innerText.includes('<img src=x onerror=')")
        assert browser.js("[document.images.length, document.scripts.length > 5, document.title]") == [
            0,
            True,
            "out · Railyard",
        ]
        assert "1 line of the events could not be read" in browser.text("#unreadable")


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, page: Served, dark: bool) -> None:
    browser.size(390, 844, dark=dark)
    browser.open(page.url)
    browser.until("document.querySelectorAll('#tl-bars path').length > 2")
    wide, sizes = browser.js(
        """[document.documentElement.scrollWidth, [...document.querySelectorAll('p, td, th, button, h2, h3, span')]
        .filter(e => e.checkVisibility() && e.innerText).map(e => parseFloat(getComputedStyle(e).fontSize))]"""
    )
    assert wide <= 390
    assert min(sizes) >= 11


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_in_dark_colours(browser: Browser, page: Served, dark: bool) -> None:
    browser.size(1280, 720, dark=dark)
    browser.open(page.url)
    found = browser.js(COLOURS)
    assert len(found) > 20
    for text, ground, words in found:
        light, deep = sorted([luminance(text), luminance(ground)], reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 4.5, f"{words}: {text} on {ground}"
    assert (luminance(browser.js("getComputedStyle(document.body).backgroundColor")) < 0.2) == dark


@pytest.mark.parametrize("dark", [False, True])
def test_marks_stand_out_and_none_hides_another(browser: Browser, page: Served, dark: bool) -> None:
    browser.size(1280, 720, dark=dark)
    browser.open(page.url)
    browser.until("document.querySelectorAll('#tl-bars path').length > 10")
    kinds = [
        "fault",
        "failed",
        "replaced",
        "stranded",
        "port",
        "launch",
        "refused",
        "left",
        "recovered",
        "lost",
        "wrong",
    ]
    marks = [{"t": 1 + 0.2 * (i // 3), "end": None, "kind": kind, "says": kind} for i, kind in enumerate(kinds)]
    browser.js("(Railyard.app.marks = given[0], Railyard.emit('marks'), 1)", marks)
    drawn = browser.js(
        """[...document.querySelectorAll('#tl-top [data-mark], #happened .chip')].map(g => {
          const p = g.querySelector('.mark'), style = getComputedStyle(p), box = p.getBoundingClientRect();
          const colour = p.classList.contains('line') ? style.stroke : style.fill;
          return [g.dataset.mark ?? null, colour, box.x + box.width / 2, box.y + box.height / 2];
        })"""
    )
    ground = luminance(browser.js("getComputedStyle(document.querySelector('#time-panel')).backgroundColor"))
    places = [(x, y) for mark, _, x, y in drawn if mark is not None]
    assert len(drawn) == 2 * len(places) == 2 * len(kinds)
    for mark, colour, _, _ in drawn:
        light, deep = sorted([luminance(colour), ground], reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 3, f"{mark}: {colour}"
    for i, (x, y) in enumerate(places):
        assert all(abs(x - a) + abs(y - b) >= 8 for a, b in places[:i]), "no two marks are at one place"
