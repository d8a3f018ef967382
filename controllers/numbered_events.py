"""The controller's part of the timeline: numbered lines that threads append to the file of the point under way."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from railyard.errors import ConfigError, from_os_error
from railyard.point_folder import CONTROLLER, point_folder
from railyard.timeline import Event, NumberedLog


class NumberedEvents:
    """The events file ``path``, and those of the points of the results folder ``results``; any thread may add events.

    An earlier controller of the same run may have begun a file. ``ConfigError`` if one cannot be written.
    """

    def __init__(self, path: Path, results: Path | None = None) -> None:
        self._own, self._results = path, results
        self._writing = threading.Lock()
        self._since = float("-inf")
        self._between: list[Event] = []
        """Events since the last point ended."""
        self._is_point = False
        self._log = _log(path)

    def close(self) -> None:
        self._log.close()

    def begin(self, point: int | None, since: float, results: str | None = None) -> None:
        """Write to the file of ``point`` from now on: what is from ``since`` on, and acts since the last point ended.

        None: the point has ended. ``results`` is the folder of its results (None: that of the start). ``ConfigError``
        where the file cannot be written, or no folder for it was named.
        """
        folder = self._results if results is None else Path(results)
        if point is not None and folder is None:
            raise ConfigError("has no folder here; start the controller with --points FOLDER", key="point")
        with self._writing:
            path = self._own if point is None else point_folder(folder or Path(), point) / CONTROLLER
            log, self._log = self._log, _log(path)
            log.close()
            self._is_point = point is not None
            before, self._between, self._since = self._between, [], since
        for event in before:
            self.add(event)

    def add(self, event: Event) -> None:
        """Append an event with the next number ``n``: a number that is missing shows that an event was lost.

        An event that cannot be written ends the process, since circuits that are in no log make the results wrong.
        """
        try:
            with self._writing:
                if self._is_point and event.t < self._since and event.kind != "manual":
                    return
                if self._results is not None and not self._is_point:
                    self._between.append(event)
                self._log.add(event)
        except OSError as error:
            fault = from_os_error(error)
            with suppress(OSError):
                print(f"controller: {fault}", file=sys.stderr, flush=True)
            os._exit(fault.exit_status)


def _log(path: Path) -> NumberedLog:
    try:
        return NumberedLog(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", key="events") from error
