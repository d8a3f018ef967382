"""The site builds without a warning, asks for nothing but its own files, and shows what GitHub shows of a document."""

from __future__ import annotations

import re
import resource
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from checkout import ROOT
from markdown_it import MarkdownIt
from site_build import build_site

from commands.claims.claim import read_catalog

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
PAGES += (ROOT / "labs").glob("**/*.md")
LONGEST_S = 30
"""Seconds of processor time that a build may take."""
COMPARED = {"h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "td", "pre", "code", "em", "strong", "img"}
OUTSIDE = re.compile(r"(https?:)?//")


class Elements(HTMLParser):
    """The elements of a page with their attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, {key: value or "" for key, value in attrs}))

    def counted(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.all if tag in COMPARED)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; its build printed no warning and was quick."""
    folder = tmp_path_factory.mktemp("site")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    built = build_site(folder)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < LONGEST_S
    return folder


def page_of(site: Path, document: Path) -> Path:
    """The page of a document in the site."""
    name = document.relative_to(ROOT).with_suffix(".html")
    return site / (name.with_name("index.html") if document.stem == "README" else name)


def test_every_page_has_the_lists_tables_and_code_that_github_shows(site: Path) -> None:
    differing = {}
    for document in PAGES:
        page = page_of(site, document).read_text("utf-8")
        shown = Elements(page[page.index("<article") : page.index("</article>")]).counted()
        github = MarkdownIt("commonmark", {"html": True}).enable("table").render(document.read_text("utf-8"))
        meant = Elements(github).counted()
        if shown != meant:
            differing[document.relative_to(ROOT).as_posix()] = {"missing": meant - shown, "too many": shown - meant}
    assert differing == {}, "is an empty line missing before a list?"


def test_no_page_asks_for_a_file_of_another_host_and_every_picture_has_a_text(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        for tag, attributes in Elements(page.read_text("utf-8")).all:
            asked = [attributes.get(key, "") for key in ("src", "srcset", "data") + (("href",) if tag != "a" else ())]
            assert not [address for address in asked if OUTSIDE.match(address)], page
            assert tag != "img" or attributes.get("alt"), page
    styles = "".join(style.read_text("utf-8") for style in site.rglob("*.css"))
    assert not re.search(r"(url\(|@import\s+)[\"']?(https?:)?//", styles)


def test_the_gallery_shows_every_figure_with_its_command_and_its_claims(site: Path) -> None:
    catalog = read_catalog()
    text = (site / "docs/gallery.html").read_text("utf-8")
    figures = [file for run in catalog.runs.values() for file in run.figures.values()]
    assert sorted(re.findall(r'<img alt="[^"]+" src="figures/([^"]+)"', text)) == sorted(figures)
    for run in catalog.runs.values():
        if run.figures:
            assert f"Drawn by <code>{run.command}</code>" in text
    shown = [claim for claim in catalog.claims.values() if catalog.runs[claim.run].figures]
    assert len(re.findall(r": (<strong>)?(holds|does not hold|not faithful)(</strong>)?\.</li>", text)) == len(shown)


def test_a_wrong_link_and_a_page_outside_of_the_navigation_fail_the_build(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for folder in (".ci", "docs", "labs"):
        shutil.copytree(ROOT / folder, checkout / folder)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, checkout)
    words = checkout / "docs/words.md"
    with words.open("a", encoding="utf-8") as text:
        text.write("\n[a](nowhere.md) [b](rails.md#no-such) ![c](figures/none.png)\n")
    (checkout / "docs/forgotten.md").write_text("# Forgotten\n", "utf-8")
    built = build_site(tmp_path / "site", checkout)
    assert built.returncode == 1
    for wrong in ("nowhere.md", "no-such", "figures/none.png", "docs/forgotten.md"):
        assert wrong in built.stderr
