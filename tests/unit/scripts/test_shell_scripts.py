from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT

from experiments.registry import ENTRIES

SHELL = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run", ROOT / "vagrant" / "cluster.sh"]
VM = ROOT / "tests" / "vm"
PLACES = ROOT / "tests" / "places.sh"
SHELL += [VM / "run.sh", VM / "build.sh", VM / "vagrant.sh", PLACES]
PYTHON = sorted((ROOT / "scripts").glob("*.py"))
NOBODY = 65534


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def as_nobody() -> dict[str, object]:
    """Options that start a process without root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_bash_reads_it_and_shellcheck_finds_nothing(script: Path) -> None:
    assert run("bash", "-n", script).stderr == ""
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    assert run("shellcheck", script).stdout == ""


@pytest.mark.parametrize("script", [*SHELL, *PYTHON], ids=lambda path: path.name)
def test_it_can_be_executed_as_it_stands(script: Path) -> None:
    assert os.access(script, os.X_OK)
    first = "#!/usr/bin/env bash\n#!/bin/bash\n#!/usr/bin/python3 -EB\n"
    assert script.read_text().partition("\n")[0] + "\n" in first


def test_setup_refuses_an_unknown_option_in_one_sentence() -> None:
    refused = run(ROOT / "scripts" / "setup.sh", "--chekc")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--chekc" in refused.stderr


def test_check_names_a_missing_environment_and_changes_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "RAILYARD_VENV": str(tmp_path / "none")}
    checked = run(ROOT / "scripts" / "setup.sh", "--check", env=environ)
    assert checked.returncode == 1
    assert str(tmp_path / "none") in checked.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timed
def test_a_second_set_up_takes_a_fraction_of_a_second() -> None:
    setup = ROOT / "scripts" / "setup.sh"
    if run(setup, "--check").returncode != 0:
        pytest.skip("this checkout is not set up")
    took = []
    for _ in range(3):
        start = time.monotonic()
        assert run(setup, "--brief", env={**os.environ, "RAILYARD_SYSTEM_OVS": "no"}).stdout == ""
        took.append(time.monotonic() - start)
    assert min(took) <= 0.2


@pytest.fixture
def world_readable(tmp_path: Path) -> Path:
    """The shell scripts where anybody may read them (the checkout itself may lie in root's home)."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & 0o001 and os.geteuid() == 0:
            if folder in (Path("/"), Path("/tmp")):
                pytest.skip(f"{folder} is closed to others")
            folder.chmod(folder.stat().st_mode | 0o055)
    for name in ("scripts", "tests/vm"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "tests/places.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_run_without_root_gives_the_right_command(world_readable: Path) -> None:
    refused = run(world_readable / "scripts" / "run.sh", "--quick", **as_nobody())
    assert refused.returncode == 3
    assert refused.stderr == (
        "run.sh: network namespaces and Open vSwitch need root; run: sudo scripts/run.sh --quick\n"
    )


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if not entry.root])
def test_run_without_root_goes_on_with_what_needs_none(name: str, world_readable: Path) -> None:
    stub = world_readable / "scripts" / "railyard.py"
    stub.write_text('#!/bin/sh\necho "$@"\n')
    assert run(world_readable / "scripts" / "run.sh", name, "--quick", **as_nobody()).stdout == f"run {name} --quick\n"


@pytest.mark.parametrize("script", ["vm/run.sh", "vm/vagrant.sh", "places.sh"])
@pytest.mark.parametrize("option", ["--debian", "--work"])
def test_an_option_without_its_value_is_refused_before_anything_is_made(
    script: str, option: str, world_readable: Path
) -> None:
    refused = run(world_readable / "tests" / script, option, **as_nobody())
    assert refused.returncode == 2 and "needs a value" in refused.stderr


