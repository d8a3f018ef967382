"""The site in a real browser: as files and from a plain server it asks for its own files alone, and is searched."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from site_build import build_site
from watch.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.beside]

WIDE, PHONE = (1280, 900), (390, 844)
RESULTS = "document.querySelectorAll('.md-search-result__item').length"


class Quiet(SimpleHTTPRequestHandler):
    """A plain server of files that says nothing about requests."""

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build_site(folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(params=["file", "http"])
def address(site: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the site, as files and from a server."""
    if request.param == "file":
        yield f"{site.as_uri()}/"
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def show(browser: Browser, address: str) -> None:
    """Open a page anew; what was asked for and logged before is forgotten."""
    browser.driver.get("about:blank")
    browser.log()
    browser.driver.get_log("browser")
    browser.driver.get(address)
    browser.until("document.readyState === 'complete'")


def test_a_search_finds_the_dark_time_and_nothing_is_asked_of_others(browser: Browser, address: str) -> None:
    show(browser, f"{address}index.html")
    browser.click(".md-search__input")
    browser.keys(*"dark time")
    browser.until(f"{RESULTS} > 3")
    found = browser.js("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)")
    assert any("/docs/" in link for link in found)
    marked = browser.text(".md-search-result__list").lower()
    assert "dark" in marked and "time" in marked
    for link in found[:1]:
        browser.driver.get(link)
        browser.until("document.querySelector('article mark, article h1')")
    asked = browser.asked()
    assert len(asked) > 5
    assert not [url for url in asked if not url.startswith((address, "blob:", "about:"))]
    assert [entry for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("page", ["index", "docs/gallery", "docs/results", "docs/claims", "docs/architecture"])
def test_tables_code_and_pictures_fit(browser: Browser, site: Path, page: str, size: tuple[int, int]) -> None:
    browser.size(*size)
    show(browser, (site / f"{page}.html").as_uri())
    assert browser.js("document.documentElement.scrollWidth") <= size[0]
    pictures = browser.js(
        "[...document.querySelectorAll('article img')].map(i => [i.naturalWidth, i.getBoundingClientRect().right])"
    )
    assert all(natural > 0 and right <= size[0] for natural, right in pictures)
    cut = """[...document.querySelectorAll('article table')].filter(table => {
        const scroller = table.closest('.md-typeset__scrollwrap');
        return !scroller || scroller.getBoundingClientRect().right > innerWidth + 1
            || !['auto', 'scroll'].includes(getComputedStyle(scroller).overflowX); }).length"""
    assert browser.js(cut) == 0


def test_colours_follow_the_system(browser: Browser, site: Path) -> None:
    grounds = set()
    for dark in (False, True):
        browser.size(*WIDE, dark=dark)
        show(browser, (site / "index.html").as_uri())
        grounds.add(browser.js("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
