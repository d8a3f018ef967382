"""Acts of a person on the page of a live run, on a real controller whose switches are in memory."""

from __future__ import annotations

import dataclasses
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openflow.rest_world import TOKEN, Rest
from synthetic_job import build_plan
from watch.browser import Browser
from watch.live_run import LiveRun
from watch.watching import watching

from experiments.rest_access import TOKEN_FILE
from railyard.timeline import Event

pytestmark = [pytest.mark.browser, pytest.mark.beside]
PORTS = "[...document.querySelectorAll('[data-choice=port] option')].map(e => e.value)"

LATE_ANSWER = """
new Promise(done => {
  const app = Railyard.app;
  app.source.state = async () => {
    delete app.source.state;
    app.point += 1;
    setTimeout(() => done((app.point -= 1)));
    return {t: 1e6, failed: {}, dead: []};
  };
  Railyard.emit('timeline');
})
"""
"""The panel asks what has failed, and another point is shown when the answer comes."""


@dataclasses.dataclass
class Fabric:
    """A live run and its controller, whose events are those of the run."""

    run: LiveRun
    rest: Rest

    @staticmethod
    def at(folder: Path) -> Fabric:
        """A run whose controller writes its events as in a real one, at the times of this machine."""
        fabric = Fabric.__new__(Fabric)
        fabric.rest = Rest(build_plan(), lambda event: fabric.record(event))
        more: dict[str, Any] = {
            "rest": fabric.rest.address,
            "experiment": {"experiment": "rails", "rest": fabric.rest.address},
        }
        fabric.run = LiveRun(folder, **more)
        (folder / TOKEN_FILE).write_text(TOKEN + "\n")
        (folder / TOKEN_FILE).chmod(0o600)
        fabric.run.begin()
        return fabric

    def record(self, event: Event) -> None:
        """Write an event of the controller, whose clock is a fake one."""
        late = time.monotonic() - self.rest.clock.now
        self.run.note(dataclasses.replace(event, t=event.t + late, end=None if event.end is None else event.end + late))

    def circuits(self) -> list[list[int]]:
        found: list[list[int]] = self.rest.get("/circuits/rail0")["circuits"]
        return found


@pytest.fixture
def fabric(chromium: Browser, tmp_path: Path) -> Iterator[Fabric]:
    made = Fabric.at(tmp_path / "live")
    yield made
    made.run.end()
    made.rest.close()


def choose(browser: Browser, **choices: str) -> None:
    for key, value in choices.items():
        browser.js(
            """(box => { box.value = given[1]; box.dispatchEvent(new Event('change', {bubbles: true})); })
            (document.querySelector(`[data-choice="${given[0]}"]`))""",
            key, value,
        )  # fmt: skip


def do(browser: Browser) -> str:
    """Ask for what was chosen, confirm it, and return what the page then says."""
    browser.click("#act")
    browser.click("#confirm")
    return str(
        browser.until(
            "(e => e && !e.innerText.startsWith('Asking') && e.innerText)(document.querySelector('#control-says'))"
        )
    )


