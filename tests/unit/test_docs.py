"""The documents name what exists, their links lead somewhere, and their lines are short."""

from __future__ import annotations

import ast
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


def name(file: Path) -> str:
    """How a test is labelled."""
    return str(file.relative_to(ROOT))


def exists(path: str, page: Path) -> bool:
    return (ROOT / path).exists() or (page.parent / path).exists()


def defines(file: Path, attribute: str) -> bool:
    """Whether the module in ``file`` has ``attribute`` at its top level."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(node, "name", None) == attribute or attribute in {getattr(t, "id", None) for t in targets}:
            return True
    return False


def is_module(dotted: str) -> bool:
    """Whether ``dotted`` is a module, or a module and one or two names in it."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:end])
        if base.is_dir():
            return end == len(parts)
        file = base.with_suffix(".py")
        if file.is_file():
            return end == len(parts) or defines(file, parts[end])
    return False


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name)
def test_every_path_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {path.rstrip(".-") for path in PATH.findall(text)}
    for quoted in BACKTICKS.findall(text):
        path = quoted.split(":")[0]
        if "/" in path and path.endswith(("/", *SUFFIXES)) and not re.search(r"[\s<>*{}|]|^/|://", path):
            named.add(path)
    missing = sorted(path for path in named - WRITTEN_BY_A_RUN if not exists(path, page))
    assert not missing


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name)
def test_every_module_that_a_document_names_exists(page: Path) -> None:
    named = {found for found in MODULE.findall(page.read_text(encoding="utf-8")) if not found.endswith(SUFFIXES)}
    assert not sorted(found for found in named - ENTRY_POINT_GROUPS if not is_module(found))


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for inline, reference in LINK.findall(page.read_text(encoding="utf-8")):
        target = inline or reference
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=name)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [f"{number}: {len(line)}" for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        for inline, reference in LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / (inline or reference).partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_file():
                left.append(file)
    assert set(PAGES) <= reached
