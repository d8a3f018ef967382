from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from watch.folders import SCALE, finished_folder, folder_of, locked, running_files, synthetic, write_manifest

from commands.page.run_view import RunView
from railyard.errors import ConfigError
from railyard.timeline import Event, write_events

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([1]), st.just({"a": 1})
)


def whole(view: RunView, point: int = 0, until: float | None = None) -> dict[str, Any]:
    """All that a view says of a point up to ``until``, by default its end."""
    now = view.now(point) if until is None else until
    found = {"timeline": view.timeline(point, 0.0, now, 4000), "strips": view.strips(point, 0.0, now, 400)}
    return {**found, "states": [view.state(point, now * share / 7) for share in range(8)]}


def test_a_finished_folder(tmp_path: Path) -> None:
    events = finished_folder(tmp_path)
    view = RunView(tmp_path)
    assert not view.refresh() and not view.live and view.latest == 1
    assert [point["number"] for point in view.points()] == [0, 1]
    first = view.points()[0]
    assert first["mode"] == "on-demand" and first["plan"] == "ocs" and first["state"] == "measured"
    assert first["duration"] == pytest.approx(SCALE.real_s(events[0][0].seconds))
    found = view.timeline(1)
    assert found["loaded"] == 1 and not found["live"] and found["duration"] == view.now(1)
    assert sum(len(bars["s"]) for bars in found["bars"].values()) > 100
    view.close()
    view.close()


def test_what_was_told_when_a_point_began_is_told_of_it_later(tmp_path: Path) -> None:
    ((head, *_),) = finished_folder(tmp_path, points=1, samples=False)
    (first,) = RunView(tmp_path).points()
    assert first["title"] == "live" and first["mode"] == "on-demand" and first["steps"] == 3
    assert first["expected_s"] == 2.0 and first["duration"] == pytest.approx(SCALE.real_s(head.seconds))


def test_answers_are_plain_json_without_infinities(tmp_path: Path) -> None:
    finished_folder(tmp_path)
    json.dumps(whole(RunView(tmp_path)), allow_nan=False)


def test_a_point_that_does_not_exist(tmp_path: Path) -> None:
    finished_folder(tmp_path)
    view = RunView(tmp_path)
    for ask in (view.timeline, view.strips, view.now, lambda n: view.state(n, 0.0)):
        with pytest.raises(LookupError, match="no point 7"):
            ask(7)


def test_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="not a Railyard results folder"):
            RunView(folder)
    finished_folder(tmp_path)
    change(tmp_path / "manifest.json", railyard_results=1)
    with pytest.raises(ConfigError, match="has format 1 and this version reads 2; use the version that wrote it"):
        RunView(tmp_path)


@pytest.mark.parametrize(
    "manifest",
    [
        *({"plans": 3}, {"plans": {"ocs": {"fabric": 1}}}, {"groups": [7]}, {"scale": {"rate": -1}}),
        *({"scale": {"rate": rate, "time": time}} for rate, time in ((0.01, 1e-300), (1e-300, 1.0), (1.0, 1e30))),
    ],
)
def test_a_manifest_that_no_run_writes_is_refused_in_one_sentence(tmp_path: Path, manifest: dict[str, Any]) -> None:
    finished_folder(tmp_path)
    change(tmp_path / "manifest.json", **manifest)
    with pytest.raises(ConfigError, match=r"does not write|manifest\.json: "):
        RunView(tmp_path)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_an_event_that_no_run_writes_is_refused_in_one_sentence(tmp_path: Path) -> None:
    finished_folder(tmp_path, points=1)
    with (folder_of(tmp_path) / "events.jsonl").open("a") as out:
        out.write('{"t":1000.5,"source":"agent","kind":"step","rank":1,"end":1001.0}\n')
    with pytest.raises(ConfigError, match=r"does not write \(KeyError: 'step'\)"):
        RunView(tmp_path).timeline(0)


