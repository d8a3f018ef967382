"""Ticks for open pages: each page has a place of its own for one tick, so that none delays another.

A tick says that the run has new data, and of which kind. A page that reads slowly gets fewer ticks, with the kinds of
all that it missed, and a page that is gone is forgotten when it does not take a heartbeat.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from commands.page.answers import as_json
from railyard.errors import MachineError

MOST_PAGES = 32
"""Pages that are told at once."""
HEARTBEAT_S = 2.0
"""Seconds after which a page without a tick gets a comment line."""
_RETRY = b"retry: 2000\n\n"
_HEARTBEAT = b":\n\n"


@dataclass(frozen=True)
class Tick:
    """The run has new data of the kinds ``parts`` (``commands.page.watched.PARTS``).

    ``point`` is the point under way, or the last one (None: no point has begun), and ``now`` its moment, in seconds of
    the real system since the point began. ``live``: the run goes on.
    """

    revision: int
    point: int | None
    now: float
    live: bool
    parts: tuple[str, ...]

    def after(self, missed: Tick | None) -> Tick:
        """The same tick with the parts of one that was ``missed``."""
        return self if missed is None else replace(self, parts=tuple(sorted({*self.parts, *missed.parts})))


class Page:
    """News that one open page is still to be told."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tick: Tick | None = None
        self._over: str | None = None

    def give(self, tick: Tick) -> None:
        """Keep a tick until the page takes it, in place of an earlier one."""
        with self._changed:
            self._tick = tick.after(self._tick)
            self._changed.notify()

    def end(self, sentence: str) -> None:
        """End the messages after those that are kept, with a ``sentence`` for the reader."""
        with self._changed:
            self._over = sentence
            self._changed.notify()

    def messages(self) -> Iterator[bytes]:
        """Server-Sent Events for the page, until its end."""
        yield _RETRY
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tick or self._over is not None, HEARTBEAT_S)
                tick, self._tick = self._tick, None
                over = self._over
            if tick is not None:
                yield _message("tick", asdict(tick))
            if over is not None:
                yield _message("over", {"says": over})
                return
            if tick is None:
                yield _HEARTBEAT


def _message(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), as_json(data))


class Audience:
    """The open pages."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pages: set[Page] = set()
        self._over: str | None = None

    def __len__(self) -> int:
        return len(self._pages)

    def join(self) -> Page:
        """A new page; ``MachineError`` if ``MOST_PAGES`` are open."""
        with self._changed:
            if len(self._pages) >= MOST_PAGES:
                raise MachineError(f"{MOST_PAGES} pages are open; close one of them")
            page = Page()
            if self._over is not None:
                page.end(self._over)
            self._pages.add(page)
            self._changed.notify_all()
            return page

    def leave(self, page: Page) -> None:
        with self._changed:
            self._pages.discard(page)
            self._changed.notify_all()

    def tell(self, tick: Tick) -> None:
        with self._changed:
            for page in self._pages:
                page.give(tick)

    def end(self, sentence: str, patience_s: float) -> None:
        """End the messages of all pages, and wait up to ``patience_s`` seconds until they have them."""
        with self._changed:
            self._over = sentence
            for page in self._pages:
                page.end(sentence)
            self._changed.wait_for(lambda: not self._pages, patience_s)

    def wait(self, stop: threading.Event) -> None:
        """Wait until a page is open, or ``stop`` was set and ``wake`` called."""
        with self._changed:
            self._changed.wait_for(lambda: self._pages or stop.is_set())

    def wake(self) -> None:
        """Let those who ``wait`` look again whether they are to stop."""
        with self._changed:
            self._changed.notify_all()
