"""What grows in a long run is seen, records that are gone are counted, and options that mean nothing are refused."""

from __future__ import annotations

import json
from pathlib import Path

from tests.campaign.records import Records, reading
from tests.campaign.soak import Use, growths

MEMORY, FILES = ("main", "own memory"), ("main", "open files")


def soak(memory_per_point: float = 0.0, points: int = 400) -> list[Use]:
    return [{MEMORY: round(1e8 + memory_per_point * point), FILES: 40} for point in range(points)]


def growing(uses: list[Use]) -> list[str]:
    return [growth.thing for growth in growths(uses) if not growth.flat]


def test_what_each_point_keeps_grows_and_what_a_point_under_way_has_does_not() -> None:
    assert growing(soak()) == growing(soak(5e3)) == []
    assert growing(soak(5e4)) == ["own memory"]
    under_way = [use | {FILES: 42} for use in soak()[-20:]]
    assert growing([*soak()[:-20], *under_way]) == []
    assert growing([use | {FILES: 40 + point} for point, use in enumerate(soak())]) == ["open files"]


def test_the_most_of_some_points_is_compared_since_shared_memory_is_low_for_one() -> None:
    low = [use | ({MEMORY: 5_000_000} if point in (105, 395) else {}) for point, use in enumerate(soak())]
    assert growing(low) == []
    grown = [use | ({MEMORY: 150_000_000} if point >= 390 else {}) for point, use in enumerate(low)]
    assert [(growth.first, growth.last) for growth in growths(grown) if not growth.flat] == [(10**8, 15 * 10**7)]


def line(t: float, end: float) -> str:
    return json.dumps({"t": t, "source": "agent", "kind": "step", "rank": 0, "end": end}) + "\n"


def test_events_that_are_merged_are_not_lost_and_deleted_ones_are(tmp_path: Path) -> None:
    point, before = tmp_path / "points" / "001", tmp_path / "points" / "000"
    point.mkdir(parents=True)
    before.mkdir()
    (before / "events.jsonl").write_text(line(1.0, 1.5))
    (point / "g0.jsonl").write_text(line(2.0, 2.5) + '{"cut')
    (tmp_path / "summary.json").write_text('[{"n": 1}]')
    known = Records.of(tmp_path)
    assert (len(known.rows), len(known.lines)) == (1, 2)
    assert (known.late(at=3.0), known.late(at=5.0)) == (0, 1)
    (point / "g0.jsonl").unlink()
    assert known.lost_in(Records.of(tmp_path)) == 1
    (point / "events.jsonl").write_text(line(2.0, 2.5))
    assert known.lost_in(Records.of(tmp_path)) == 0
    (tmp_path / "summary.json").write_text("[]")
    assert known.lost_in(Records.of(tmp_path)) == 1
    assert reading(tmp_path) == {}
    (tmp_path / "manifest.json").write_text("{")
    assert reading(tmp_path)["unreadable"].startswith("ConfigError")
