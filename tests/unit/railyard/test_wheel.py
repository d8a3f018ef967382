"""The wheel has one top-level name, and works beside folders of a user's that are called as ours are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from checkout import ROOT

from railyard import __version__

OURS = ("commands", "controllers", "experiments", "measure", "topos", "workloads")
SHADOW = "raise SystemExit('a module of the working directory was imported')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built from its sdist, and that from a copy, as building leaves files."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("railyard", "labs", "docs", *OURS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", str(source)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = (source / "dist").glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed, and what it requires is that of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # by site, which also reads the files .pth there: setuptools has distutils from Python 3.12 on by one of them
    (site / "requirements.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / "python"


@pytest.fixture
def working_directory(tmp_path: Path) -> Path:
    for name in (*OURS, "yaml", "numpy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(SHADOW)
    return tmp_path


def test_a_wheel_has_one_top_level_name_and_all_that_the_packages_hold(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == __version__
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"railyard"}
    held = [file.relative_to(ROOT) for room in OURS for file in (ROOT / room).rglob("*") if file.is_file()]
    assert [file for file in held if "__pycache__" not in file.parts and f"railyard/tree/{file}" not in names] == []


def test_it_predicts_beside_a_user_s_folders_of_the_same_names(python: Path, working_directory: Path) -> None:
    for module in ("shutil", "tempfile", "typing"):  # the user's own Python would take these; the command does not
        (working_directory / f"{module}.py").write_text(SHADOW)
    rows_file = working_directory / "rows.json"
    options = ["--workload", "smoke", "--delays", "0,200", "--json", str(rows_file)]
    done = subprocess.run(
        [python, "-m", "railyard", "predict", "rails", *options], cwd=working_directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(rows_file.read_text())
    assert {row["mode"] for row in rows} >= {"electrical", "on-demand", "provisioned"}


def test_its_python_api_predicts_there_too(python: Path, working_directory: Path) -> None:
    code = "import railyard as ry; print(ry.predict('rails', workload='smoke', delays_ms=[0])[0].workload)"
    done = subprocess.run([python, "-c", code], cwd=working_directory, capture_output=True, text=True)
    assert done.stdout == "smoke\n", done.stderr


def test_a_user_s_own_folders_are_the_user_s_after_import_railyard(python: Path, working_directory: Path) -> None:
    done = subprocess.run(
        [python, "-c", "import railyard; import topos"], cwd=working_directory, capture_output=True, text=True
    )
    assert done.stderr.strip() == "a module of the working directory was imported"


def test_the_numbers_of_the_claims_are_in_it(python: Path, tmp_path: Path) -> None:
    done = subprocess.run([python, "-m", "railyard", "claims"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "opus-model" in done.stdout
