from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from checkout import CASES, ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from controllers.openflow import app
from railyard import __version__

ROOMS = ("railyard", "topos", "controllers", "workloads", "measure", "experiments", "commands")
MODULES = {"pyyaml": "yaml", "os-ken": "os_ken", "protobuf": "google"}
FROM_THE_DISTRIBUTION = {"mininet"}
"""Requirements that a set-up takes from the distribution, in the version that it has."""


def setup_cfg() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    return parsed


def requirements(text: str) -> list[Requirement]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def declared() -> dict[str, SpecifierSet]:
    """Name of each direct dependency, those of extras included, and the range of its versions."""
    parsed = setup_cfg()
    texts = [parsed["options"]["install_requires"], *parsed["options.extras_require"].values()]
    return {wanted.name.lower(): wanted.specifier for text in texts for wanted in requirements(text)}


def pinned() -> list[Requirement]:
    return requirements((ROOT / "scripts" / "constraints.txt").read_text())


def test_every_requirement_is_a_range_from_a_tested_version_to_the_next_major_one() -> None:
    operators = {name: sorted(part.operator for part in wanted) for name, wanted in declared().items()}
    assert {name for name, found in operators.items() if found != ["<", ">="]} == set()


def test_every_constraint_is_one_version() -> None:
    assert [str(pin) for pin in pinned() if [part.operator for part in pin.specifier] != ["=="]] == []


def test_the_constraints_pin_each_requirement_within_its_range() -> None:
    pins: dict[str, list[str]] = {}
    for pin in [*pinned(), *requirements((ROOT / "scripts" / "torch.txt").read_text())]:
        pins.setdefault(pin.name.lower(), []).extend(part.version for part in pin.specifier)
    wanted = {name: versions for name, versions in declared().items() if name not in FROM_THE_DISTRIBUTION}
    assert {name for name in wanted if name not in pins} == set()
    assert {name for name, versions in wanted.items() if not all(pin in versions for pin in pins[name])} == set()


def test_a_set_up_installs_each_pinned_version_and_no_other_and_knows_its_hashes() -> None:
    """scripts/requirements.txt is made from the constraints: a change of one without the other is found here."""
    text = (ROOT / "scripts" / "requirements.txt").read_text().replace("\\\n", "")
    lines = [line.split("--hash=sha256:") for line in text.splitlines() if not line.startswith("#")]
    assert all(hashes and all(re.fullmatch(r"[0-9a-f]{64}", one.strip()) for one in hashes) for _, *hashes in lines)

    def versions(pins: Iterable[Requirement]) -> set[tuple[str, str]]:
        return {(re.sub(r"[-_.]+", "-", pin.name.lower()), str(pin.specifier)) for pin in pins}

    assert versions(Requirement(first.strip()) for first, *_ in lines) == versions(pinned())


def test_the_pinned_setuptools_builds_ryu_and_the_project() -> None:
    (pin,) = (pin for pin in pinned() if pin.name == "setuptools")
    (version,) = (part.version for part in pin.specifier)
    (needed,) = re.findall(r'^requires = \["setuptools([^"]+)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version in SpecifierSet(needed) & SpecifierSet("<67")


def test_the_framework_that_is_an_extra_is_no_requirement() -> None:
    required = {wanted.name for wanted in requirements(setup_cfg()["options"]["install_requires"])}
    assert app.DEFAULT in required
    assert not required & (set(app.PACKAGES) - {app.DEFAULT})


def test_one_command_and_the_managers_of_the_frameworks_are_installed() -> None:
    lines = setup_cfg()["options.entry_points"]["console_scripts"].strip().splitlines()
    assert [line.split(" = ")[0] for line in lines if not line.startswith("#")] == [
        "railyard",
        "osken-manager",
        "ryu-manager",
    ]


def imported(file: Path) -> set[str]:
    """Top-level names of all modules a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", [*ROOMS, "scripts"])
def test_every_import_is_of_a_declared_package(room: str) -> None:
    known = {MODULES.get(name, name) for name in declared()} | set(ROOMS) | set(sys.stdlib_module_names)
    files = list((ROOT / room).rglob("*.py"))
    siblings = {file.stem for file in files} if room == "scripts" else set()
    stray = {f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file) - known - siblings}
    assert stray == set()


def test_every_folder_with_modules_is_a_package_of_the_wheel() -> None:
    folders = {file.parent for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    dotted = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
    listed = {line.removeprefix("railyard.tree.") for line in setup_cfg()["options"]["packages"].split()}
    assert listed - {"docs", "labs"} == dotted


def test_files_of_other_projects_have_a_licence_and_an_origin_beside_them() -> None:
    folders = [folder for folder in CASES.iterdir() if folder.is_dir()]
    assert folders and [folder.name for folder in folders if not (folder / "LICENSE").is_file()] == []
    rows = re.findall(r"^\| `([^`]+)` \|", (CASES / "README.md").read_text(), re.MULTILINE)
    listed = [file for row in rows for file in CASES.glob(row)]
    held = [file for file in CASES.rglob("*") if file.is_file() and file.name not in ("LICENSE", "README.md")]
    assert sorted(listed) == sorted(held)


def test_the_changelog_begins_with_this_version() -> None:
    (first, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == __version__


def test_the_citation_agrees_with_the_package_and_the_readme() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    said = yaml.safe_load(text)
    assert (said["version"], said["license"]) == (__version__, setup_cfg()["metadata"]["license"])
    number = r"\d{4}\.\d{5}"
    assert set(re.findall(rf"arXiv:({number})", text)) == set(re.findall(number, (ROOT / "README.md").read_text()))
