from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

from commands.doctor import checks
from commands.doctor.checks import NEWEST_PYTHON, OLDEST_PYTHON, Finding

SETUP = ROOT / "scripts" / "setup.sh"


@pytest.mark.parametrize(
    "finding",
    [
        *(checks.python_version(version) for version in (OLDEST_PYTHON, (3, 11), NEWEST_PYTHON)),
        *checks.all_installed("program", {"mnexec": True, "unshare": True}, str),
        checks.frameworks({"os-ken": True, "ryu": False}, "install it"),
        checks.datapath("bpf", ""),
        checks.namespaces(""),
        checks.calibration("ok", "sudo calibrate"),
        checks.size(2, 2.0),
        checks.root(True, "sudo run"),
    ],
    ids=str,
)
def test_what_is_in_order_needs_no_remedy(finding: Finding) -> None:
    assert (finding.state, finding.remedy) == ("ok", "")


@pytest.mark.parametrize(
    ("finding", "remedy"),
    [
        (checks.python_version((3, 9)), "use Python 3.10 to 3.13"),
        (checks.python_version((3, 15)), "use Python 3.10 to 3.13"),
        (checks.datapath("ovs", "bpf: refused"), ""),
        (checks.calibration("none", "sudo calibrate"), "sudo calibrate"),
        (checks.calibration("other machine", "sudo calibrate"), "sudo calibrate"),
        (checks.calibration("/c.json is not a calibration", "sudo calibrate"), "sudo calibrate"),
        (
            checks.size(1, 6.0),
            "use a machine with at least 2 processors and 2 GiB of free memory, or smaller workloads",
        ),
        (
            checks.size(4, 1.9),
            "use a machine with at least 2 processors and 2 GiB of free memory, or smaller workloads",
        ),
        (checks.root(False, "sudo scripts/run.sh"), "sudo scripts/run.sh"),
    ],
    ids=str,
)
def test_what_a_run_can_do_without_is_a_warning(finding: Finding, remedy: str) -> None:
    assert (finding.state, finding.remedy) == ("warning", remedy)


def test_each_thing_that_is_not_installed_is_named_with_its_remedy() -> None:
    installed = {"mnexec": False, "unshare": True, "iperf3": False}
    assert checks.all_installed("program", installed, lambda name: f"install {name}") == [
        Finding("program mnexec", "missing", "is not installed", "install mnexec"),
        Finding("program iperf3", "missing", "is not installed", "install iperf3"),
    ]


def test_nothing_is_said_about_packages_where_none_are_known() -> None:
    assert checks.all_installed("Python package", {}, str) == []


def test_a_run_needs_a_framework_and_namespaces() -> None:
    framework = checks.frameworks({"os-ken": False, "ryu": False}, "install it")
    assert framework == Finding("OpenFlow framework", "missing", "neither os-ken nor ryu is installed", "install it")
    namespaces = checks.namespaces("unshare failed: Operation not permitted")
    assert namespaces.state == "missing" and "Operation not permitted" in namespaces.sentence and namespaces.remedy


def test_every_line_of_the_set_up_s_check_is_a_finding(tmp_path: Path) -> None:
    environ = {**os.environ, "RAILYARD_VENV": str(tmp_path / "none")}
    said = subprocess.run([SETUP, "--check"], env=environ, capture_output=True, text=True, timeout=60).stdout
    found = checks.set_up(said, "set it up")
    assert len(found) == len(said.splitlines())
    environment = next(finding for finding in found if finding.name == "virtual environment")
    assert (environment.state, environment.remedy) == ("warning", "set it up")
    assert str(tmp_path / "none") in environment.sentence


def test_a_set_up_that_fails_is_quoted() -> None:
    (finding,) = checks.set_up("bash: not found\n", "set it up")
    assert finding.state == "warning" and "bash: not found" in finding.sentence


def test_the_set_up_accepts_the_same_pythons() -> None:
    ((first, last),) = re.findall(r"^ +3\.1\[(\d)-(\d)\]\) ;;$", SETUP.read_text(), re.MULTILINE)
    assert ((3, 10 + int(first)), (3, 10 + int(last))) == (OLDEST_PYTHON, NEWEST_PYTHON)
    assert f"python_requires = >={'.'.join(map(str, OLDEST_PYTHON))}" in (ROOT / "setup.cfg").read_text()
