"""The page of a run under way in a real browser: what happens is on the screen soon, for one reader or for twenty."""

from __future__ import annotations

import http.client
import io
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from watch.browser import WAIT_S, Browser
from watch.folders import DOT
from watch.live_run import LiveRun
from watch.watching import Served, watching

from measure.results.results import FIGURES
from railyard.ownership import make_folder
from railyard.timeline import Event

pytestmark = pytest.mark.browser

LATEST_S = 0.3
"""From the write of an event to the pixel."""
CHANGES = 12
WATCH = """
(() => {
  window.painted = {};
  const look = () => {
    const name = p => `${p.dataset.switch}:${p.dataset.a}-${p.dataset.b}`;
    const found = [...document.querySelectorAll('path.circuit')].map(name);
    const fresh = found.filter(name => !(name in window.painted));
    for (const name of fresh) window.painted[name] = null;
    if (!fresh.length) return;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        for (const name of fresh) window.painted[name] = (performance.timeOrigin + performance.now()) / 1000;
      };
      channel.port2.postMessage(0);
    });
  };
  new MutationObserver(look).observe(document.querySelector('#fabric'), {subtree: true, childList: true});
  look();
})()
"""
"""Notes when each circuit was first on the screen, in seconds of the clock of ``time.time``."""


@pytest.fixture
def live(chromium: Browser, tmp_path: Path) -> Iterator[LiveRun]:
    with LiveRun(tmp_path / "live", gpus=4) as run:
        run.begin()
        yield run


@pytest.fixture
def page(live: LiveRun, browser: Browser) -> Iterator[Served]:
    with watching(live.folder) as served:
        browser.open(served.url)
        browser.until("Railyard.debug.window.live && Railyard.debug.window.follow")
        browser.until("Railyard.app.source.stream?.readyState === EventSource.OPEN")  # or a last sentence is not heard
        yield served
        browser.driver.get("about:blank")


