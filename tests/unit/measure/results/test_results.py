from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from measure.results.manifest import build_manifest, groups_of, plans_of, scale_of
from measure.results.results import EVENTS, MANIFEST, SUMMARY, TABLE, Results, check_folder, plain
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.timeline import Event


def _manifest(point: Any) -> dict[str, Any]:
    return build_manifest(
        experiment={"workload": "smoke"}, seed=3, scale=point.scale, plans=[point.plan], groups=point.groups
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


def test_a_new_run_replaces_what_railyard_wrote_and_nothing_else(make_point: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path, _manifest(make_point()))
    results.add_events([Event(1.0, "run", "point")])
    results.write_rows([{"mode": "native"}], ["mode"])
    results.write("figures/old.png", b"x")
    (tmp_path / "notes.txt").write_text("mine")
    again = Results.create(tmp_path, _manifest(make_point()))
    assert again.events() == [] and again.rows() == []
    assert sorted(p.name for p in tmp_path.iterdir()) == [MANIFEST, "notes.txt"]


def test_what_was_recorded_stays_when_the_run_dies(make_point: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path, _manifest(make_point()))
    results.add_events([Event(1.0, "agent", "step", 2.0, {"rank": 0, "step": 0})])
    results.write_rows([{"mode": "native", "step_time_s": 1.0}], ["mode", "step_time_s"])
    with (tmp_path / EVENTS).open("a") as out:
        out.write('{"t": 3.0, "sour')
    opened = Results.open(tmp_path)
    assert [e.kind for e in opened.events()] == ["step"]
    assert opened.rows() == [{"mode": "native", "step_time_s": 1.0}]


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


def test_csv_has_the_flat_columns_and_json_all(make_point: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path, _manifest(make_point()))
    rows: list[dict[str, Any]] = [{"mode": "native", "windows_s": [1.0]}, {"mode": "on-demand", "packets_lost": 2}]
    results.write_rows(rows, ["mode", "packets_lost"])
    with (tmp_path / TABLE).open() as table:
        written = list(csv.DictReader(table))
    assert written == [{"mode": "native", "packets_lost": ""}, {"mode": "on-demand", "packets_lost": "2"}]
    assert json.loads((tmp_path / SUMMARY).read_text())[0]["windows_s"] == [1.0]


def test_plain_data_is_strict_json() -> None:
    value = plain({"a": float("inf"), "b": (1, Path("x")), 3: float("nan"), "c": 0.1 + 0.2})
    assert json.loads(json.dumps(value, allow_nan=False)) == {"a": None, "b": [1, "x"], "3": None, "c": 0.3}


def test_the_manifest_says_how_delayed_links_hold_packets() -> None:
    plain: dict[str, Any] = {"experiment": {}, "seed": 0, "scale": Scale(1.0), "plans": [], "groups": {}}
    assert build_manifest(**plain)["link_delay"] == "none"
    assert build_manifest(**plain, link_delay="relay")["link_delay"] == "relay"
