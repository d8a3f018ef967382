import hashlib
import re
from pathlib import Path

import pytest

import commands.page

PAGE = Path(commands.page.__file__).parent / "static"
VENDOR = PAGE / "vendor"
RECORD = (VENDOR / "VENDORED.txt").read_text(encoding="utf-8")
SUMS = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})\s+(\S+)", RECORD, re.MULTILINE)}
OURS = sorted(path for path in PAGE.rglob("*") if path.is_file() and VENDOR not in path.parents)
NAMESPACE = "http://www.w3.org/2000/svg"
"""A name that looks like an address; nothing is loaded from it."""


def names(path: Path) -> str:
    return path.relative_to(PAGE).as_posix()


def test_the_record_names_all_vendored_files_and_their_source() -> None:
    assert set(SUMS) == {path.name for path in VENDOR.iterdir()} - {"VENDORED.txt"}
    assert re.search(r"^version: +1\.6\.32$", RECORD, re.MULTILINE)
    assert re.search(r"^source: +npm package uplot$", RECORD, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(SUMS))
def test_a_vendored_file_is_the_one_of_its_package(name: str) -> None:
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == SUMS[name]


def test_the_licence_and_the_version_are_those_of_the_record() -> None:
    assert "Permission is hereby granted, free of charge" in (VENDOR / "LICENSE-uPlot").read_text(encoding="utf-8")
    assert "(v1.6.32)" in (VENDOR / "uPlot.iife.min.js").read_text(encoding="utf-8")[:300]


@pytest.mark.parametrize("path", OURS, ids=names)
def test_no_file_of_the_page_names_another_origin(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(NAMESPACE, "")
    assert not re.findall(r"(?:https?:|wss?:|ftp:)?//[a-z0-9-]+\.[a-z]", text, re.IGNORECASE)
    assert "@import" not in text


def test_the_vendored_files_load_nothing() -> None:
    script = (VENDOR / "uPlot.iife.min.js").read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s)]+", script) == ["https://github.com/leeoniya/uPlot"]  # in its first comment
    for word in ("fetch(", "XMLHttpRequest", "importScripts", "sendBeacon", "WebSocket", "eval(", "innerHTML="):
        assert word not in script
    assert "url(" not in (VENDOR / "uPlot.min.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix == ".js"], ids=names)
def test_no_script_makes_markup_or_code_of_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    made = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(\s*[\"'`]"
    assert not re.findall(made, text)
    assert "</script" not in text and "<!--" not in text


def test_the_page_loads_each_of_its_scripts_and_styles_once() -> None:
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script src|link rel="stylesheet" href)="([^"]+)"', index)
    assert len(set(loaded)) == len(loaded)
    assert all((PAGE / name).is_file() for name in loaded)
    own_of_reports = {"report.css", "report.js"}
    there = {names(path) for path in PAGE.rglob("*") if path.suffix in (".js", ".css")}
    assert there == set(loaded) | own_of_reports
    assert "style=" not in index and not re.search(r"\son[a-z]+=", index)
