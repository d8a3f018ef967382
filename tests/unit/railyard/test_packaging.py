from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checkout import CASES, ROOT

from railyard import __version__

ROOMS = ("railyard", "topos", "controllers", "workloads", "measure", "experiments")
MODULES = {"pyyaml": "yaml", "os-ken": "os_ken"}
NOT_FROM_PIP = {"mininet"}


def setup_cfg() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    return parsed


def requirements(text: str) -> Iterator[tuple[str, str]]:
    """Name and version of each requirement, whatever its marker."""
    for line in text.splitlines():
        wanted = line.split("#")[0].split(";")[0].strip()
        if wanted:
            name, _, version = wanted.partition("==")
            yield name.strip(), version.strip()


def declared() -> dict[str, set[str]]:
    parsed = setup_cfg()
    text = parsed["options"]["install_requires"] + "\n" + parsed["options.extras_require"]["test"]
    found: dict[str, set[str]] = {}
    for name, version in requirements(text):
        found.setdefault(name.lower(), set()).add(version)
    return found


def test_every_requirement_is_pinned_to_one_version() -> None:
    loose = [name for name, versions in declared().items() if not all(re.fullmatch(r"[\w.]+", v) for v in versions)]
    assert loose == []


def test_the_constraints_hold_the_same_versions() -> None:
    held: dict[str, set[str]] = {}
    for name, version in requirements((ROOT / "scripts" / "constraints.txt").read_text()):
        held.setdefault(name.lower(), set()).add(version)
    assert {name: held.get(name) for name in declared()} == declared()


def test_the_build_uses_the_pinned_setuptools() -> None:
    (version,) = declared()["setuptools"]
    assert f'"setuptools=={version}"' in (ROOT / "pyproject.toml").read_text()


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
    known = {MODULES.get(name, name) for name in declared()} | NOT_FROM_PIP | set(ROOMS) | set(sys.stdlib_module_names)
    files = list((ROOT / room).rglob("*.py"))
    siblings = {file.stem for file in files} if room == "scripts" else set()
    stray = {f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file) - known - siblings}
    assert stray == set()


@pytest.mark.parametrize("room", ROOMS)
def test_every_folder_with_modules_is_a_package(room: str) -> None:
    folders = {file.parent for file in (ROOT / room).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_licence_is_the_one_that_the_package_names() -> None:
    metadata = setup_cfg()["metadata"]
    assert (metadata["license"], metadata["license_files"]) == ("Apache-2.0", "LICENSE")
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "Copyright 2026 The Railyard authors" in text and "[yyyy]" not in text


def test_files_of_other_projects_have_a_licence_and_an_origin_beside_them() -> None:
    folders = [folder for folder in CASES.iterdir() if folder.is_dir()]
    assert folders and [folder.name for folder in folders if not (folder / "LICENSE").is_file()] == []
    rows = re.findall(r"^\| `([^`]+)` \|", (CASES / "README.md").read_text(), re.MULTILINE)
    listed = [file for row in rows for file in CASES.glob(row)]
    held = [file for file in CASES.rglob("*") if file.is_file() and file.name not in ("LICENSE", "README.md")]
    assert sorted(listed) == sorted(held)


def test_the_citation_agrees_with_the_package_and_the_readme() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    said = yaml.safe_load(text)
    assert said["cff-version"] == "1.2.0"
    assert (said["title"], said["type"], said["version"]) == ("Railyard", "software", __version__)
    assert said["license"] == setup_cfg()["metadata"]["license"]
    assert said["authors"] == [{"name": "The Railyard authors"}]
    assert said["message"] and said["abstract"] and said["keywords"]
    assert all(paper["type"] and paper["title"] and paper["authors"] for paper in said["references"])
    number = r"\d{4}\.\d{5}"
    assert set(re.findall(rf"arXiv:({number})", text)) == set(re.findall(number, (ROOT / "README.md").read_text()))
