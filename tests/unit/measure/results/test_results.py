from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from measure.results.folder import MANIFEST, check_folder, new_folder
from measure.results.manifest import build_manifest, counting_points, groups_of, left_out, plans_of, scale_of
from measure.results.plain import plain
from measure.results.results import SUMMARY, Results
from measure.results.summary import Summary
from railyard.errors import ConfigError
from railyard.point_folder import EVENTS, POINTS, point_folder
from railyard.scale import Scale
from railyard.timeline import Event, write_events

WRONG: tuple[dict[str, Any], ...] = ({"source": {}}, {"kind": 7}, {"end": "x"})
SENSELESS = "".join(f"{json.dumps({'t': 1, 'source': 'run', 'kind': 'point', 'end': 2} | wrong)}\n" for wrong in WRONG)


def _manifest(point: Any) -> dict[str, Any]:
    return build_manifest(
        experiment={"experiment": "rails"}, seed=3, scale=point.scale, plans=[point.plan], groups=point.groups
    )


def test_the_manifest_gives_back_plan_groups_and_scale(make_point: Any, tmp_path: Path) -> None:
    point = make_point()
    Results.create(tmp_path / "out", _manifest(point))
    found = Results.open(tmp_path / "out").manifest()
    assert plans_of(found) == {"ocs": point.plan}
    assert groups_of(found) == point.groups
    assert scale_of(found) == point.scale
    assert found["versions"]["python"] and found["versions"]["kernel"]


def test_a_folder_with_something_else_in_it_is_refused(make_point: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for folder in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ConfigError, match=r"thesis|not empty") as error:
            Results.create(folder, _manifest(make_point()))
        assert error.value.key == "out"
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_manifest_of_somebody_else_does_not_make_it_ours(tmp_path: Path) -> None:
    for content in ("{}", "[1]", "not json"):
        (tmp_path / MANIFEST).write_text(content)
        with pytest.raises(ConfigError):
            check_folder(tmp_path)
        with pytest.raises(ConfigError, match="not a Railyard results folder"):
            Results.open(tmp_path)


