"""Findings about a machine, their remedies, and how they are printed."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands import doctor
from commands.doctor import NEWEST_PYTHON, OLDEST_PYTHON, Finding, exit_status, findings, main, print_findings
from railyard.checkout import REGISTRY, TEMPORARY, as_root, railyard_as_root
from railyard.errors import MachineError
from railyard.process.start import child_environment
from railyard.tools import TOOLS
from topos.kernel import namespaces, needs
from topos.kernel.emulation import Emulation

SETUP = ROOT / "scripts" / "setup.sh"


SMALL = "use a machine with at least 2 processors and 2 GiB of free memory, or smaller workloads"


@pytest.mark.parametrize(
    ("finding", "remedy"),
    [
        *(
            (finding, None)
            for finding in (
                *(doctor.python_version(version) for version in (OLDEST_PYTHON, (3, 11), NEWEST_PYTHON)),
                *doctor.all_installed("program", {"mnexec": True, "unshare": True}, str),
                doctor.frameworks({"os-ken": True, "ryu": False}, "install it"),
                doctor.pytorch("2.13.0+cpu", "install it"),
                doctor.datapath("bpf", ""),
                doctor.namespaces(""),
                doctor.calibration("ok", "sudo calibrate"),
                doctor.size(2, 2.0),
                doctor.root(True, "sudo run"),
            )
        ),
        (doctor.python_version((3, 9)), "use Python 3.10 to 3.14"),
        (doctor.python_version((3, 15)), "use Python 3.10 to 3.14"),
        (doctor.pytorch("", "install it"), "install it"),
        (doctor.pytorch("2.1.3", "install it"), "install it"),
        (doctor.datapath("ovs", "bpf: refused"), ""),
        (doctor.needs({"netem": "this kernel has none"})[0], needs.KERNEL),
        (doctor.calibration("none", "sudo calibrate"), "sudo calibrate"),
        (doctor.calibration("other machine", "sudo calibrate"), "sudo calibrate"),
        (doctor.calibration("/c.json is not a calibration", "sudo calibrate"), "sudo calibrate"),
        (doctor.size(1, 6.0), SMALL),
        (doctor.size(4, 1.9), SMALL),
        (doctor.root(False, "sudo scripts/run.sh"), "sudo scripts/run.sh"),
    ],
    ids=str,
)
def test_what_a_run_can_do_without_is_a_warning_and_what_is_in_order_needs_no_remedy(
    finding: Finding, remedy: str | None
) -> None:
    assert (finding.state, finding.remedy) == (("ok", "") if remedy is None else ("warning", remedy))


def test_each_thing_that_is_not_installed_is_named_with_its_remedy() -> None:
    installed = {"mnexec": False, "unshare": True, "iperf3": False}
    assert doctor.all_installed("program", installed, lambda name: f"install {name}") == [
        Finding("program mnexec", "missing", "is not installed", "install mnexec"),
        Finding("program iperf3", "missing", "is not installed", "install iperf3"),
    ]


def test_a_run_needs_a_framework_and_namespaces() -> None:
    framework = doctor.frameworks({"os-ken": False, "ryu": False}, "install it")
    assert framework == Finding("OpenFlow framework", "missing", "neither os-ken nor ryu is installed", "install it")
    namespaces = doctor.namespaces("unshare failed: Operation not permitted")
    assert namespaces.state == "missing" and "Operation not permitted" in namespaces.sentence and namespaces.remedy


@given(
    st.dictionaries(st.sampled_from([*needs.NEEDS]), st.sampled_from(["this kernel has none", "refused"]), min_size=1)
)
def test_each_need_that_is_refused_says_why_and_what_then_does_not_work(refused: dict[str, str]) -> None:
    found = doctor.needs(refused)
    assert [finding.name for finding in found] == [*refused]
    for finding in found:
        state, without, remedy = needs.NEEDS[finding.name]
        assert (finding.state, finding.remedy) == (state, remedy)
        assert finding.sentence == f"{refused[finding.name]}: {without}"
    assert exit_status(found) == (3 if {*refused} - {"NET_RAW", "real-time priority", "htb", "clsact", "netem"} else 0)


def test_the_page_of_the_image_has_every_option_that_the_doctor_advises() -> None:
    page = (ROOT / "docs" / "image.md").read_text(encoding="utf-8")
    options = {option for _, _, remedy in needs.NEEDS.values() for option in re.findall(r"--[a-z-]+ [\w=/]+", remedy)}
    assert len(options) >= 5
    assert [option for option in options if option.replace("--cap-add ", "") not in page] == []


def test_rights_that_are_refused_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container without options: only NET_RAW is there, /proc/sys is read-only, and there is no device."""
    real, status = os.open, tmp_path / "status"
    status.write_text(f"CapEff:\t{1 << 13:016x}\n")

    def refuse(path: str, flags: int) -> int:
        if path.startswith(("/proc/sys/", "/dev/")):
            raise OSError(errno.EROFS if path.startswith("/proc") else errno.ENOENT, "no", path)
        return real(path, flags)

    def refuse_priority(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(needs, "Path", lambda _: status)
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    monkeypatch.setattr(os, "sched_setscheduler", refuse_priority)
    assert {*needs.refused_rights()} == {"SYS_ADMIN", "NET_ADMIN", "real-time priority", "/proc/sys", "/dev/net/tun"}


@pytest.mark.parametrize(
    ("version", "rights", "features", "sentence"),
    [
        ("2.17.9", {}, {}, "Open vSwitch: 2.17.9 is older than 3.0, so its tables cannot be followed; use that of "),
        (
            "3.1.0",
            {"NET_ADMIN": "no"},
            None,
            "NET_ADMIN: no, so no link can be made; in a container: --cap-add NET_ADM",
        ),
        ("3.1.0", {"NET_RAW": "no"}, {"veth": "absent"}, "veth: absent, so no link can be made; use a kernel with it"),
        ("", {}, {"tbf": "absent"}, "tbf: absent, so no link can be given a rate; use a kernel with it, as that of "),
        ("3.0.1", {"real-time priority": "no"}, {}, None),
        ("10.0.0", {}, {}, None),
    ],
)
def test_a_run_is_refused_for_what_it_cannot_do_without_before_anything_is_made(
    version: str,
    rights: dict[str, str],
    features: dict[str, str] | None,
    sentence: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tried(names: Collection[str]) -> dict[str, str]:
        assert features is not None, "without the right there is no link to try on"
        assert {"veth", "tbf"} <= {*names} and "netem" not in names
        return features

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked: list[str] = []
    monkeypatch.setattr(needs, "need_tools", lambda *names: asked.extend(names))
    monkeypatch.setattr(needs, "open_vswitch_version", lambda: version)
    monkeypatch.setattr(needs, "refused_rights", lambda: rights)
    monkeypatch.setattr(needs, "refused_features", tried)
    monkeypatch.setattr(namespaces, "make", lambda _: pytest.fail("a namespace was made"))
    needs.check_needs.cache_clear()
    try:
        if sentence is None:
            needs.check_needs()
            assert asked == [*TOOLS]
            return
        with pytest.raises(MachineError, match=f"^{re.escape(sentence)}"):
            Emulation(datapath="ovs")
    finally:
        needs.check_needs.cache_clear()


def test_folders_that_are_full_or_read_only_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor.folders() == [Finding("disk", "ok", "room for a run")]

    def refuse(place: Path) -> None:
        if place == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device", str(place))
        if place in (REGISTRY, TEMPORARY):
            raise OSError(errno.EROFS, "Read-only file system", str(place))

    monkeypatch.setattr(doctor, "check_room", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    full, fixed, temporary = doctor.folders()
    assert full.state == fixed.state == temporary.state == "missing"
    assert full.sentence.startswith(f"{tmp_path} cannot be written: No space left on device; ")
    assert fixed.sentence == f"{REGISTRY} cannot be used: Read-only file system"
    assert temporary.sentence == f"{TEMPORARY} cannot be used: Read-only file system"


def test_a_kernel_that_was_not_tried_is_not_said_to_permit_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> list[int]:
        raise MachineError("making a network namespace failed")

    monkeypatch.setattr(doctor, "refused_rights", dict)
    monkeypatch.setattr(doctor, "namespaces_error", lambda: "refused")
    monkeypatch.setattr(namespaces, "make", refuse)
    assert doctor._kernel() == [doctor.namespaces("refused")]


def test_every_line_of_the_set_up_s_check_is_a_finding(tmp_path: Path) -> None:
    environ = {**os.environ, "RAILYARD_VENV": str(tmp_path / "none")}
    said = subprocess.run([SETUP, "--check"], env=environ, capture_output=True, text=True, timeout=60).stdout
    found = doctor.set_up(said, "set it up")
    assert len(found) == len(said.splitlines())
    environment = next(finding for finding in found if finding.name == "virtual environment")
    assert (environment.state, environment.remedy) == ("warning", "set it up")
    assert str(tmp_path / "none") in environment.sentence


def test_a_set_up_that_fails_is_quoted() -> None:
    (finding,) = doctor.set_up("bash: not found\n", "set it up")
    assert finding.state == "warning" and "bash: not found" in finding.sentence


def test_the_set_up_accepts_the_same_pythons() -> None:
    ((first, last),) = re.findall(r"^ +3\.1\[(\d)-(\d)\]\) ;;$", SETUP.read_text(), re.MULTILINE)
    assert ((3, 10 + int(first)), (3, 10 + int(last))) == (OLDEST_PYTHON, NEWEST_PYTHON)
    assert f"python_requires = >={'.'.join(map(str, OLDEST_PYTHON))}" in (ROOT / "setup.cfg").read_text()


# ---- the report ------------------------------------------------------------------------------------------------------


WORDS = st.text(st.sampled_from("abcdefgh -/"), min_size=1, max_size=200).map(lambda text: f"x{text}x")
FINDINGS = st.builds(Finding, WORDS, st.sampled_from(["ok", "missing", "warning"]), WORDS, WORDS)


def printed(found: list[Finding], width: int = 80) -> str:
    file = io.StringIO()
    print_findings(found, Console(file=file, width=width))
    return file.getvalue()


@given(st.lists(FINDINGS, max_size=6))
def test_any_findings_fit_eighty_columns_and_give_a_status(found: list[Finding]) -> None:
    text = printed(found)
    assert max(len(line) for line in text.splitlines()) <= 80
    lacking = any(finding.state == "missing" for finding in found)
    assert exit_status(found) == (3 if lacking else 0)
    assert ("not possible" in text.splitlines()[-1]) == lacking


def test_a_finding_is_printed_with_its_remedy() -> None:
    text = printed([Finding("program mnexec", "missing", "is not installed", "sudo apt install mininet")])
    assert [line.strip() for line in text.splitlines()] == [
        "missing  program mnexec: is not installed",
        "sudo apt install mininet",
        "A run is not possible: see what is missing.",
    ]


def test_findings_about_this_machine_are_plain_data(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"Python", "OpenFlow framework", "size", "root"} <= {finding["name"] for finding in found}
    assert set(found[0]) == {"name", "state", "sentence", "remedy"}
    assert status == (3 if any(finding["state"] == "missing" for finding in found) else 0)


def test_without_a_checkout_remedies_name_pip_apt_and_the_installed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SETUP", Path("/nowhere/setup.sh"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "requirements", lambda: {"numpy": False})
    monkeypatch.setattr(doctor, "programs", lambda: {"mnexec": False})
    monkeypatch.setattr(doctor, "calibration_state", lambda: "none")
    found = {finding.name: finding.remedy for finding in findings()}
    assert found["Python package numpy"] == "install railyard again with pip"
    assert found["program mnexec"] == "sudo apt install mininet"
    assert found["calibration"] == f"sudo {sys.prefix}/bin/railyard calibrate"
    assert found["root"] == f"sudo {sys.prefix}/bin/railyard run rails"
    assert "network namespaces" not in found, "only root can find out"
    assert not any("scripts/" in remedy for remedy in found.values())


@pytest.mark.parametrize(
    ("user", "caller", "sudo", "before"),
    [
        (1000, "", "", "sudo "),
        (0, "", "/usr/bin/sudo", ""),
        (0, "1000", "/usr/bin/sudo", "sudo "),
        (0, "1000", "", ""),  # root of a container, whose results are a user's
    ],
)
def test_a_command_as_root_has_sudo_only_for_who_needs_it(
    monkeypatch: pytest.MonkeyPatch, user: int, caller: str, sudo: str, before: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: sudo or None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("SUDO_UID", caller)
    monkeypatch.setenv("SUDO_GID", caller)
    assert as_root("scripts/setup.sh") == f"{before}scripts/setup.sh"
    assert railyard_as_root("calibrate") == f"{before}{sys.prefix}/bin/railyard calibrate"


def test_another_system_lacks_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert exit_status(findings()) == 3


def test_it_needs_rich_alone(tmp_path: Path) -> None:
    """Where numpy, pydantic and the other packages are missing, it says so."""
    code = """
import sys
for name in ("numpy", "pydantic", "yaml", "networkx", "mininet", "pyroute2", "matplotlib"):
    sys.modules[name] = None
from commands.doctor import findings
print([finding.name for finding in findings()])
"""
    child = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert "OpenFlow framework" in child.stdout, child.stderr
