"""Takes the pictures of the page for docs/watch.md, each of a view as a reader sees it.

    scripts/_venv.py tests/browser/screenshots.py RUN FAILOVER [--out docs/figures]

Not a test. RUN is a results folder, and FAILOVER one of a run with a failure. Each may have the moment that is shown
after it, as in a link of the page: results/rails#point=2&t=3.1
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

from watch.browser import Browser, missing  # noqa: E402
from watch.watching import RAILYARD, watching  # noqa: E402

WIDE, PHONE = (1280, 720), (390, 844)
SETTLE_S = 1.0
"""After this nothing on the page changes any more: figures are there and charts are drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "failover"):
        parser.add_argument(name, help=f"results folder {name.upper()}, with #MOMENT if that is to be another one")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/figures", help="folder of the pictures")
    options = parser.parse_args()
    if sentence := missing():
        parser.error(sentence)
    (run, moment), (failover, failed) = map(split, (options.run, options.failover))
    with tempfile.TemporaryDirectory() as place, Browser(Path(place, "profile")) as browser:
        camera = Camera(browser, options.out)
        with watching(run) as served:
            camera.take("watch-run", served.url + moment)
            camera.take("watch-run-dark", served.url + moment, dark=True)
            camera.take("watch-phone", served.url + moment, size=PHONE)
        with watching(failover) as served:
            camera.take("watch-failover", served.url + failed)
        report = Path(place, "report.html")
        subprocess.run([*RAILYARD, "report", str(run), "--out", str(report)], check=True, cwd=ROOT)
        camera.take("watch-report", report.as_uri() + moment, whole=True)


def split(given: str) -> tuple[Path, str]:
    folder, sign, moment = given.partition("#")
    return Path(folder).resolve(), sign + moment


class Camera:
    """Takes pictures of pages into a folder."""

    def __init__(self, browser: Browser, out: Path) -> None:
        self._browser = browser
        self._out = out

    def take(
        self, name: str, address: str, *, size: tuple[int, int] = WIDE, dark: bool = False, whole: bool = False
    ) -> None:
        """Save what the page at ``address`` shows first in a window of ``size``; ``whole``: all of it."""
        from PIL import Image

        self._browser.size(*size, dark=dark)
        self._browser.open(address)
        time.sleep(SETTLE_S)
        if whole:
            tall = self._browser.js("document.documentElement.scrollHeight")
            self._browser.size(size[0], min(int(tall), 4000), dark=dark)
            time.sleep(SETTLE_S)
        picture = Image.open(io.BytesIO(self._browser.driver.get_screenshot_as_png())).convert("RGB")
        path = self._out / f"{name}.png"
        picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
