"""Where the events of a controller go: to the point that is under way, and to its own file between points."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from controllers.numbered_events import NumberedEvents
from railyard.errors import ConfigError
from railyard.point_folder import CONTROLLER, events_of, point_folder
from railyard.timeline import Event, read_events


def event(t: float, kind: str = "reconfigure") -> Event:
    return Event(t, "controller", kind)


def test_a_point_gets_its_own_events_and_the_acts_since_the_point_before(tmp_path: Path) -> None:
    for number in (0, 1):
        point_folder(tmp_path, number).mkdir(parents=True)
    with closing(NumberedEvents(tmp_path / "own", tmp_path)) as events:
        events.add(event(1.0))
        events.add(event(2.0, "manual"))
        events.add(event(3.0))
        events.begin(0, since=3.0)
        events.add(event(2.5))  # decided before the point began, written after that
        events.add(event(4.0))
        events.begin(None, since=0.0)
        events.add(event(5.0, "manual"))
        events.begin(1, since=6.0)
    noted = [[(e.t, e["n"]) for e in events_of(point_folder(tmp_path, number))] for number in (0, 1)]
    assert noted == [[(2.0, 0), (3.0, 1), (4.0, 2)], [(5.0, 0)]]


def test_a_controller_in_place_of_another_goes_on_with_its_numbers(tmp_path: Path) -> None:
    path = point_folder(tmp_path, 3) / CONTROLLER
    path.parent.mkdir(parents=True)
    for _ in range(2):
        with closing(NumberedEvents(tmp_path / "own", tmp_path)) as events:
            events.begin(3, since=0.0)
            events.add(event(1.0))
    assert [e["n"] for e in read_events(path)] == [0, 1]


def test_a_point_without_a_folder_is_refused_and_events_go_on_where_they_went(tmp_path: Path) -> None:
    with closing(NumberedEvents(tmp_path / "own", tmp_path)) as events:
        with pytest.raises(ConfigError, match=r"points/007/controller\.jsonl cannot be written"):
            events.begin(7, since=0.0)
        events.add(event(1.0))
    with (
        closing(NumberedEvents(tmp_path / "own")) as events,
        pytest.raises(ConfigError, match="start the controller with --points FOLDER"),
    ):
        events.begin(7, since=0.0)
    assert len(read_events(tmp_path / "own")) == 1
