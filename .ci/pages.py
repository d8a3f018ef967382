"""The hook of mkdocs for the site: pages are the documents where they lie, and a gallery made from kept numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from commands.claims.claim import judge, read_catalog  # noqa: E402
from commands.claims.kept import read_kept  # noqa: E402
from commands.claims.pages import cells, markdown_table, origin_sentence  # noqa: E402

PAGES = ("*.md", "docs/*.md", "labs/*/*.md")
GALLERY = "docs/gallery.md"
LINK = re.compile(r"\]\(([^)\s#]+)|^\[[^\]]+\]: ([^\s#]+)", re.MULTILINE)
PICTURE = re.compile(r"!\[([^\]]+)\]\(figures/([^)]+)\)")


def on_config(config: MkDocsConfig) -> None:
    """Put the files in place of the patterns of the navigation."""
    config.nav = list(_expanded(config.nav))


def _expanded(entries: Any) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, dict):
            yield {title: list(_expanded(below)) for title, below in entry.items()}
        elif entry == GALLERY:
            yield entry
        else:
            yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(entry))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages by their paths in the checkout, so that links between them hold, and every file that they link to."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    linked = {(page.parent / (a or b)).resolve() for page in pages for a, b in LINK.findall(page.read_text("utf-8"))}
    shown = sorted(path.relative_to(ROOT).as_posix() for path in pages | {path for path in linked if path.is_file()})
    place = (config.site_dir, config.use_directory_urls)
    theirs = [file for file in files if file.src_dir != config.docs_dir]
    gallery = File.generated(config, GALLERY, content="\n".join(_gallery()))
    return Files([*theirs, *(File(path, str(ROOT), *place) for path in shown), gallery])


def _gallery() -> Iterator[str]:
    """The lines of the gallery: the figures of each run of the catalog, its origin, its claims and their verdicts."""
    catalog = read_catalog()
    kept, _ = read_kept(ROOT / "docs" / "measured", list(catalog.runs))
    pages = {path: path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    shown = {file: (alt, path.name) for path, text in pages.items() for alt, file in PICTURE.findall(text)}
    yield from ("# Gallery", "")
    for run in catalog.runs.values():
        for name, file in run.figures.items():
            alt, page = shown[file]
            yield from (f"## {alt}", "", f"[![{alt}](figures/{file})](figures/{file})", "")
            yield from (f"`{run.command}` draws it as `figures/{name}.png` of its results folder", "")
        if run.figures:
            judged = [judge(each, kept[run.name].rows) for each in catalog.claims.values() if each.run == run.name]
            yield from (origin_sentence(kept[run.name]), "")
            yield from markdown_table(("claim",), [[each.claim.says, *cells(each)] for each in judged])
            yield ""
