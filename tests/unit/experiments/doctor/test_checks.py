from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import ROOT

from experiments.doctor.checks import NEWEST_PYTHON, OLDEST_PYTHON, Finding, Machine, check, set_up_findings
from experiments.doctor.report import exit_status
from railyard.tools import TOOLS

SETUP = ROOT / "scripts" / "setup.sh"
IN_ORDER = "setup: ok: packages: all 14 packages of the distribution are installed\n"

HEALTHY = Machine(
    system="Linux",
    python=(3, 11),
    set_up=IN_ORDER,
    requirements={"numpy": True, "os-ken": True},
    frameworks={"os-ken": True, "ryu": False},
    tools=tuple(TOOLS),
    kernel_datapath=True,
    namespaces_error="",
    chroot_error="",
    calibration="ok",
    root=True,
    command="/opt/venv/bin/railyard",
    cores=4,
    memory_gib=6.0,
)


def by_name(machine: Machine) -> dict[str, Finding]:
    found = check(machine)
    names = [finding.name for finding in found]
    assert len(set(names)) == len(names)
    return {finding.name: finding for finding in found}


def test_nothing_is_lacking_on_a_machine_that_has_everything() -> None:
    found = check(HEALTHY)
    assert {finding.state for finding in found} == {"ok"}
    assert not any(finding.remedy for finding in found)
    assert exit_status(found) == 0


@pytest.mark.parametrize(
    ("change", "name", "remedy"),
    [
        ({"system": "Darwin"}, "system", "use a Linux virtual machine"),
        ({"requirements": {"numpy": False, "os-ken": True}}, "Python package numpy", "sudo scripts/setup.sh"),
        ({"frameworks": {"os-ken": False, "ryu": False}}, "OpenFlow framework", "sudo scripts/setup.sh"),
        ({"tools": set(TOOLS) - {"mnexec"}}, "program mnexec", "sudo scripts/setup.sh"),
        ({"namespaces_error": "unshare failed: Operation not permitted"}, "network namespaces", "virtual machine"),
        ({"chroot_error": "the root directory here is a chroot; use a VM"}, "root directory", ""),
        (
            {"set_up": "setup: missing: virtual environment: /v does not exist\n"},
            "virtual environment",
            "scripts/setup",
        ),
    ],
)
def test_a_run_is_not_possible_without(change: dict[str, object], name: str, remedy: str) -> None:
    machine = replace(HEALTHY, **change)  # type: ignore[arg-type]
    finding = by_name(machine)[name]
    assert finding.state == "missing"
    assert remedy in finding.remedy
    assert exit_status(check(machine)) == 3


@pytest.mark.parametrize(
    ("change", "name", "remedy"),
    [
        ({"python": (3, 15)}, "Python", "use Python 3.10 to 3.13"),
        ({"kernel_datapath": False}, "kernel module openvswitch", ""),
        ({"calibration": "none"}, "calibration", "sudo scripts/calibrate.py"),
        ({"calibration": "other machine"}, "calibration", "sudo scripts/calibrate.py"),
        ({"calibration": "/c.json is not a calibration"}, "calibration", "sudo scripts/calibrate.py"),
        ({"cores": 1}, "size", "at least 2 processors"),
        ({"memory_gib": 0.5}, "size", "2 GiB"),
        ({"root": False}, "root", "sudo scripts/run.sh"),
    ],
)
def test_a_run_is_possible_but_something_is_said(change: dict[str, object], name: str, remedy: str) -> None:
    machine = replace(HEALTHY, **change)  # type: ignore[arg-type]
    finding = by_name(machine)[name]
    assert finding.state == "warning"
    assert remedy in finding.remedy
    assert exit_status(check(machine)) == 0


def test_without_a_checkout_the_remedies_name_pip_apt_and_the_installed_command() -> None:
    lacking = replace(HEALTHY, set_up=None, requirements={"numpy": False}, tools=(), calibration="none", root=False)
    found = by_name(lacking)
    assert found["Python package numpy"].remedy == "install railyard again with pip"
    assert found["program mnexec"].remedy == "sudo apt install mininet"
    assert found["calibration"].remedy == "sudo /opt/venv/bin/railyard calibrate"
    assert found["root"].remedy == "sudo /opt/venv/bin/railyard run rails"
    assert not any("scripts/" in finding.remedy for finding in found.values())


def test_what_only_root_can_find_out_is_left_out_for_others() -> None:
    found = by_name(replace(HEALTHY, root=False, namespaces_error=None, chroot_error=None))
    assert "network namespaces" not in found and "root directory" not in found


def test_every_line_of_the_set_up_s_check_is_a_finding(tmp_path: Path) -> None:
    environ = {**os.environ, "RAILYARD_VENV": str(tmp_path / "none")}
    said = subprocess.run([SETUP, "--check"], env=environ, capture_output=True, text=True, timeout=60).stdout
    found = list(set_up_findings(said))
    assert len(found) == len(said.splitlines())
    environment = next(finding for finding in found if finding.name == "virtual environment")
    assert (environment.state, environment.remedy) == ("missing", "sudo scripts/setup.sh")
    assert str(tmp_path / "none") in environment.sentence


def test_a_set_up_that_fails_is_quoted() -> None:
    (finding,) = set_up_findings("bash: not found\n")
    assert finding.state == "warning" and "bash: not found" in finding.sentence


def test_the_set_up_accepts_the_same_pythons() -> None:
    (first, last) = re.findall(r"^        3\.1\[(\d)-(\d)\]\) ;;$", SETUP.read_text(), re.MULTILINE)[0]
    assert ((3, 10 + int(first)), (3, 10 + int(last))) == (OLDEST_PYTHON, NEWEST_PYTHON)
    assert f"python_requires = >={'.'.join(map(str, OLDEST_PYTHON))}" in (ROOT / "setup.cfg").read_text()
