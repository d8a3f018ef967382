"""Following folders: what is told, how often they are looked at, and that no news is lost."""

from __future__ import annotations

import pytest
from watch.fake_view import FakeView

from commands.page.stream import Audience
from commands.page.watched import SHARE, STILL_S, TICK_S, Follower, Watched


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
