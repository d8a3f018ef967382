from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from commands.sweep.workers.machine_check import MachineReport, check_machines, inspected
from railyard import __version__
from railyard.validation import from_plain

HERE = MachineReport("here", "0.5.0", "1eeb9c7", "3.11.2", "root", calibrated="2026-11-01", files={"/w.yaml": "ab"})
OTHER = replace(HERE, host="b", python="3.11.9")


def test_machines_that_are_alike_are_taken_without_a_word() -> None:
    assert check_machines(HERE, [HERE, OTHER], measured=True) == []


def test_the_model_needs_neither_root_nor_programs_nor_a_calibration() -> None:
    poor = replace(OTHER, root="", lacking=("mnexec",), calibrated="")
    assert check_machines(HERE, [poor], measured=False) == []


def test_differences_that_may_explain_others_are_said() -> None:
    other = replace(OTHER, commit="", calibrated="")
    assert check_machines(HERE, [other], measured=True) == [
        "machine b has commit unknown of Railyard 0.5.0, and this one 1eeb9c7",
        "b was not calibrated: what it carries is a guess, and railyard calibrate measures it",
    ]


def test_this_machine_is_described_and_its_report_can_be_sent(tmp_path: Path) -> None:
    there, missing = tmp_path / "w.yaml", tmp_path / "no.yaml"
    there.write_text("name: w\n")
    found = inspected([str(there), str(missing)], "sudo")
    assert (found.railyard, found.root, found.files[str(missing)]) == (__version__, "sudo", "")
    assert len(found.files[str(there)]) == 64
    assert {"cpu", "cores", "kernel"} <= found.facts.keys()
    assert from_plain(MachineReport, asdict(found), "a report") == found
