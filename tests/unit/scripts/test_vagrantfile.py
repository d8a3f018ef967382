from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

VAGRANTFILE = ROOT / "vagrant" / "Vagrantfile"


def test_ruby_reads_it() -> None:
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    checked = subprocess.run(["ruby", "-c", str(VAGRANTFILE)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_vagrant_validates_it(tmp_path: Path) -> None:
    if not shutil.which("vagrant"):
        pytest.skip("vagrant is not installed")
    shutil.copy(VAGRANTFILE, tmp_path)
    environ = {**os.environ, "VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_CHECKPOINT_DISABLE": "1"}
    # Without VirtualBox or libvirt on this machine only their own sections cannot be validated.
    options: tuple[list[str], ...] = ([], ["--ignore-provider"])
    tries = [
        subprocess.run(["vagrant", "validate", *more], cwd=tmp_path, env=environ, capture_output=True, text=True)
        for more in options
    ]
    assert any("validated successfully" in tried.stdout for tried in tries), tries[-1].stderr


def test_provisioning_is_the_set_up_script_and_nothing_else() -> None:
    provisions = [line.strip() for line in VAGRANTFILE.read_text().splitlines() if ".provision" in line]
    assert provisions == ['config.vm.provision "shell", name: "setup", inline: "/railyard/scripts/setup.sh"']