def test_a_point_is_read_over_several_calls_where_patience_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_folder(tmp_path, points=1, steps=150, samples=False)
    monkeypatch.setattr("railyard.reading.PIECE_BYTES", 1 << 16)
    quick, patient = RunView(tmp_path, patience_s=0.0), RunView(tmp_path)
    shares = [quick.timeline(0)["loaded"]]
    while quick.refresh():
        shares.append(quick.timeline(0)["loaded"])
        assert quick.parts == {"timeline"} or quick.parts == set()
    assert shares == sorted(shares) and shares[0] < 1 and shares[-1] == 1 and len(shares) > 2
    assert whole(quick) == whole(patient)


def test_few_points_are_kept(tmp_path: Path) -> None:
    finished_folder(tmp_path, points=6, samples=False)
    view = RunView(tmp_path)
    before = [whole(view, number) for number in range(6)]
    assert len(view._points._readers) == 3
    assert [whole(view, number) for number in range(6)] == before


def test_lines_that_are_cut_short_are_counted_and_left_out(tmp_path: Path) -> None:
    finished_folder(tmp_path, points=1)
    clean = whole(RunView(tmp_path))
    path = folder_of(tmp_path) / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe\n", *lines[2:], b"cut sh\n", lines[-1][:40]]))
    view = RunView(tmp_path)
    assert whole(view) == clean and view.overview()["unreadable"] == 3


def test_a_folder_without_events(tmp_path: Path) -> None:
    write_manifest(tmp_path, [])
    view = RunView(tmp_path)
    assert view.points() == [] and view.latest is None and not view.refresh()


def test_a_folder_that_vanishes_is_shown_as_it_was_and_said_to_be_gone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    finished_folder(folder)
    view = RunView(folder)
    before, overview = whole(view), view.overview()
    folder.rename(tmp_path / "elsewhere")
    assert view.refresh() and whole(view) == before and not view.refresh()
    said = f"{folder} is not there any more; this page shows what was read before."
    assert view.overview() == {**overview, "notes": [*overview["notes"], said]}
    folder.mkdir()
    assert view.refresh() and "not a Railyard results folder" in view.overview()["notes"][-1]
    folder.rmdir()
    (tmp_path / "elsewhere").rename(folder)
    assert view.refresh() and view.overview() == overview


