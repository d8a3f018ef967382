"""A reader of a results folder for tests of the page's server: it returns what it is asked, and changes on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commands.page.run_view import RunView


class FakeView(RunView):
    """Has points 0 and 1, of which the last one is at moment ``moment``."""

    live = True
    latest: int | None = 1

    def __init__(self, folder: Path = Path("/nowhere")) -> None:
        self.folder = folder
        self.revision = 0
        self.moment = 2.5
        self.parts: set[str] = set()
        self.new: list[str] = []
        self.error: Exception | None = None
        self.refreshed = 0
        self.closed = False
        self.big = 0

    def refresh(self) -> bool:
        self.refreshed += 1
        if self.error is not None:
            raise self.error
        self.parts, changed = set(self.new), bool(self.new)
        self.new = []
        self.revision += changed
        return changed

    def overview(self) -> dict[str, Any]:
        return {"format": 1, "name": "<b>fake</b>", "control": False, "big": "x" * self.big}

    def timeline(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        return self._asked("timeline", point, start=start, end=end, px=px)

    def state(self, point: int, t: float) -> dict[str, Any]:
        return self._asked("state", point, t=t)

    def strips(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        return self._asked("strips", point, start=start, end=end, px=px)

    def now(self, point: int) -> float:
        if point not in (0, 1):
            raise LookupError(point)
        return self.moment

    def close(self) -> None:
        self.closed = True

    def _asked(self, what: str, point: int, **asked: float | None) -> dict[str, Any]:
        self.now(point)
        return {"what": what, "point": point, **asked}
