"""Following a folder and telling pages: no news is lost, nothing is kept twice, and how often is looked."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from watch.fake_view import FakeView

from commands.page import stream
from commands.page.answers import as_json
from commands.page.stream import MOST_PAGES, Audience, Page, Tick
from commands.page.watched import SHARE, STILL_S, TICK_S, Follower, Watched
from railyard.errors import MachineError


def test_news_that_a_question_reads_is_told_later() -> None:
    view = FakeView()
    run = Watched(view)
    assert run.refresh() is None
    run._read = float("-inf")  # long ago
    view.new = ["overview"]
    assert run.ask(lambda seen: seen.revision) == 1  # which reads
    view.new = ["timeline"]
    found = run.refresh()
    assert found is not None and (found.revision, found.parts) == (2, ("overview", "timeline"))
    assert run.refresh() is None


def test_a_question_reads_only_what_is_old() -> None:
    view = FakeView()
    run = Watched(view)
    for _ in range(5):
        run.ask(lambda seen: seen.overview())
    assert view.refreshed == 1


def test_a_run_without_points_has_no_moment() -> None:
    view = FakeView()
    view.latest = None
    found = Watched(view).tick()
    assert (found.point, found.now) == (None, 0.0)


@pytest.mark.parametrize(
    ("live", "behind", "cost_s", "pause_s"),
    [
        (True, False, 0.001, TICK_S),
        (True, True, 0.05, 0.05 * SHARE),
        (False, False, 0.0, STILL_S),
        (False, False, 1.0, SHARE),
    ],
)
def test_looks_take_a_tenth_of_a_processor_at_most(live: bool, behind: bool, cost_s: float, pause_s: float) -> None:
    view = FakeView()
    view.live = live
    run = Watched(view)
    run.behind = behind
    assert Follower(run, Audience()).pause_s(cost_s) == pytest.approx(pause_s)


def test_a_large_folder_that_has_ended_is_read_on_at_once() -> None:
    view = FakeView()
    view.live = False
    run = Watched(view)
    run.behind = True
    assert Follower(run, Audience()).pause_s(1.0) < TICK_S
    view.error = PermissionError(13, "Permission denied")
    follower = Follower(run, Audience())
    follower.look()
    assert follower.pause_s(0.0) == STILL_S


def tick(revision: int, *parts: str) -> Tick:
    return Tick(revision, 3, 0.5 * revision, True, parts)


def told(message: bytes) -> tuple[str, Any]:
    kind, data = message.decode().removesuffix("\n\n").split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_slow_page_gets_one_tick_with_all_parts() -> None:
    page = Page()
    for revision in range(1, 1001):
        page.give(tick(revision, "timeline"))
    page.give(tick(1001, "overview"))
    page.end("over")
    messages = list(page.messages())
    assert messages[0] == b"retry: 2000\n\n"
    expected = {"revision": 1001, "point": 3, "now": 500.5, "live": True, "parts": ["overview", "timeline"]}
    assert [told(message) for message in messages[1:]] == [
        ("tick", expected),
        ("over", {"says": "over"}),
    ]


def test_a_page_without_news_gets_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.001)
    messages = Page().messages()
    assert [next(messages) for _ in range(3)] == [b"retry: 2000\n\n", b":\n\n", b":\n\n"]


def test_text_in_a_message_cannot_begin_another() -> None:
    page = Page()
    page.end("one\n\nevent: tick\ndata: {}")
    *_, message = page.messages()
    assert message.count(b"\n") == 3 and told(message)[1]["says"].count("\n") == 3


def test_there_are_at_most_so_many_pages() -> None:
    audience = Audience()
    pages = [audience.join() for _ in range(MOST_PAGES)]
    with pytest.raises(MachineError, match=f"^{MOST_PAGES} pages are open; close one of them$"):
        audience.join()
    audience.leave(pages[0])
    audience.leave(pages[0])
    audience.join()
    assert len(audience) == MOST_PAGES


def test_a_page_that_comes_after_the_end_is_told_so() -> None:
    audience = Audience()
    audience.end("over", 0.0)
    *_, message = audience.join().messages()
    assert told(message) == ("over", {"says": "over"})


def test_waiting_ends_with_a_page_and_with_a_stop() -> None:
    audience, stop, passed = Audience(), threading.Event(), threading.Event()

    def wait() -> None:
        audience.wait(stop)
        passed.set()

    def end() -> None:
        stop.set()
        audience.wake()

    for begin in (audience.join, end):
        passed.clear()
        thread = threading.Thread(target=wait)
        thread.start()
        assert not passed.wait(0.02)
        begin()
        thread.join(5)
        assert passed.is_set()
        for page in list(audience._pages):
            audience.leave(page)


def test_a_number_that_json_has_not_is_null() -> None:
    page = Page()
    page.give(Tick(1, 3, float("inf"), True, ("overview",)))
    page.end("over")
    assert told(list(page.messages())[1])[1]["now"] is None
    assert as_json({"a": [float("nan"), 1.5]}) == b'{"a":[null,1.5]}'
