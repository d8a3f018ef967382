"""A hook of mkdocs for the site: its pages are the documents where they lie, and a gallery made from kept numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown import Extension, Markdown
from markdown.blockprocessors import build_block_parser
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from commands.claims.claim import judge, read_catalog  # noqa: E402
from commands.claims.kept import read_kept  # noqa: E402
from commands.claims.pages import cells, origin_sentence  # noqa: E402

PAGES = ("*.md", "docs/*.md", "labs/**/*.md")
GALLERY = "docs/gallery.md"
LINK = re.compile(r"\]\(([^)\s#]+)|^\[[^\]]+\]: ([^\s#]+)", re.MULTILINE)
PICTURE = re.compile(r"!\[([^\]]+)\]\(figures/([^)]+)\)")


class GitHubLists(Extension):  # type: ignore[misc]  # the library has no types
    """Lists within lists, and code in them, are indented by two spaces or three, as on GitHub, and not by four."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.tab_length = 2
        md.parser = build_block_parser(md)


def on_config(config: MkDocsConfig) -> None:
    config.markdown_extensions.insert(0, GitHubLists())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages by their paths in the checkout, so that links between them hold, and every file that they link to."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    links = {page.parent / (a or b) for page in pages for a, b in LINK.findall(page.read_text("utf-8"))}
    linked = {path for path in (link.resolve() for link in links) if path.is_file() and path.is_relative_to(ROOT)}
    names = sorted(path.relative_to(ROOT).as_posix() for path in pages | linked)
    shown = [File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names]
    theirs = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theirs, *shown, File.generated(config, GALLERY, content="\n".join(_gallery()))])


def _gallery() -> Iterator[str]:
    """The lines of the gallery: the figures of each run in the order of the claims, its command and its claims."""
    catalog = read_catalog(DOCS)
    kept, unreadable = read_kept(DOCS / "measured", list(catalog.runs))
    if unreadable:
        raise PluginError(unreadable[0])
    texts = {path.name: path.read_text("utf-8") for path in sorted(DOCS.glob("*.md"))}
    pictures = {file: (alt, page) for page, text in texts.items() for alt, file in PICTURE.findall(text)}
    yield from ("# Gallery", "", "What the runs of the [claims](claims.md) drew when they were measured last.")
    for name in dict.fromkeys(claim.run for claim in catalog.claims.values()):
        figures = catalog.runs[name].figures
        for figure, file in figures.items():
            alt, page = pictures[file]
            title = texts[page].partition("\n")[0].removeprefix("# ")
            yield from ("", f"## {alt}", "", f"[![{alt}](figures/{file})](figures/{file})", "")
            yield f"`figures/{figure}.png` of the results folder; explained in [{title}]({page})."
        if figures:
            yield from ("", f"Drawn by {origin_sentence(kept[name])}", "")
            for claim in (claim for claim in catalog.claims.values() if claim.run == name):
                here, compared, tolerance, verdict = cells(judge(claim, kept[name].rows))
                yield f"- {claim.says}: {here}; compared with {compared}, {tolerance}: {verdict}."
