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
from watch.browser import Browser
from watch.live_run import LiveRun
from watch.watching import Served, watching

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
    """A run of 16 ranks, whose point has begun."""
    with LiveRun(tmp_path / "live", gpus=4) as run:
        run.begin()
        yield run


@pytest.fixture
def page(live: LiveRun, browser: Browser) -> Iterator[Served]:
    """The page of the run, open in the browser."""
    with watching(live.folder) as served:
        browser.open(served.url)
        browser.until("Railyard.debug.window.live && Railyard.debug.window.follow")
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
    assert browser.js("Railyard.debug.failures") == []


def test_the_last_sentence_of_a_server_stays(live: LiveRun, page: Served, browser: Browser) -> None:
    page.process.send_signal(signal.SIGINT)
    said = "the server of this page has ended; railyard watch starts it again"
    browser.until("document.querySelector('#banner').innerText === given[0]", said, within_s=30)
    browser.js("(Railyard.model.setPoint(Railyard.app.point), 1)")
    browser.until("Railyard.debug.failures.length > 0")
    assert browser.text("#banner") == said
    assert browser.js("!Railyard.debug.window.live && document.querySelector('#follow').hidden")


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
    """The memory that a process holds at most, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


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
    time.sleep(0.5)
    assert all(any(t > began for t in mine) for mine in heard)
    leaves.set()
    for reader in readers:
        reader.join(5)
        assert not reader.is_alive()
    live.rewire("rail1", [2, 7], [[2, 7]], "pp0.0")
    browser.until("document.querySelector('path.circuit[data-switch=rail1][data-b=\"7\"]')")
    assert memory_mb(page.process.pid) < 150
