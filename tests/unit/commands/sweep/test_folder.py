"""The folder of a sweep: claims of the living count, those of the dead do not, and no state is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commands.sweep import folder
from commands.sweep.folder import Ended, PointCounts, SweepFolder
from commands.sweep.spec import read_spec
from railyard import __version__
from railyard.errors import ConfigError, RailyardError

WORKLOAD = """name: mine
model: {layers: 4, hidden: 1024, sequence: 1024, heads: 8}
parallelism: {dp: 2}
batch: {local_batch: 4, microbatch: 4}
compute: {forward_ms: 60}
training: {sharding: ddp}
fabric: {servers: 2, gpus_per_server: 1}
"""
TEXT = "experiment: rails\nbase: {workload: smoke, modes: [on-demand]}\ngrid: {delays_ms: [[0.0], [50.0], [100.0]]}\n"


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    path = tmp_path / "sweep.yaml"
    path.write_text(TEXT)
    return SweepFolder.create(tmp_path / "folder", read_spec(path))


def in_another_process(do: Callable[[], None]) -> None:
    """Do something in a child process, which is dead afterwards."""
    pid = os.fork()
    if pid == 0:
        try:
            do()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_folder_is_read_as_it_was_made(sweep: SweepFolder) -> None:
    found = SweepFolder.open(sweep.path)
    assert list(found.points) == list(sweep.points) and found.spec.file == sweep.spec.file
    assert found.states() == PointCounts(3, 0, 0, 0, 0)


def test_a_point_from_claim_to_end(sweep: SweepFolder) -> None:
    first, second, third = sweep.pending()
    assert sweep.claim(first) and not sweep.claim(first) and sweep.state(first) == "claimed"
    assert [point.name for point in sweep.pending()] == [second.name, third.name]
    assert sweep.begin(first) == 1
    assert not sweep.end_attempt(first, Ended(1, 8, "here", 2.0)) and sweep.state(first) == "claimed"
    assert sweep.begin(first) == 2 and sweep.end_attempt(first, Ended(2, 0, "here", 1.0))
    assert sweep.claim(second) and sweep.begin(second) == 1
    sweep.end_attempt(second, Ended(1, 3, "there", 0.1, said="no root"))
    assert SweepFolder.open(sweep.path).states() == PointCounts(1, 0, 1, 1, 0)
    assert [(point.name, ended.attempt, ended.attempts) for point, ended in sweep.done()] == [(first.name, 2, 2)]
    assert [(ended.said, ended.host, ended.status) for _, ended in sweep.failed()] == [("no root", "there", 3)]
    assert not sweep.claim(first) and not sweep.claim(second)
    assert sweep.again() == 1 and sweep.claim(second) and sweep.begin(second) == 2


def test_the_claim_of_a_dead_process_is_free_and_its_attempt_is_set_aside(sweep: SweepFolder) -> None:
    point = sweep.points[0]

    def killed() -> None:
        assert sweep.claim(point) and sweep.begin(point) == 1
        (sweep.place(point) / "attempt-1" / "log.txt").write_text("half")

    in_another_process(killed)
    assert (sweep.place(point) / "claimed").exists() and sweep.state(point) == "pending"
    assert sweep.claim(point) and sweep.state(point) == "claimed" and sweep.begin(point) == 1
    assert (sweep.place(point) / "attempt-1.cut" / "log.txt").read_text() == "half"
    assert os.listdir(sweep.place(point) / "attempt-1") == []


@pytest.mark.parametrize(("attempt", "state"), [(0, "done"), (8, "pending"), (5, "pending")])
def test_a_process_that_was_killed_between_an_attempt_and_the_end_of_the_point(
    attempt: int, state: str, sweep: SweepFolder
) -> None:
    point = sweep.points[0]
    sweep.begin(point)
    record = {"attempt": 1, "status": attempt, "host": "here", "seconds": 1.0}
    (sweep.place(point) / "attempt-1" / "ended.json").write_text(json.dumps(record))
    assert sweep.claim(point) == (state == "pending")
    sweep.release(point)
    assert sweep.state(point) == state


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"started": 1}, False),
        ({"pid": 2**22 + 1}, False),
        ({"boot": "another"}, False),
        ({"boot": "another", "machine": "another"}, True),
        ({"boot": "another", "machine": ""}, False),
        ({"host": "another"}, True),
        ({"namespace": 1, "pid": 2**22 + 1}, True),
        ({"namespace": 1, "boot": "another"}, False),
        ({"host": "another", "boot": "another", "pid": 1}, True),
    ],
)
def test_whose_claims_hold(
    change: dict[str, object], holds: bool, sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = sweep.points[0]
    sweep.begin(point)
    monkeypatch.setattr(folder, "machine_id", lambda: "this one")
    mine = folder.PointClaim.mine("me")
    (sweep.place(point) / "claimed").write_text(json.dumps({**mine.__dict__, **change}))
    assert (sweep.state(point) == "claimed") == holds and sweep.claim(point) != holds


def test_a_claim_is_on_the_disk_before_it_counts(sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(os, "fsync", lambda fd: written.append(os.fstat(fd).st_size))
    assert sweep.claim(sweep.points[0])
    assert written == [(sweep.place(sweep.points[0]) / "claimed").stat().st_size]


def test_a_sweep_of_another_version_is_run_no_further(sweep: SweepFolder) -> None:
    path = sweep.path / "sweep.json"
    path.write_text(path.read_text().replace(f'"version": "{__version__}"', '"version": "0.0.1"'))
    with pytest.raises(ConfigError, match=r"was begun by Railyard '0\.0\.1' and this is .*; go on with that version"):
        SweepFolder.open(sweep.path).check_inputs()
    for number, point in enumerate(sweep.points):
        assert sweep.claim(point) and sweep.begin(point) == 1
        sweep.end_attempt(point, Ended(1, 0 if number else 3, "here", 1.0))
    SweepFolder.open(sweep.path).check_inputs()
    with pytest.raises(ConfigError, match="was begun by Railyard"):
        SweepFolder.open(sweep.path).check_inputs(again=True)


def test_a_folder_below_a_link_is_used_as_any_other(sweep: SweepFolder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sweep.path.parent)
    found = SweepFolder.open(tmp_path / "link" / sweep.path.name)
    point = found.points[0]
    assert found.claim(point) and found.begin(point) == 1 and found.end_attempt(point, Ended(1, 0, "here", 1.0))
    assert sweep.states() == PointCounts(2, 0, 1, 0, 0)


def test_a_sweep_that_could_not_be_read_again_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    monkeypatch.setattr(folder, "_MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="make several sweeps of it"):
        SweepFolder.create(tmp_path / "folder", read_spec(tmp_path / "sweep.yaml"))
    assert not (tmp_path / "folder").exists()


def test_a_folder_in_use_is_refused(sweep: SweepFolder) -> None:
    for held, wanted in ((True, False), (False, True), (False, False)):
        with sweep.locked(shared=held), pytest.raises(ConfigError, match="is in use by another process; wait for its"):
            sweep.locked(shared=wanted).__enter__()
    with sweep.locked(shared=True), sweep.locked(shared=True):
        pass


def test_a_file_that_was_changed_is_not_mixed_with_what_was_measured(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(WORKLOAD)
    (tmp_path / "sweep.yaml").write_text("experiment: rails\nbase: {workload: mine.yaml}\n")
    SweepFolder.create(tmp_path / "folder", read_spec(tmp_path / "sweep.yaml"))
    SweepFolder.open(tmp_path / "folder").check_inputs()
    mine.write_text(mine.read_text() + "\n")
    with pytest.raises(ConfigError, match=f"{mine}: is not as it was when the sweep began"):
        SweepFolder.open(tmp_path / "folder").check_inputs()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_points(path: Path, **more: object) -> None:
    data = json.loads(path.read_text())
    data["points"][0] |= more
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda path: (path / "sweep.json").unlink(), "is not the folder of a sweep: it has no sweep.json"),
        (lambda path: cut(path / "sweep.json"), "begin the sweep again in a new folder"),
        (lambda path: (path / "sweep.json").write_text("[" * 100_000), "begin the sweep again in a new folder"),
        (lambda path: (path / "sweep.json").write_text("{}"), "it is not of format 1"),
        (lambda path: with_points(path / "sweep.json", name="../../etc"), "name: must be 12 digits of a hash, not"),
        (lambda path: with_points(path / "sweep.json", experiment="evil.py:Evil"), "points of another experiment"),
        (lambda path: with_points(path / "sweep.json", foreign=1), "foreign: there is no such key"),
    ],
)
def test_a_folder_that_was_changed_is_one_sentence(
    harm: Callable[[Path], None], sentence: str, sweep: SweepFolder
) -> None:
    harm(sweep.path)
    with pytest.raises(ConfigError, match=sentence):
        SweepFolder.open(sweep.path)


@pytest.mark.parametrize("name", ["claimed", "done.json", "failed.json"])
@pytest.mark.parametrize("content", ["", '{"attempt": 1', "[]", '{"attempt": -1, "status": 0}', "\0" * 10_000_000])
def test_a_record_that_was_changed_is_one_sentence(name: str, content: str, sweep: SweepFolder) -> None:
    point = sweep.points[0]
    sweep.begin(point)
    (sweep.place(point) / name).write_text(content)
    with pytest.raises(ConfigError, match=name):
        sweep.states()
        list(sweep.failed())


def test_a_link_in_place_of_a_point_is_not_followed(sweep: SweepFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (sweep.path / "points").mkdir()
    sweep.place(sweep.points[0]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises((OSError, RailyardError)):
        sweep.claim(sweep.points[0])
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_foreign_file_among_the_points_does_no_harm(sweep: SweepFolder) -> None:
    point = sweep.points[0]
    sweep.begin(point)
    for name in ("notes.txt", "attempt-x", "attempt-1.cut"):
        (sweep.place(point) / name).write_text("mine")
    (sweep.path / "points" / "notes.txt").write_text("mine")
    assert sweep.claim(point) and sweep.begin(point) == 1 and sweep.end_attempt(point, Ended(1, 0, "here", 1.0))
    assert sweep.states() == PointCounts(2, 0, 1, 0, 0)