def post(url: str, body: str) -> tuple[int, str]:
    """Status and sentence of an act sent to the server of a page."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("POST", parts.path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, str(json.loads(answer.read()).get("error", ""))
    connection.close()
    return found


def test_a_person_rewires_and_fails_a_port_and_the_timeline_says_so(browser: Browser, fabric: Fabric) -> None:
    with watching(fabric.run.folder, control=True) as served:
        browser.open(served.url)
        browser.until("!document.querySelector('#control').hidden")
        choose(browser, act="rewire", switch="rail0", port="1", other="8")
        assert do(browser).startswith("Done")
        assert fabric.circuits() == [[1, 8]]
        browser.until('document.querySelector(\'path.circuit[data-switch=rail0][data-a="1"][data-b="8"]\')')
        choose(browser, act="restore", switch="rail0")
        assert browser.until("document.querySelector('#nothing')?.innerText") == "No port of rail0 has failed."
        choose(browser, act="fail", switch="rail0", port="8")
        assert do(browser).startswith("Done")
        browser.until("document.querySelectorAll('#crosses path').length > 0")
        browser.until(f"{PORTS}.length === 7 && !{PORTS}.includes('8')")
        browser.until("!document.querySelector('path.circuit[data-switch=rail0][data-a=\"1\"]')")
        tags = browser.until(
            "(all => all.length >= 2 && all)([...document.querySelectorAll('#happened .person')].map(e => e.innerText))"
        )
        assert set(tags) == {"by a person"}
        choose(browser, act="restore", switch="rail0")
        browser.until(f"{PORTS}.join() === '8'")
        assert do(browser).startswith("Done")
        browser.until("document.querySelectorAll('#crosses path').length === 0")
        choose(browser, act="fail")
        browser.until(f"{PORTS}.length === 8")
        browser.click("#act")
        fabric.run.finish_point()
        browser.until("document.querySelector('#control').hidden && !document.querySelector('#confirm')")


def test_the_panel_offers_what_an_act_has_left_while_the_present_is_not_followed(
    browser: Browser, fabric: Fabric
) -> None:
    with watching(fabric.run.folder, control=True) as served:
        browser.open(served.url)
        browser.until("!document.querySelector('#control').hidden")
        browser.js("(Railyard.pointing.setFollow(false), 1)")
        browser.js(LATE_ANSWER)
        choose(browser, act="fail", switch="rail0", port="8")
        assert do(browser).startswith("Done")
        browser.until(f"{PORTS}.length === 7 && !{PORTS}.includes('8')")


def test_each_act_asks_with_what_follows_from_it(browser: Browser, fabric: Fabric) -> None:
    with watching(fabric.run.folder, control=True) as served:
        browser.open(served.url)
        browser.until("!document.querySelector('#control').hidden")
        for act, follows in {
            "rewire": "while a group sends on one of these, it is refused",
            "fail": "A job that uses it ends, and its run with it, unless it has spares.",
            "fail-chip": "Its links and its agent go on",
        }.items():
            choose(browser, act=act)
            browser.click("#act")
            assert follows in browser.js("document.querySelector('.ask b').innerText")
            browser.click("#cancel")


def test_what_the_controller_refuses_is_shown_as_its_sentence(browser: Browser, fabric: Fabric) -> None:
    with watching(fabric.run.folder, control=True) as served:
        browser.open(served.url)
        assert post(f"{served.url}control", '{"act": "fail", "switch": "rail0", "port": 99}') == (
            409, "port 99 is not on rail0; its ports are 1 to 8",
        )  # fmt: skip
        said = browser.js(
            """fetch('control', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: given[0]})
            .then(r => r.json()).then(a => a.error)""",
            '{"act": "rewire", "switch": "rail9", "circuits": [[1, 2]]}',
        )
        assert said.startswith("there is no switch rail9")
        assert fabric.circuits() == []


def test_a_page_of_another_origin_does_not_act(browser: Browser, fabric: Fabric) -> None:
    act = '{"act": "rewire", "switch": "rail0", "circuits": [[1, 2]]}'
    with watching(fabric.run.folder, control=True) as served:
        browser.driver.get("data:text/html,<title>elsewhere</title>")
        sent = browser.js(
            "fetch(given[0], {method: 'POST', mode: 'no-cors', body: given[1]}).then(() => 'sent', () => 'refused')",
            f"{served.url}control", act,
        )  # fmt: skip
        assert sent in ("sent", "refused") and fabric.circuits() == [], "whatever a page of another origin sends"


def test_without_control_the_page_only_shows(browser: Browser, fabric: Fabric) -> None:
    with watching(fabric.run.folder) as served:
        browser.open(served.url)
        browser.until("document.querySelectorAll('circle.port').length > 0")
        assert browser.js("document.querySelector('#control').hidden && !document.querySelector('#act')")
        status, sentence = post(f"{served.url}control", '{"act": "fail-chip", "rank": 0}')
        assert status == 403 and "--control" in sentence
        assert TOKEN not in browser.js("document.documentElement.outerHTML")
