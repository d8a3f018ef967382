"""The documents name what exists, their links lead somewhere, and their lines are short."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest
from checkout import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CHANGELOG = ROOT / "CHANGELOG.md"
"""It names modules as they were called in earlier versions, so only its lines and links are checked."""
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))

FOLDERS = (
    *("scripts", "commands", "experiments", "measure", "controllers"),
    *("workloads", "topos", "railyard", "tests", "docs"),
)
LONGEST_LINE = 120
SUFFIXES = (".py", ".md", ".sh", ".yaml", ".yml", ".json", ".png", ".svg", ".txt", ".toml", ".cfg")
WRITTEN_BY_A_RUN = {"figures/", "captures/"}
"""Folders in a results folder, which no checkout has."""

BACKTICKS = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?<![\w./-])((?:" + "|".join(FOLDERS) + r")/[\w./-]*)")
MODULE = re.compile(r"(?<![\w./-])((?:" + "|".join(FOLDERS[1:-2]) + r")(?:\.\w+)+)(?!\w*/)")
ENTRY_POINT_GROUPS = {"railyard.experiments", "railyard.policies"}
"""They look like modules: installed packages offer policies by them."""
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def exists(path: str, page: Path) -> bool:
    return (ROOT / path).exists() or (page.parent / path).exists()


def is_module(dotted: str) -> bool:
    """Whether ``dotted`` is a module, or a name in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


def links(page: Path) -> list[str]:
    """The links of a page to files and headings."""
    targets = [inline or reference for inline, reference in LINK.findall(page.read_text(encoding="utf-8"))]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def linked(page: Path, target: str) -> tuple[Path, str]:
    """The file, and the heading in it, that a link leads to."""
    path, _, anchor = target.partition("#")
    return (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda file: file.name)
def test_every_path_and_module_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {path.rstrip(".-") for path in PATH.findall(text)}
    for quoted in BACKTICKS.findall(text):
        path = quoted.split(":")[0]
        if "/" in path and path.endswith(("/", *SUFFIXES)) and not re.search(r"[\s<>*{}|]|^/|://", path):
            named.add(path)
    assert not sorted(path for path in named - WRITTEN_BY_A_RUN if not exists(path, page))
    modules = {module for module in MODULE.findall(text) if not module.endswith(SUFFIXES)}
    assert not sorted(module for module in modules - ENTRY_POINT_GROUPS if not is_module(module))


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=lambda file: file.name)
def test_links_lead_somewhere_and_lines_are_short(page: Path) -> None:
    broken = []
    for target in links(page):
        file, anchor = linked(page, target)
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [f"{number}: {len(line)}" for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = set(), {ROOT / "README.md"}
    while left:
        page = left.pop()
        reached.add(page)
        files = {linked(page, target)[0] for target in links(page)}
        left |= {file for file in files if file.suffix == ".md" and file.is_file()} - reached
    assert set(PAGES) <= reached
