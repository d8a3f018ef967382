"""The controller's part of the timeline: numbered lines that threads append to one file."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from railyard.errors import ConfigError, from_os_error
from railyard.ownership import naming, open_text
from railyard.reading import line_count
from railyard.timeline import Event


class NumberedEvents:
    """The events file ``path``, which an earlier controller of the same run may have begun; any thread may add to it.

    ``ConfigError`` if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_text(path, "a", buffering=1)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}", key="events") from error
        self._writing = threading.Lock()
        self._numbers = itertools.count(line_count(path))

    def add(self, event: Event) -> None:
        """Append an event with the next number ``n``: a number that is missing shows that an event was lost.

        An event that cannot be written ends the process, since circuits that are in no log make the results wrong.
        """
        try:
            with self._writing, naming(self._path):
                numbered = replace(event, fields={**event.fields, "n": next(self._numbers)})
                self._file.write(numbered.to_line() + "\n")
        except OSError as error:
            fault = from_os_error(error)
            with suppress(OSError):
                print(f"controller: {fault}", file=sys.stderr, flush=True)
            os._exit(fault.exit_status)