def test_a_folder_with_results_is_refused_and_stays_as_it_is(make_point: Any, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    results = Results.create(folder, _manifest(make_point()))
    with pytest.raises(ConfigError, match=f"out: {folder} is in use by a run; name another"):
        Results.create(folder, _manifest(make_point()))
    results.write_point(0, [Event(1.0, "run", "point")])
    results.free()
    with pytest.raises(ConfigError, match=rf"{folder} holds the results of a run of \d{{4}}-.*; name a new folder"):
        Results.create(folder, _manifest(make_point()))
    assert sorted(p.name for p in folder.iterdir()) == [MANIFEST, POINTS]


def test_the_lock_of_a_killed_run_is_free(make_point: Any, tmp_path: Path) -> None:
    folder, (read, write) = tmp_path / "out", os.pipe()
    child = os.fork()
    if not child:
        results = Results.create(folder, {**_manifest(make_point()), "process": os.getpid()})
        os.write(write, b"!")
        signal.pause()
        results.free()
    os.read(read, 1)
    with pytest.raises(ConfigError, match=rf"is in use by a run \(process {child}\); name another"):
        check_folder(folder)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(ConfigError, match="holds the results of a run"):
        check_folder(folder)


def test_under_sudo_the_folder_of_a_third_user_is_refused(
    make_point: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    owner = folder.stat().st_uid
    monkeypatch.setattr("measure.results.folder.invoker", lambda: (owner + 1, 1))
    with pytest.raises(ConfigError, match=rf"out belongs to user {owner}; name a folder of your own"):
        Results.create(folder, _manifest(make_point()))
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("measure.results.folder.invoker", lambda: (owner, 1))
    Results.create(folder, _manifest(make_point())).free()


def test_names_of_one_second_differ(tmp_path: Path) -> None:
    names = {new_folder(tmp_path / "results", "rails").name for _ in range(5)}
    assert len(names) == 5 and all(name.startswith("rails-2") for name in names)


def test_events_of_a_point_that_has_not_ended_are_read_as_those_of_others(make_point: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path, _manifest(make_point()))
    saved, lost = (Event(t, "agent", "step", t + 1, {"rank": 0, "step": 0}) for t in (1.0, 2.0))
    results.write_point(0, [saved])
    results.write_point(1, [saved], "predicted.jsonl")
    folder = point_folder(tmp_path, 1)
    write_events(folder / "g0.jsonl", [lost])
    (folder / "g1.jsonl").write_text('\x00\x00\n[1]\n{"t": "x"}\n' + SENSELESS + "[" * 100_000 + "\n")
    assert Results.open(tmp_path).events() == [Event(0.0, "run", "cut", None, {"lines": 7}), saved, lost]
    results.write_point(1, [lost])
    assert Results.open(tmp_path).events() == [saved, lost], "what its processes left is not read again"
    results.tidy_point(1)
    assert sorted(path.name for path in folder.iterdir()) == [EVENTS, "predicted.jsonl"]


def test_a_write_that_fails_leaves_the_old_file(
    make_point: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results.create(tmp_path, _manifest(make_point()))
    results.write("trace.json", "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        results.write("trace.json", "new")
    assert (tmp_path / "trace.json").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == [MANIFEST, "trace.json"]


def test_a_place_that_cannot_be_written_is_one_sentence(make_point: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written|is a file"):
        Results.create(tmp_path / "file" / "below", _manifest(make_point()))


def test_plain_data_is_strict_json() -> None:
    value = plain({"a": float("inf"), "b": (1, Path("x")), 3: float("nan"), "c": 0.1 + 0.2})
    assert json.loads(json.dumps(value, allow_nan=False)) == {"a": None, "b": [1, "x"], "3": None, "c": 0.3}


def test_the_manifest_says_how_delayed_links_hold_packets() -> None:
    plain: dict[str, Any] = {"experiment": {}, "seed": 0, "scale": Scale(1.0), "plans": [], "groups": {}}
    assert build_manifest(**plain)["link_delay"] == "none"
    assert build_manifest(**plain, link_delay="relay")["link_delay"] == "relay"


def test_nothing_is_written_through_links_that_the_owner_of_the_folder_put_there(
    tmp_path: Path, make_point: Any
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "typed").symlink_to("there")  # the folder that was named may be reached by a link
    (tmp_path / "there").mkdir()
    results = Results.create(tmp_path / "typed" / "out", _manifest(make_point()))
    assert results.write("figures/a.png", b"1") == tmp_path / "typed" / "out" / "figures" / "a.png"
    out = tmp_path / "there" / "out"
    (out / "figures").rename(out / "before")
    (out / "figures").symlink_to(outside)
    (out / SUMMARY).symlink_to(outside / SUMMARY)
    (out / POINTS).symlink_to(outside)
    for refused in (lambda: results.write("figures/b.png", b"2"), lambda: results.write_point(0, [])):
        with pytest.raises(OSError):
            refused()
    results.write(SUMMARY, "[]\n")  # takes the place of the link
    assert not any(outside.iterdir()) and (out / SUMMARY).read_text() == "[]\n"
    out.rename(tmp_path / "moved")
    out.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        results.write(MANIFEST, "{}")
    assert not any(outside.iterdir())


def test_an_error_about_the_draft_of_a_file_names_the_file(make_point: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path / "out", _manifest(make_point()))
    (tmp_path / "out" / f".{SUMMARY}.{os.getpid()}").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        results.write(SUMMARY, "[]")
    assert caught.value.filename == str(tmp_path / "out" / SUMMARY)
    results.free()


def test_a_summary_without_rows_is_an_empty_list_and_a_header() -> None:
    assert b"".join(Summary().json()) == b"[]\n"
    assert b"".join(Summary().csv(["mode"])) == b"mode\n"


def test_the_rows_come_back_as_plain_data_in_their_order() -> None:
    rows = Summary([{"mode": "native", "time_s": float("inf")}, {"mode": "on-demand", "checks": [(1, "ä")]}])
    plain = [{"mode": "native", "time_s": None}, {"mode": "on-demand", "checks": [[1, "ä"]]}]
    assert list(rows) == plain
    assert json.loads(b"".join(rows.json())) == plain
    assert b"".join(rows.csv(["mode", "time_s"])) == b"mode,time_s\nnative,\non-demand,\n"


def attempt(place: int, repeat: int, points: list[int], *, disturbed: bool = False) -> dict[str, Any]:
    """Pieces are told apart by their place, as several may have one name."""
    piece = {"piece": "same", "place": place, "repeat": repeat, "points": points}
    return {**piece, "faithful": not disturbed, "disturbed": disturbed}


def test_points_of_one_place_in_several_repeats_stand_together() -> None:
    manifest = {
        "attempts": [
            attempt(0, 0, [0, 1], disturbed=True),
            attempt(0, 0, [2, 3]),
            attempt(1, 0, [4]),
            attempt(0, 1, [5, 6]),
            attempt(1, 1, [7], disturbed=True),
            *(attempt(2, repeat, [point], disturbed=True) for repeat, point in ((0, 8), (0, 9), (1, 10))),
        ]
    }
    assert counting_points(manifest) == [(2, 5), (3, 6), (4,), (9, 10)]
    assert left_out(manifest) == {0, 1, 7, 8}


def test_repeats_with_different_numbers_of_points_are_not_told_apart() -> None:
    assert counting_points({"attempts": [attempt(0, 0, [0, 1]), attempt(0, 1, [2])]}) == [(0, 1, 2)]


def test_a_folder_without_attempts_leaves_nothing_out() -> None:
    assert (counting_points({}), left_out({})) == ([], set())