def stroke_on_screen(browser: Browser, switch: str, a: int, b: int) -> tuple[list[int], list[int]]:
    """The colour that a circuit should have, and that of the pixel in the middle of its line, as red, green, blue."""
    import numpy as np
    from PIL import Image

    wanted, x, y = browser.js(
        """(p => { const m = p.getPointAtLength(p.getTotalLength() / 2).matrixTransform(p.getScreenCTM());
        return [getComputedStyle(p).stroke.match(/[0-9]+/g).map(Number), m.x, m.y]; })
        (document.querySelector(`path.circuit[data-switch="${given[0]}"][data-a="${given[1]}"][data-b="${given[2]}"]`))""",
        switch, a, b,
    )  # fmt: skip
    image = np.asarray(Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB"), dtype=int)
    near = image[round(y) - 1 : round(y) + 2, round(x) - 1 : round(x) + 2].reshape(-1, 3)
    return wanted, near[np.abs(near - wanted).sum(axis=1).argmin()].tolist()


@pytest.mark.timed(late_ms=50)
def test_a_circuit_is_on_the_screen_soon_after_its_event(live: LiveRun, page: Served, browser: Browser) -> None:
    browser.until("document.querySelectorAll('path.circuit').length > 0")
    browser.js(WATCH)
    late = []
    for number in range(CHANGES):
        rail, far = f"rail{number % 4}", (5, 7, 3)[number // 4]
        browser.js("(delete window.painted[given[0]], 0)", f"{rail}:2-{far}")
        wrote = live.rewire(rail, [2, far], [[2, far]], "pp0.0")
        name = f"{rail}:2-{far}"
        shown = browser.until("window.painted[given[0]]", name)
        late.append(shown - wrote)
        time.sleep(0.25 + 0.01 * number)  # at other moments of the ticks each time
    late.sort()
    print(f"event to pixel: median {late[len(late) // 2]:.3f} s, worst {late[-1]:.3f} s of {len(late)}")
    assert late[len(late) // 2] <= LATEST_S and late[0] > 0
    wanted, found = stroke_on_screen(browser, "rail3", 2, 3)
    assert found == pytest.approx(wanted, abs=40), "and it is really drawn in its colour"


def test_a_live_page_grows_and_then_shows_the_finished_run(live: LiveRun, page: Served, browser: Browser) -> None:
    assert browser.js("document.querySelector('#state').dataset.state") == "live"
    shown = "/^0.00 to 10.00 s, [0-9.]+ s so far, 100 s expected$/"
    browser.until(f"{shown}.test(document.querySelector('#window-says').innerText)")
    for step in range(3):
        now = time.monotonic()
        fields = {"rank": 0, "step": step}
        compute = Event(now - 0.2, "agent", "compute", now - 0.1, {**fields, "op": 0, "name": "forward", "late_s": 0.0})
        live.agent(0, compute, Event(now - 0.2, "agent", "step", now, fields))
        ends = "(Railyard.timeline.current()?.bars?.rank0?.e || [])"
        browser.until(f"{ends}.some(end => Math.abs(end - given[0]) < 0.002)", now - 0.1 - live.began)
    assert browser.until("Railyard.debug.window.to > given[0]", time.monotonic() - live.began), "it follows the present"
    live.finish_point()
    browser.until("Railyard.model.pointEntry()?.state === 'measured'")
    browser.until("(Railyard.timeline.current()?.steps || []).length === 3", within_s=20)
    live.end()
    browser.until("document.querySelector('#state').dataset.state === 'complete'")
    browser.until("document.querySelectorAll('#points tr[data-points]').length === 1")
    make_folder(live.folder / FIGURES)
    (live.folder / FIGURES / "step-time.png").write_bytes(DOT)
    browser.until("document.querySelector('#figures figcaption')?.innerText === 'Step time'", within_s=20)
    assert browser.js("Railyard.debug.failures") == []


@pytest.mark.beside
def test_the_last_sentence_of_a_server_stays(live: LiveRun, page: Served, browser: Browser) -> None:
    page.process.send_signal(signal.SIGINT)
    said = "the server of this page has ended; railyard watch starts it again"
    browser.until("document.querySelector('#banner').innerText === given[0]", said, within_s=30)
    browser.js("(Railyard.model.setPoint(Railyard.app.point), 1)")
    browser.until("Railyard.debug.failures.length > 0")
    assert browser.text("#banner") == said
    browser.until("document.querySelector('#tl-empty').innerText.includes('The server was gone before')")
    assert browser.js("!Railyard.debug.window.live && document.querySelector('#follow').hidden")


BARS = "document.querySelectorAll('#tl-bars g[data-lane=rank0] path').length"
"""Bars of the first rank that are drawn."""
GONE_AFTER_OVERVIEW = """
((ask, source, read) => source.overview = async (...given) => {
  const found = await ask.apply(source, given);
  const gone = () => Promise.reject(new TypeError('Failed to fetch'));
  if (found.state !== 'live' || found.points.some(point => point.state !== 'running'))
    window.fetch = (url, ...rest) => url.startsWith('overview') ? read(url, ...rest) : gone();
  return found;
})(Railyard.app.source.overview, Railyard.app.source, window.fetch) && 1
"""
"""From the overview on that tells the end of the run or of its point, the page can read only overviews."""
SAYS_GONE = "document.querySelector('#banner').innerText.includes('with the folder live shows the run again')"


def compute(live: LiveRun, browser: Browser) -> None:
    """Let the first rank compute and the second fail, and wait until the page shows it."""
    now = time.monotonic()
    fields = {"rank": 0, "step": 0, "op": 0, "name": "forward", "late_s": 0.0}
    live.agent(0, Event(now - 0.2, "agent", "compute", now - 0.1, fields))
    live.rewire("rail0", [2, 7], [[2, 7]], "pp0.0")
    live.note(Event(now, "controller", "failed", None, {"rank": 1, "job": "", "cause": "its process is gone"}))
    browser.until(f"{BARS} > 0 && document.querySelector('#happened ol') && document.querySelector('#strips canvas')")


def still_shown(browser: Browser) -> list[bool]:
    """Whether bars, circuits, what happened, and the strip charts are on the page."""
    shown = [BARS, "document.querySelectorAll('path.circuit').length", "Railyard.app.marks.length"]
    charts = "document.querySelectorAll('#strips canvas').length"
    return [bool(browser.js(each)) for each in (*shown, "document.querySelector('#happened li')", charts)]


@pytest.mark.beside
@pytest.mark.parametrize("saved", [False, True])
def test_a_page_keeps_what_it_shows_when_the_run_ends_and_its_server_is_gone_at_once(
    live: LiveRun, page: Served, browser: Browser, saved: bool
) -> None:
    compute(live, browser)
    browser.js(GONE_AFTER_OVERVIEW)
    if saved:
        live.finish_point()
    live.end()
    browser.until("document.querySelector('#state').dataset.state === 'complete'")
    page.process.kill()
    browser.until(SAYS_GONE)
    assert still_shown(browser) == [True] * 5
    assert "trying again" not in browser.text("#banner")
    browser.js("(Railyard.model.setWindow(0, 0.1), Railyard.model.setTime(0.01), 1)")
    browser.until("Railyard.app.state.t === 0.01")
    assert "with the folder live shows" in browser.text("#banner")


@pytest.mark.beside
def test_a_page_that_is_opened_shortly_before_the_end_keeps_what_it_shows(
    live: LiveRun, page: Served, browser: Browser
) -> None:
    compute(live, browser)
    browser.open(page.url)
    browser.until(f"{BARS} > 0 && document.querySelector('#happened ol')")
    live.end()
    page.process.send_signal(signal.SIGINT)
    browser.until("document.querySelector('#banner').innerText.includes('railyard watch')", within_s=30)
    assert still_shown(browser)[:4] == [True] * 4
    assert not browser.text("#state").startswith("live")


@pytest.mark.beside
def test_a_page_whose_server_dies_in_mid_run_says_so(live: LiveRun, page: Served, browser: Browser) -> None:
    compute(live, browser)
    page.process.kill()
    browser.until(SAYS_GONE)
    assert still_shown(browser) == [True] * 5
    assert browser.text("#state").startswith("under way when this was read last")


@pytest.mark.beside
def test_a_page_whose_server_returns_says_that_the_run_is_live(live: LiveRun, page: Served, browser: Browser) -> None:
    state = "document.querySelector('#state').innerText"
    browser.js(
        """((app, same) => (app.source.overview = async () => same, app.source.tries = 3,
        app.source.stream.onerror(), 1))(Railyard.app, Railyard.app.overview)"""
    )
    browser.until(SAYS_GONE)
    assert browser.js(state).startswith("under way when this was read last")
    browser.until(f"{state}.startsWith('live') && document.querySelector('#banner').innerText === ''")


def events_of(url: str, heard: list[float], joined: threading.Barrier, leaves: threading.Event) -> None:
    """A reader of the stream: notes when each tick came, until it is to leave."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}stream")
    response = connection.getresponse()
    assert response.status == 200
    joined.wait(10)
    while not leaves.is_set():
        line = response.readline()
        if not line:
            return
        if line.startswith(b"data:") and "timeline" in json.loads(line[5:])["parts"]:
            heard.append(time.monotonic())
    connection.close()


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


@pytest.mark.beside
def test_twenty_readers_are_told_and_may_leave_in_mid_stream(live: LiveRun, page: Served, browser: Browser) -> None:
    heard: list[list[float]] = [[] for _ in range(20)]
    joined, leaves = threading.Barrier(21), threading.Event()
    readers = [threading.Thread(target=events_of, args=(page.url, mine, joined, leaves)) for mine in heard]
    for reader in readers:
        reader.start()
    joined.wait(10)
    time.sleep(0.3)
    began = time.monotonic()
    live.rewire("rail0", [2, 7], [[2, 7]], "pp0.0")
    browser.until("document.querySelector('path.circuit[data-switch=rail0][data-b=\"7\"]')")
    while not all(any(t > began for t in mine) for mine in heard):
        assert time.monotonic() < began + WAIT_S
        time.sleep(0.02)
    leaves.set()
    for reader in readers:
        reader.join(5)
        assert not reader.is_alive()
    live.rewire("rail1", [2, 7], [[2, 7]], "pp0.0")
    browser.until("document.querySelector('path.circuit[data-switch=rail1][data-b=\"7\"]')")
    assert memory_mb(page.process.pid) < 150