def test_setup_without_root_says_what_needs_it(world_readable: Path) -> None:
    environ = {**os.environ, "RAILYARD_VENV": "/proc/railyard/venv"}
    refused = run(world_readable / "scripts" / "setup.sh", env=environ, **as_nobody())
    assert refused.returncode == 3
    assert "sudo scripts/setup.sh" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_folder_that_cannot_hold_links_gets_its_environment_elsewhere(world_readable: Path) -> None:
    """As in a folder shared with a virtual machine."""
    stub = world_readable / "stub" / "ln"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    environ = {key: value for key, value in os.environ.items() if key != "RAILYARD_VENV"}
    setup = world_readable / "scripts" / "setup.sh"
    assert f"{world_readable}/.venv" in run(setup, "--check", env=environ).stdout
    checked = run(setup, "--check", env={**environ, "PATH": f"{stub.parent}:{environ['PATH']}"})
    assert "/var/lib/railyard/venv" in checked.stdout


@pytest.mark.parametrize("reached", ["by a link", "by name", "by a link without a record"])
def test_the_environment_of_another_checkout_is_left_alone(tmp_path: Path, world_readable: Path, reached: str) -> None:
    theirs = tmp_path / "other" / ".venv"
    theirs.mkdir(parents=True)
    (theirs / "pyvenv.cfg").touch()
    if reached != "by a link without a record":
        (theirs / "railyard.checkout").write_text(f"{theirs.parent}\n")
    environ = {key: value for key, value in os.environ.items() if key != "RAILYARD_VENV"}
    if reached == "by name":
        environ["RAILYARD_VENV"] = str(theirs)
    else:
        (world_readable / ".venv").symlink_to(theirs)
    before = sorted(theirs.iterdir())
    refused = run(world_readable / "scripts" / "setup.sh", env={**environ, "RAILYARD_SYSTEM_OVS": "no"})
    assert refused.returncode == 3
    assert str(theirs.parent) in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert "remove the link" in refused.stderr
    assert sorted(theirs.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose caches they are")
def test_root_leaves_no_compiled_modules_in_the_checkout_of_another_user(tmp_path: Path) -> None:
    checkout, venv, caches = tmp_path / "checkout", tmp_path / "checkout" / ".venv", tmp_path / "caches"
    checkout.mkdir()
    (checkout / "a_module.py").touch()
    os.chown(checkout, NOBODY, NOBODY)
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "__editable__.a_package-1.pth").write_text("import __editable___a_package_1_finder\n")  # as pip makes it
    (site / "__editable___a_package_1_finder.py").touch()
    (site / "railyard_caches.pth").touch()  # of version 0.5.0
    functions = (ROOT / "scripts" / "setup.sh").read_text().removesuffix('main "$@"\n')
    (tmp_path / "caches.sh").write_text(
        f"{functions}\nroot={checkout}\nvenv={venv}\ncaches={caches}\nkeep_caches_out\n"
    )
    for owner, compiled in ((NOBODY, caches), (0, checkout)):
        os.chown(checkout, owner, owner)
        assert run("bash", tmp_path / "caches.sh").stderr == ""
        shutil.rmtree(site / "__pycache__", ignore_errors=True)  # of the set-up itself, which gives it to the owner
        imported = run(venv / "bin" / "python", "-c", "import a_module", cwd=checkout, env={"PATH": os.environ["PATH"]})
        assert imported.returncode == 0, imported.stderr
        for module in ("a_module", "__editable___a_package_1_finder"):
            assert list(compiled.rglob(f"{module}.*.pyc")), (module, owner)
        assert bool(list(checkout.rglob("__pycache__"))) == (owner == 0)


def test_the_virtual_machine_names_all_missing_packages_before_it_builds_anything(tmp_path: Path) -> None:
    functions = (VM / "run.sh").read_text().removesuffix('main "$@"\n')
    script, empty = tmp_path / "vm" / "tests" / "run.sh", tmp_path / "empty"
    script.parent.mkdir(parents=True)
    empty.mkdir()
    shutil.copy(VM / "shared.sh", script.parent)
    script.write_text(f'{functions}\nPATH={empty}\noptions "$@"\nmissing_packages')
    for arguments, emulators in (
        ([], ["qemu-system-x86"]),
        (["--arch", "arm64"], ["qemu-system-arm", "qemu-user-static"]),
    ):
        named = run("bash", script, *arguments).stdout.split()
        assert named == ["debootstrap", "e2fsprogs", "git", *emulators]


