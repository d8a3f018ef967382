"""A real browser for tests: Debian's chromium without a window, and what a test reads back from the page in it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root; the only pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
"""Options of chromium; no name is resolved, so that nothing but this machine can be reached."""
WAIT_S = 10.0


def missing() -> str:
    """The sentence that says what is missing for tests in a browser; empty if nothing is."""
    found = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    found += ["the Python package selenium"] if importlib.util.find_spec("selenium") is None else []
    return f"needs a browser, and {' and '.join(found)} cannot be found: sudo scripts/test.sh" if found else ""


class Browser:
    """One chromium with a ``profile`` of its own, which ends with the context."""

    def __init__(self, profile: Path) -> None:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver: Any = Chrome(options, Service(shutil.which("chromedriver")))
        try:
            self.driver.set_script_timeout(WAIT_S)
            self.size(1280, 720)
        except BaseException:
            self.driver.quit()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.driver.quit()

    # ---- the page ------------------------------------------------------------------------------------------------

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the page in pixels, and the colours that the system asks for."""
        device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, address: str) -> None:
        """Open ``address`` anew, and wait until the page has drawn it."""
        self.driver.get("about:blank")
        self.log()
        self.driver.get_log("browser")
        self.driver.get(address)
        self.until("window.Railyard && Railyard.debug && Railyard.debug.firstPaint !== null")

    def js(self, script: str, *arguments: Any) -> Any:
        """The value of the expression ``script`` on the page, in which ``given`` are the arguments."""
        return self.driver.execute_script(f"const given = arguments; return ({script});", *arguments)

    def until(self, condition: str, *arguments: Any, within_s: float = WAIT_S) -> Any:
        """Wait until an expression holds on the page, and return its value."""
        end = time.monotonic() + within_s
        while True:
            value = self.js(condition, *arguments)
            if value:
                return value
            if time.monotonic() > end:
                failures = self.js("window.Railyard && Railyard.debug && Railyard.debug.failures")
                raise AssertionError(f"not so within {within_s:g} s: {condition}; errors of the page: {failures}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.js("(document.querySelector(given[0]) || {innerText: ''}).innerText", selector))

    def click(self, selector: str) -> None:
        """Click an element as a person does: it must be in view."""
        from selenium.webdriver.common.by import By

        element = self.driver.find_element(By.CSS_SELECTOR, selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def keys(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def log(self) -> list[dict[str, Any]]:
        """Messages of the browser's protocol since the last call."""
        return [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]

    def asked(self) -> list[str]:
        """Addresses that the page asked for since the last call, data inside of it left out."""
        sent = [message["params"] for message in self.log() if message["method"] == "Network.requestWillBeSent"]
        return [url for url in (str(each["request"]["url"]) for each in sent) if not url.startswith("data:")]

    # ---- what is drawn -------------------------------------------------------------------------------------------

    def circuits(self) -> set[tuple[str, int, int]]:
        read = "p => [p.dataset.switch, +p.dataset.a, +p.dataset.b]"
        found = self.js(f"[...document.querySelectorAll('path.circuit')].map({read})")
        return {(switch, min(a, b), max(a, b)) for switch, a, b in found}

    def boxes(self, lane: str) -> dict[str, list[tuple[float, float]]]:
        """The boxes of a lane by kind as they are drawn: left and right edge, in pixels of the page."""
        found = self.js(
            """[...document.querySelectorAll(`#tl-bars g[data-lane="${given[0]}"] path`)].map(p => [p.dataset.kind,
            p.getAttribute('d'), p.getScreenCTM().e])""",
            lane,
        )
        return {
            kind: [(float(a) + left, float(b) + left) for a, b in re.findall(r"M([\d.]+) 0H([\d.]+)V", path)]
            for kind, path, left in found
            if path
        }

    def pixels(self, window: Sequence[float]) -> tuple[float, float]:
        """Left edge of the time line in pixels of the page, and pixels per second of a ``window`` (from, to)."""
        left, shown = self.js(
            "[document.querySelector('#tl-body').getBoundingClientRect().left, Railyard.debug.window]"
        )
        return float(left + shown["left"]), float(shown["width"]) / (window[1] - window[0])
