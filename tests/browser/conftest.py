"""One browser for all tests of the page, and one served folder of a finished run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from watch.browser import Browser, missing
from watch.rail_results import rail_results
from watch.watching import Served, watching


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of all tests; a test that wants it is skipped where there is none."""
    if sentence := missing():
        pytest.skip(sentence)
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser at 1280 x 720, light; afterwards it shows no page."""
    chromium.size(1280, 720)
    yield chromium
    chromium.driver.get("about:blank")


@pytest.fixture(scope="session")
def finished(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of five points with known times; the on-demand ones are not faithful."""
    return rail_results(tmp_path_factory.mktemp("results") / "finished")


@pytest.fixture(scope="session")
def page(finished: Path) -> Iterator[Served]:
    with watching(finished) as served:
        yield served
