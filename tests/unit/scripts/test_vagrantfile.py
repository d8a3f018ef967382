from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

VAGRANTFILE = ROOT / "vagrant" / "Vagrantfile"
RECORDER = """
class Recorder
  def method_missing(name, *arguments, **options)
    puts [name, *arguments, options].inspect
    yield Recorder.new, Recorder.new if block_given?
    Recorder.new
  end
end
Vagrant = Recorder.new
load ARGV[0]
"""
"""Prints what a Vagrantfile asks of Vagrant, one call a line."""


def environment(machines: str | None, **variables: str) -> dict[str, str]:
    own = {"MACHINES", "CPUS", "MEMORY", "BOX"}
    others = {name: value for name, value in os.environ.items() if name not in own} | variables
    return others if machines is None else {**others, "MACHINES": machines}


def recorded(folder: Path, machines: str | None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The calls of a copy of the Vagrantfile in ``folder``."""
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    shutil.copy(VAGRANTFILE, folder)
    command = ["ruby", "-e", RECORDER, str(folder / "Vagrantfile")]
    return subprocess.run(command, env=environment(machines, **variables), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("machines", [None, "1", "3"])
def test_vagrant_validates_it(tmp_path: Path, machines: str | None) -> None:
    if not shutil.which("vagrant"):
        pytest.skip("vagrant is not installed")
    shutil.copytree(VAGRANTFILE.parent, tmp_path, dirs_exist_ok=True)
    environ = {**environment(machines), "VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_CHECKPOINT_DISABLE": "1"}
    # Without VirtualBox or libvirt on this machine only their own sections cannot be validated.
    options: tuple[list[str], ...] = ([], ["--ignore-provider"])
    tries = [
        subprocess.run(["vagrant", "validate", *more], cwd=tmp_path, env=environ, capture_output=True, text=True)
        for more in options
    ]
    assert any("validated successfully" in tried.stdout for tried in tries), tries[-1].stderr


def test_one_machine_is_what_it_is_without_the_variable(tmp_path: Path) -> None:
    one, unset = recorded(tmp_path, "1"), recorded(tmp_path, None)
    assert one.returncode == 0, one.stderr
    assert one.stdout == unset.stdout
    assert '[:hostname=, "railyard", {}]' in one.stdout
    assert ":define" not in one.stdout and ":network" not in one.stdout
    assert not (tmp_path / ".vagrant").exists()


def test_box_processors_and_memory_of_each_provider_are_chosen_by_variables(tmp_path: Path) -> None:
    lines = recorded(tmp_path, None, BOX="own/box", CPUS="2", MEMORY="3072").stdout.splitlines()
    for call in '[:box=, "own/box", {}]', "[:cpus=, 2, {}]", "[:memory=, 3072, {}]":
        assert lines.count(call) == 2, call


def test_each_of_several_machines_has_a_name_and_an_address_of_its_own(tmp_path: Path) -> None:
    found = recorded(tmp_path, "8")
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    for what, pattern in {
        "define": r'\[:define, "(railyard[1-8])"',
        "name": r'\[:name=, "(railyard[1-8])"',
        "hostname": r'\[:hostname=, "(railyard[1-8])"',
        "address": r'\[:network, "private_network", .*:ip=>"(192\.168\.77\.\d+)"',
    }.items():
        assert len({match[1] for line in lines if (match := re.match(pattern, line))}) == 8, what
    addresses = ", ".join(f'"192.168.77.{number}"' for number in range(11, 19))
    assert f":args=>[8, {addresses}]" in lines[-1]


def test_the_key_of_the_machines_is_made_once_and_private(tmp_path: Path) -> None:
    assert recorded(tmp_path, "2").returncode == 0
    key = tmp_path / ".vagrant" / "railyard_key"
    first = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert recorded(tmp_path, "2").returncode == 0
    assert key.read_bytes() == first
    assert subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True).stdout.startswith(b"ssh-rsa ")


@pytest.mark.parametrize("machines", ["0", "9", "12", "-1", "3 ", "three", ""])
def test_another_number_of_machines_is_refused(tmp_path: Path, machines: str) -> None:
    found = recorded(tmp_path, machines)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f'MACHINES must be a whole number from 1 to 8, not "{machines}"\n'


def test_memory_with_a_unit_is_refused(tmp_path: Path) -> None:
    refused = recorded(tmp_path, None, MEMORY="6G")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == 'MEMORY must be a whole number from 1024 to 1048576, not "6G"\n'