def test_a_folder_in_place_of_another_is_shown_alone(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    for each, points in ((folder, 3), (other, 1)):
        each.mkdir()
        finished_folder(each, points=points, steps=points, samples=False)
    view = RunView(folder)
    whole(view)
    folder.rename(tmp_path / "old")
    other.rename(folder)
    view.refresh()
    assert {*view.parts} == {"overview", "timeline"} and view.revision == 2
    assert whole(view) == whole(RunView(folder)) and view.overview() == RunView(folder).overview()
    assert [point["number"] for point in view.points()] == [0] and not view.refresh()


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
def test_a_file_that_never_ends_is_not_waited_for(tmp_path: Path, name: str) -> None:
    finished_folder(tmp_path)
    view = RunView(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    writer = os.open(tmp_path / name, os.O_RDWR)
    with pytest.raises(ConfigError, match=r"is no regular file|has no manifest.json by Railyard"):
        view.refresh()
        view.overview()
    os.close(writer)


@pytest.mark.parametrize("levels", [1, 600, 5000, 200_000])
def test_a_manifest_that_is_nested_too_deep_is_refused_in_one_sentence(tmp_path: Path, levels: int) -> None:
    finished_folder(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": ' + "[" * levels + "]" * levels))
    with pytest.raises(ConfigError, match=r"seed: must be a whole number|has no manifest.json by Railyard"):
        RunView(tmp_path)


# ---- runs under way ----------------------------------------------------------------------------------------------


def append(files: dict[Path, list[Event]], until: float) -> None:
    """Write the events of each file that had happened by ``until``."""
    for path, events in files.items():
        done = [event for event in events if (event.t if event.end is None else event.end) <= until]
        if done:
            with path.open("a", encoding="utf-8") as out:
                out.write("".join(event.to_line() + "\n" for event in done))
            del events[: len(done)]


def begin(folder: Path, number: int = 0) -> tuple[list[Event], dict[Path, list[Event]]]:
    point, events = synthetic(number, samples=False)
    write_manifest(folder, [point], ended=False)
    return events, running_files(folder, number, events)


def end(folder: Path, number: int, events: list[Event]) -> None:
    write_events(folder_of(folder, number) / "events.jsonl", events)
    for path in folder_of(folder, number).iterdir():
        if path.name != "events.jsonl":
            path.unlink()


def test_a_run_under_way_grows_to_what_the_finished_one_shows(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    head = events[0]
    with locked(tmp_path):
        view, revision = RunView(tmp_path), 0
        for share in range(1, 41):
            append(files, head.t + head.seconds * share / 40)
            view.refresh()
            if view.points():
                assert view.live and view.latest == 0 and view.points()[0]["state"] == "running"
                assert view.timeline(0)["live"] and view.revision >= revision
                revision = view.revision
        length = SCALE.real_s(head.seconds)
        live = whole(view, until=length)
        assert view.points()[0]["title"] == "live" and view.points()[0]["steps"] == 3
        end(tmp_path, 0, events)
        assert view.refresh() and view.points()[0]["state"] == "measured" and {*view.parts} == {"overview", "timeline"}
        after = whole(view)
    for lane, bars in after["timeline"]["bars"].items():
        shown = [(s, e, k) for s, e, k in zip(bars["s"], bars["e"], bars["k"], strict=True) if e < length - 1e-3]
        mine = live["timeline"]["bars"][lane]
        assert [each[2] for each in shown] == mine["k"][: len(shown)], lane
        assert [each[:2] for each in shown] == [
            pytest.approx(bar, abs=2e-3) for bar in list(zip(mine["s"], mine["e"], strict=True))[: len(shown)]
        ]


def test_the_times_of_a_point_count_from_its_first_step(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    with locked(tmp_path):
        view = RunView(tmp_path)
        assert view.points() == []
        append(files, events[0].t - 1)
        assert view.refresh() and view.points()[0]["state"] == "running"
        change = next(event for event in events if event.kind == "reconfigure")
        append(files, change.end or 0)
        assert view.refresh()
        dark = [
            s for s, k in zip(*(view.timeline(0, 0, 1)["bars"]["rail0:1"][c] for c in "sk"), strict=True) if k == 10
        ]
        assert dark == [pytest.approx(SCALE.real_s(change.t - events[0].t), abs=1e-3)]


def test_acts_before_the_first_step_are_marked_at_its_begin(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    head = events[0]
    act = Event(head.t - 0.5, "controller", "manual", None, {"what": "fail", "rail": "rail0", "ports": [2]})
    files[folder_of(tmp_path) / "controller.jsonl"][:0] = [act]
    with locked(tmp_path):
        view = RunView(tmp_path)
        for t in (head.t - 0.1, head.t + 0.5):
            append(files, t)
            view.refresh()
        marks = [mark for mark in view.timeline(0, 0, 1)["marks"] if mark["kind"] == "manual"]
        assert [(mark["t"], mark["ports"]) for mark in marks] == [(0.0, [2])]
        end(tmp_path, 0, [head, *events[1:], act])
        view.refresh()
        assert [m["ports"] for m in view.timeline(0, 0, 1)["marks"] if m["kind"] == "manual"] == [[2]]


def test_a_plan_that_is_in_the_manifest_later(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    point, _ = synthetic()
    write_manifest(tmp_path, [], ended=False)
    with locked(tmp_path):
        append(files, events[0].t + 0.01)
        view = RunView(tmp_path)
        assert view.timeline(0)["lanes"] == []
        write_manifest(tmp_path, [point], ended=False)
        append(files, events[0].t + events[0].seconds)
        view.refresh()
        assert view.points()[0]["plan"] == "ocs" and view.timeline(0, 0, 1)["bars"]["rank0"]["s"]


def test_what_the_controller_wrote_before_the_plan_was_known_is_shown_with_it(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    point, _ = synthetic()
    write_manifest(tmp_path, [], ended=False)
    append(files, events[0].t + events[0].seconds / 2)
    view = RunView(tmp_path)
    assert view.timeline(0)["lanes"] == []
    write_manifest(tmp_path, [point], ended=False)
    append(files, events[0].t + events[0].seconds)
    while view.refresh():
        pass
    assert whole(view)["states"] == whole(RunView(tmp_path))["states"]


def test_waits_are_divided_once_all_that_is_new_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, files = begin(tmp_path)
    unused = b'{"t":1.0,"source":"controller","kind":"phase"}\n'
    (folder_of(tmp_path) / "controller.jsonl").write_bytes(unused * (1 << 13))
    append(files, 1e9)

    def shown(view: RunView) -> dict[str, Any]:
        return {lane: [bars[c] for c in "sek"] for lane, bars in whole(view)["timeline"]["bars"].items()}

    at_once = shown(RunView(tmp_path))
    monkeypatch.setattr("railyard.reading.PIECE_BYTES", 1 << 12)
    view, looks = RunView(tmp_path, patience_s=0.0), 1
    while view.refresh():
        looks += 1
    assert looks > 3 and shown(view) == at_once


def test_a_change_of_circuits_is_there_at_the_next_refresh(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    change = next(event for event in events if event.kind == "reconfigure")
    with locked(tmp_path):
        append(files, (change.end or 0) - 1e-6)
        view = RunView(tmp_path)
        t = SCALE.real_s((change.end or 0) - events[0].t) + 0.001
        assert view.state(0, t)["circuits"]["rail0"] == []
        append(files, change.end or 0)
        assert view.refresh() and "timeline" in view.parts
        assert view.state(0, t)["circuits"]["rail0"][0]["kind"] == "dp"
        assert not view.refresh()


def test_a_cut_last_line_is_waited_for(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    append(files, events[0].t)
    change = next(event for event in events if event.kind == "reconfigure").to_line().encode() + b"\n"
    with locked(tmp_path):
        view = RunView(tmp_path)
        with (folder_of(tmp_path) / "controller.jsonl").open("ab", buffering=0) as out:
            for byte in change[:-1]:
                out.write(bytes([byte]))
                assert not view.refresh() and view.overview()["unreadable"] == 0
            out.write(change[-1:])
        assert view.refresh() and view.overview()["unreadable"] == 0


def test_the_events_of_the_point_before_are_not_those_of_the_next(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    append(files, 1e9)
    with locked(tmp_path):
        view = RunView(tmp_path)
        end(tmp_path, 0, events)
        later, files = begin(tmp_path, 1)
        append(files, later[0].t + 0.05)
        view.refresh()
        assert view.latest == 1 and [p["state"] for p in view.points()] == ["measured", "running"]
        assert view.timeline(1)["marks"] == [] and view.state(1, 0.01)["circuits"]["rail0"] == []


def test_a_killed_run_keeps_its_last_point(tmp_path: Path) -> None:
    events, files = begin(tmp_path)
    append(files, events[0].t + events[0].seconds / 2)
    view = RunView(tmp_path)
    assert not view.live and view.points()[0]["state"] == "stopped"
    assert view.now(0) == pytest.approx(SCALE.real_s(events[0].seconds / 2), rel=0.3)
    assert view.timeline(0)["bars"] and not view.timeline(0)["live"]


def test_a_view_closes_what_it_opened(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    events, files = begin(tmp_path)
    append(files, events[0].t + events[0].seconds / 2)
    with locked(tmp_path):
        view = RunView(tmp_path)
        view.timeline(0)
        view.close()
    assert opened() == before
