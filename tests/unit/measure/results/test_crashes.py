"""Crash consistency: the writer of a results folder dies before each of its operations on files in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from commands.main import main
from experiments.record import Record
from experiments.redraw import read_folder
from experiments.rest_access import TOKEN_FILE, make_token
from measure.results import manifest
from measure.results.folder import MANIFEST
from measure.results.results import CONTROLLER_LOG, SUMMARY, Results
from measure.results.row import ResultRow
from railyard.errors import ConfigError
from railyard.point_folder import EVENTS, point_folder
from railyard.scale import Scale
from railyard.timeline import Event, write_events

POINTS = 2


class Study:
    """An experiment with two points, in the form that a ``Record`` needs."""

    name = identifier = "allocation"
    packets = False
    scale = Scale(1.0)
    spared_share = 0.0
    rows = (ResultRow,)

    class settings:
        @staticmethod
        def model_dump(mode: str) -> dict[str, Any]:
            return {}

    def planned(self) -> int:
        return POINTS


def begin(record: Record, number: int) -> Path:
    return record.point_folder(number, mode="on-demand", plan="ocs", title="a point", steps=1)


def run(folder: Path) -> None:
    """A run of two points; the pipe ``MARK`` gets a byte for each row that was acknowledged (``add`` returned)."""
    record = Record(folder, Study(), Scale(1.0))
    record.open()
    for number in range(POINTS):
        spool = begin(record, number)
        events = [Event(number + 0.5, "agent", "step", number + 1.0, {"rank": 0, "step": 0})]
        write_events(spool / "g0.jsonl", events)
        record.add_events(
            [
                Event(float(number), "run", "point", number + 1.0, {"point": number, "mode": "m", "fabric": "f"}),
                *events,
            ],
            spool,
        )
        record.add([ResultRow()])
        REAL["write"](MARK, b"x")
    record.close(None)


CALLS = ("write", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "ftruncate", "open")
REAL = {name: getattr(os, name) for name in CALLS}
MARK = -1


def die_before(count: int) -> None:
    """Let this process die in its ``count``-th operation on files: a write gets half of its data, others none.

    It does not wait for the disk: what a process wrote before it died is in the files also without ``fsync``.
    """
    left = [count]

    def counted(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                if name == "write":
                    REAL["write"](arguments[0], arguments[1][: len(arguments[1]) // 2])
                os._exit(9)
            if name == "fsync":
                return None
            return REAL[name](*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(name))


def crashed(folder: Path, count: int) -> tuple[int, int]:
    """(exit status of a run that dies in its ``count``-th operation, number of acknowledged rows)."""
    global MARK
    read, MARK = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            die_before(count)
            run(folder)
            status = 0
        finally:
            os._exit(status)
    os.close(MARK)
    _, status = os.waitpid(child, 0)
    acknowledged = len(os.read(read, 64))
    os.close(read)
    return os.waitstatus_to_exitcode(status), acknowledged


def crashes(folder: Path) -> Iterator[tuple[Path, int]]:
    for count in range(1, 500):
        place = folder / f"{count}"
        status, acknowledged = crashed(place, count)
        assert status in (0, 9)
        if status == 0:
            return
        yield place, acknowledged
    raise AssertionError("the run never ended")


def test_what_was_acknowledged_is_there_after_a_crash_at_any_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "git_commit", lambda root: None)  # of no interest, and slow
    manifest.versions()  # once in this process, and not in each that dies
    moments = 0
    for folder, acknowledged in crashes(tmp_path):
        moments += 1
        try:
            results = Results.open(folder)
        except ConfigError:
            assert acknowledged == 0 and not (folder / MANIFEST).exists()
            assert main(["plot", str(folder)]) == 2
            assert capsys.readouterr().err.count("\n") == 1
            continue
        recorded = read_folder(results)
        assert acknowledged <= len(recorded.rows) <= acknowledged + 1
        steps = [event.t for event in recorded.events if event.kind == "step"]
        assert len(steps) == len(set(steps)) >= len(recorded.rows), "no event is lost, and none is read twice"
        if "ended" not in recorded.manifest:
            assert recorded.partial is not None and f"PARTIAL {len(recorded.rows)} of 2" in recorded.partial
            if not (folder / SUMMARY).exists() and moments % 16 == 0:  # which takes long
                assert main(["plot", str(folder)]) == 9
        capsys.readouterr()
    assert moments > 40


@pytest.mark.parametrize("made_before", [False, True])
def test_a_run_that_failed_before_it_recorded_anything_leaves_no_folder(tmp_path: Path, made_before: bool) -> None:
    folder = tmp_path / "results"
    if made_before:
        folder.mkdir()
    for error in (KeyboardInterrupt(), ConfigError("refused")):
        record = Record(folder, Study(), Scale(1.0))
        assert not record.exists
        record.open()
        make_token(folder / TOKEN_FILE)
        assert record.exists
        record.close(error)
        assert not record.exists and list(tmp_path.rglob("*")) == ([folder] if made_before else [])


@pytest.mark.parametrize("what", ["events", "log", "point", "file", "row"])
def test_a_run_that_failed_keeps_what_it_recorded(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "results"
    record = Record(folder, Study(), Scale(1.0))
    record.open()
    if what == "events":
        record.add_events([Event(0.5, "run", "point", 1.0, {"point": 0, "mode": "m"})], begin(record, 0))
    elif what == "log":
        (folder / CONTROLLER_LOG).write_text("it began\n")
    elif what == "point":
        begin(record, 0)
    elif what == "file":
        (folder / "runs").mkdir()
    else:
        record.add([ResultRow()])
    record.close(KeyboardInterrupt())
    assert record.exists and Results.open(folder).manifest()["ended"] == "stopped: by a signal"


@pytest.mark.parametrize("by", ["link", "folder"])
def test_nothing_is_removed_from_what_was_put_in_the_place_of_the_folder(tmp_path: Path, by: str) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    kept = {victim / MANIFEST, victim / TOKEN_FILE, victim / "points" / "000" / "data"}
    record = Record(out, Study(), Scale(1.0))
    record.open()
    spool = begin(record, 0)
    (spool / "disks" / "g0").mkdir(parents=True)
    record.add_events([Event(0.5, "run", "point", 1.0, {"point": 0, "mode": "m"})], spool)
    out.rename(tmp_path / "moved")
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    if by == "link":
        out.symlink_to(victim)
    else:
        victim.rename(out)
        kept = {out / file.relative_to(victim) for file in kept}
    record.tidy()
    assert [path.name for path in point_folder(tmp_path / "moved", 0).iterdir()] == [EVENTS]
    with suppress(OSError):
        record.close(KeyboardInterrupt())
    assert {path for path in kept if path.exists()} == kept
