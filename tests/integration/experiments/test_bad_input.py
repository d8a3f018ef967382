"""What stands in the way of a run on the real machine: modes that cannot run a workload, a disk without inodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from script_runs import finish, rows, start

from commands.main import main
from measure.results.results import Results
from workloads.collectives.catalog import schedule
from workloads.formats.msccl_writer import write_msccl

pytestmark = [pytest.mark.root, pytest.mark.beside]


def test_a_run_of_the_default_modes_measures_those_that_can_run_the_workload(tmp_path: Path) -> None:
    file, out = tmp_path / "direct.xml", tmp_path / "out"
    file.write_text(write_msccl(schedule("all_gather", 4, "direct")))
    options = ("--workload", str(file), "--size", "64M", "--repeats", "1", "--attempts", "1", "--no-figures")
    status, output, errors = finish(start("rail_reconfiguration.py", *options, "--out", str(out)))
    assert status in (0, 8), errors
    assert [row["mode"] for row in rows(out)] == ["electrical"]
    assert "Left out: mode one-shot, as group all has no circuit between rank " in errors
    assert "Left out: modes on-demand and provisioned, as " in " ".join(output.split())
    manifest = Results.open(out).manifest()
    assert (manifest["planned"], manifest["ended"], len(manifest["omitted"])) == (1, "complete", 2)


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with room for a folder and its manifest, and for no file beside that."""
    place = tmp_path / "few"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M,nr_inodes=4", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_without_inodes_is_not_said_to_lack_room(few_inodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fabric-cost", "--out", str(few_inodes / "out")]) == 3
    said = capsys.readouterr().err
    assert "cannot be written: No space left on device; " in said and " inodes are " in said and "MB" not in said
