"""What the page does when data changes while it is open, with data that a test gives it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from watch.browser import Browser
from watch.folders import running_files, synthetic, write_manifest
from watch.watching import Served, watching

from commands.page.report.file import write_report

pytestmark = [pytest.mark.browser, pytest.mark.beside]

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
    browser.js(TICK, json.dumps({"revision": 9, "point": 4, "now": 1.0, "live": False, "parts": ["timeline"]}))
    browser.until("document.querySelector('#happened').innerText.includes('Nothing failed')")
    assert browser.js("document.querySelector('#tl-empty').hidden")


def test_a_run_without_points_is_asked_for_none(browser: Browser, finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "predicted")
    shutil.rmtree(folder / "points")
    with watching(folder) as served:
        browser.open(served.url)
        browser.until("Railyard.debug.tick.updates > 0")
        assert browser.js("[Railyard.debug.window.point, Railyard.debug.failures]") == [None, []]
        assert browser.text("#banner") == "" and not browser.js("document.querySelector('#verdict').checkVisibility()")


PUT = """((change, app) => {
  const found = JSON.parse(JSON.stringify(app.overview));
  Object.assign(found, change(found));
  app.source.overview = async () => found;
  app.overviews[0] = app.overview = found;
  Railyard.emit('overview');
})(%s, Railyard.app) || 1"""
"""Change the overview as if the server had."""


def test_each_repeat_shows_its_own_verdict(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point=3")
    browser.until("Railyard.debug.tick.updates > 0")
    one = {"title": "on-demand, 200 ms", "what": "step time", "predicted_s": 1.0, "repeats": 2}
    first = {**one, "repeat": 1, "points": [2], "faithful": True, "measured_s": 1.1, "verdict": "faithful"}
    second = {**one, "repeat": 2, "points": [3], "faithful": False, "measured_s": 1.4, "verdict": "dark too long"}
    second["checks_of"] = "The checks in full are kept for repeat 1 only."
    browser.js(PUT % "found => ({verdicts: given[0]})", [first, second])
    said = browser.text("#verdict")
    assert "repeat 2 of 2" in said and "NOT FAITHFUL" in said and "kept for repeat 1 only" in said
    assert "measured step time" in said and "1.400 s" in said and "1.100 s" not in said
    assert "repeat 2 of 2" in browser.text("#time-title")
    browser.keys("p")
    browser.until("document.querySelector('#verdict').innerText.includes('repeat 1 of 2')")
    assert "1.100 s" in browser.text("#verdict") and "faithful" in browser.text("#verdict")


def test_a_run_opens_on_a_point_that_counts_and_others_say_that_they_do_not(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    browser.until("Railyard.debug.tick.updates > 0")
    browser.js(PUT % "found => ({points: found.points.map(p => ({...p, counts: p.number !== 1}))})")
    browser.js("(Railyard.model.setRun(0), 1)")
    assert browser.js("Railyard.debug.window.point") == 2
    chosen = "[...document.querySelectorAll('#points tr[aria-selected=true]')].map(row => row.dataset.points)"
    assert browser.js(chosen) == ["[2]"] and "does not count" not in browser.text("#verdict")
    browser.keys("p")
    browser.until("Railyard.debug.window.point === 1")
    assert "does not count" in browser.text("#verdict") and "does not count" in browser.text("#time-title")


def test_a_lost_point_shows_what_is_kept_of_it_and_nothing_of_another(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point=3")
    browser.until("Railyard.debug.tick.updates > 0 && document.querySelectorAll('#tl-bars path').length > 10")
    browser.js(PUT % "found => ({points: found.points.map(p => ({...p, lost: p.number === 3}))})")
    mark = {"t": 1.0, "end": None, "kind": "fault", "rail": None, "ranks": [1], "ports": [], "says": "kill of a point"}
    kill = "(Railyard.app.marks = given[0], Railyard.emit('marks'), 1)"
    browser.js(kill, [mark])
    browser.js("(Railyard.model.setPoint(3), 1)")
    assert "kill of a point" in browser.text("#happened") and browser.js("document.querySelector('#tl-empty').hidden")
    browser.keys("p")
    browser.until("Railyard.debug.window.point === 2 && document.querySelectorAll('#tl-bars path').length > 10")
    browser.js(kill, [mark])
    browser.keys("n")
    browser.until("document.querySelector('#tl-empty').innerText.startsWith('The run ended without this point')")
    assert "kill" not in browser.text("#happened") and "Nothing failed" not in browser.text("#happened")
    ended = {"revision": 9, "point": 4, "now": 1.0, "live": False, "parts": ["overview"]}
    browser.js("(Railyard.app.source.overview = async () => given[0], 1)", browser.js("{...Railyard.app.overview}"))
    gone = "(app => app.source.overview().then(o => o.points = o.points.filter(p => !p.lost)))(Railyard.app)"
    browser.js(f"({gone}, 1)")
    updates = browser.js("Railyard.debug.tick.updates")
    browser.js(TICK, json.dumps(ended))
    browser.until("Railyard.debug.tick.updates > given[0]", updates)
    assert browser.js("Railyard.model.pointEntry().lost") and browser.text("#banner") == ""
    assert browser.js("Railyard.debug.failures") == []


def test_the_last_read_of_a_point_reaches_wider_than_its_window(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&t=0.9")
    browser.until("document.querySelectorAll('#tl-bars path').length > 10")
    asked = browser.js(
        """((source, ask, app, model) => {
          const whole = model.duration(), from = 0.7 * whole;
          window.asked = [];
          source.timeline = (...given) => (window.asked.push(given[2]), ask.apply(source, given));
          app.timeline.start = from;
          model.setWindow(from, 2 * whole, true);
          model.reread();
          return [from - 2 * (whole - from), from - (whole - from)];
        })(Railyard.app.source, Railyard.app.source.timeline, Railyard.app, Railyard.model)"""
    )
    browser.until("window.asked.length > 1")  # of the window and of what happened in the whole point
    browser.js("new Promise(done => setTimeout(done, 400))")
    ends = [start for start in browser.js("window.asked") if start > 0]
    assert ends == [pytest.approx(asked[0])], f"a narrower read, from {asked[1]} s, would replace it"


def test_the_sentence_names_all_ranks_that_are_drawn_as_waiting(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&t=0.9")
    browser.until("document.querySelectorAll('path.circuit').length > 0")
    ranks = {str(rank): {"kind": "wait" if rank in (1, 2, 6) else "compute", "label": ""} for rank in range(8)}
    wait = {"rank": 2, "for": [5], "group": "pp"}
    browser.js(
        "(Object.assign(Railyard.app.state, given[0]), Railyard.emit('state'), 1)", {"ranks": ranks, "waits": [wait]}
    )
    said = browser.text("#fabric-says")
    assert "rank 2 waits for rank 5 (pp)" in said and "ranks 1, 6 wait" in said


def test_rates_say_of_how_many_ports_they_are_the_sum(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    browser.until("document.querySelector('#strips canvas')")
    put = "(Railyard.app.strips.rates.forEach(each => Object.assign(each, given[0])), Railyard.emit('strips'), 1)"
    rate = {"ports": 8, "port_gbps": 12.5, "line_gbps": 100.0}
    browser.js(put, rate)
    assert "sum of 8 ports, line rate 8 × 12.5 Gb/s" in browser.text("[data-strip=rates], #strips")
    browser.js(put, {"ports": 5, "port_gbps": None, "line_gbps": 45.0})
    assert "sum of 5 ports, line rate 45.0 Gb/s together" in browser.text("[data-strip=rates], #strips")


def test_marks_lie_above_the_steps_in_a_window_longer_than_the_point(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    browser.until("document.querySelectorAll('#tl-top .step').length > 1")
    lowest, steps = browser.js(
        """(whole => {
          Railyard.model.setWindow(0, 10 * whole, true);
          Railyard.app.marks = [0.1, 0.2, 0.3].map(part => ({t: part * whole, end: null, kind: 'fault', says: 'f'}));
          Railyard.emit('marks');
          const boxes = kind => [...document.querySelectorAll(`#tl-top ${kind}`)].map(e => e.getBoundingClientRect());
          return [Math.max(...boxes('.mark').map(b => b.bottom)), Math.min(...boxes('.step').map(b => b.top))];
        })(Railyard.model.duration())"""
    )
    assert lowest <= steps + 1


def test_all_times_of_a_window_have_one_unit(browser: Browser, page: Served) -> None:
    browser.open(f"{page.url}#run=0&point={ON_DEMAND}&from=1.2&to=1.25&t=1.225")
    browser.until("document.querySelectorAll('#tl-bars path').length > 2")
    assert browser.js("Railyard.model.duration()") > 2
    assert browser.text("#window-says").startswith("1.20000 to 1.25000 s of ")
    assert browser.js("document.querySelector('#tl-top .unit').textContent") == "time (s)"
    assert browser.js("document.querySelector('.flag text').textContent") == "1.22500 s"
    browser.keys("0")
    browser.until("Railyard.debug.window.from === 0")
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.js("(Railyard.model.setWindow(0, 0.5), 1)")
    ActionChains(browser.driver).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    browser.until("Math.abs(Railyard.debug.window.from - 0.5) < 1e-9")


def test_names_of_groups_are_explained(browser: Browser, page: Served) -> None:
    browser.open(page.url)
    found = browser.js("['pp.t0.d1.s0', 'gather of dp.t1.s0', 'world'].map(Railyard.format.group)")
    assert found == [
        "pp.t0.d1.s0: the PP group of TP index 0, DP index 1, stages 0 and 1",
        "dp.t1.s0: the DP group of TP index 1, stage 0",
        "",
    ]


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