TABLE = """1 processors, script as init
begun  cli               0 s 11111111 6.1.0-50-amd64 2026-11-29
FAILED cli             100 s 11111111 6.1.0-50-amd64 2026-11-29
       | FAILED: a text that is not there
begun  topos             0 s 11111111 6.1.0-50-amd64 2026-11-29
1 processors, script as init
begun  cli               0 s 22222222 6.1.0-50-amd64 2026-11-29
ok     cli             100 s 22222222 6.1.0-50-amd64 2026-11-29
"""
LOG = """22222222
tests/integration/topos/test_reach.py::test_one[a PASSED one] PASSED [ 10%]
tests/integration/topos/test_reach.py::test_two FAILED [ 20%]
"""


def results(folder: Path, machine: str) -> Path:
    """A folder of results of tests/vm/run.sh."""
    folder.mkdir()
    for name, text in {"machine": machine, "table": TABLE, "cli.log": "22222222\n", "topos.log": LOG}.items():
        (folder / name).write_text(text)
    return folder


def test_results_of_virtual_machines_are_one_table_with_what_was_not_run(tmp_path: Path) -> None:
    said = run(VM / "run.sh", "--table", results(tmp_path / "a", "12 script ready\n"))
    header, _, *rows, _, commits = said.stdout.splitlines()
    assert header == "| check | what it shows | Debian 12, kernel 6.1.0-50 | Debian 13 |"
    cells = {row.split(" | ")[0]: row.split(" | ")[2:] for row in rows}
    assert cells.pop("| `cli`") == ["ok", "not run |"]
    assert cells.pop("| `topos`") == ["cut short (1; 1 failed)", "not run |"]
    assert commits == "Commits: 22222222, 11111111."
    assert len(cells) > 10 and all(row == ["not run", "not run |"] for row in cells.values())


def test_the_documented_table_has_a_row_for_every_check() -> None:
    listed = {line.split()[1] for line in run(VM / "run.sh", "--list").stdout.splitlines()}
    page = (ROOT / "docs" / "install.md").read_text().partition("| check | what it shows |")[2]
    assert {row.split("`")[1].removesuffix(" --bare") for row in page.splitlines() if row.startswith("| `")} == listed


def test_the_documented_places_are_those_that_can_be_tried() -> None:
    listed = [line.split()[0] for line in run(PLACES, "--list").stdout.splitlines()]
    page = (ROOT / "docs" / "install.md").read_text().partition("| place |")[2].partition("\n\n")[0]
    assert [row.split("`")[1] for row in page.splitlines() if row.startswith("| `")] == listed


def test_a_resumed_virtual_machine_leaves_out_what_is_right_at_this_commit(tmp_path: Path) -> None:
    folder = results(tmp_path / "a", "12 script ready\n")
    functions = (VM / "run.sh").read_text().removesuffix('main "$@"\n')
    (tmp_path / "vm" / "tests").mkdir(parents=True)
    script = tmp_path / "vm" / "tests" / "run.sh"
    shutil.copy(VM / "shared.sh", script.parent)
    call = 'git() { tar -c -C "$root" tests/vm; }\nroot=$2 only=(cli topos)\n'
    call += "for commit in $3; do job $1; cat $1/job/names $1/topos.log; done"
    script.write_text(f"{functions}\n{call}")
    passed = [line for line in LOG.splitlines() if "FAILED" not in line]
    expected = ["topos", *passed, "cli", "topos", "11111111"]
    assert run("bash", script, folder, ROOT, "22222222 11111111").stdout.splitlines() == expected
    for name in ("guest.sh", "common.sh", "checks/topos.sh"):
        assert (folder / "job" / name).read_bytes() == (VM / name).read_bytes(), "those of the commit"
