from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands.doctor import probes, report
from commands.doctor.checks import Finding
from commands.doctor.report import exit_status, findings, main, print_findings
from railyard.checkout import as_root, railyard_as_root
from railyard.child import child_environment

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
    monkeypatch.setattr(report, "SETUP", Path("/nowhere/setup.sh"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(probes, "requirements", lambda: {"numpy": False})
    monkeypatch.setattr(probes, "programs", lambda: {"mnexec": False})
    monkeypatch.setattr(probes, "calibration", lambda: "none")
    found = {finding.name: finding.remedy for finding in findings()}
    assert found["Python package numpy"] == "install railyard again with pip"
    assert found["program mnexec"] == "sudo apt install mininet"
    assert found["calibration"] == f"sudo {sys.prefix}/bin/railyard calibrate"
    assert found["root"] == f"sudo {sys.prefix}/bin/railyard run rails"
    assert "network namespaces" not in found, "only root can find out"
    assert not any("scripts/" in remedy for remedy in found.values())


@pytest.mark.parametrize(("user", "caller", "before"), [(1000, "", "sudo "), (0, "", ""), (0, "1000", "sudo ")])
def test_a_command_as_root_has_sudo_only_for_who_needs_it(
    monkeypatch: pytest.MonkeyPatch, user: int, caller: str, before: str
) -> None:
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
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pydantic", "yaml", "networkx", "mininet", "pyroute2", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from commands.doctor.report import findings
print([finding.name for finding in findings()])
"""
    child = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert "OpenFlow framework" in child.stdout, child.stderr
