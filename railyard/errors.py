"""The tree of errors that Railyard raises on purpose.

A message is one sentence that names the key or the thing at fault and says what would work. A script exits with the
``exit_status`` of the error that ended it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

MOST_SHOWN = 100
"""Most characters of a wrong value that an error repeats."""


class RailyardError(Exception):
    """Root of all errors Railyard raises on purpose."""

    exit_status = 1


class ConfigError(RailyardError):
    """Invalid input from a person: an option, a key of an experiment file, or a trace file.

    ``key`` is the option or the dotted key (``fabric.servers``). ``source`` is the file, with the line where it is
    known (``my.yaml`` or ``trace.xml:12``). ``message`` is the sentence without both.
    """

    exit_status = 2

    def __init__(self, message: str, *, key: str | None = None, source: str | None = None) -> None:
        self.message = message
        self.key = key
        self.source = source
        place = ": ".join(part if part.isprintable() else ascii(part) for part in (source, key) if part)
        super().__init__(f"{place}: {message}" if place else message)


@contextmanager
def in_file(source: str | None) -> Iterator[None]:
    """Within it a ``ConfigError`` that names no file gets ``source``: where a file is read, its name is known."""
    try:
        yield
    except ConfigError as error:
        if error.source is not None:
            raise
        raise ConfigError(error.message, key=error.key, source=source) from error.__cause__


class MachineError(RailyardError):
    """The machine lacks something a run needs: root, a tool, or a running Open vSwitch."""

    exit_status = 3


class CircuitError(RailyardError):
    """A circuit or matching that a switch cannot hold, for example one that uses a port twice."""

    exit_status = 4


class ControlError(RailyardError):
    """A failure of the control plane: no controller, no answer, or a refused request."""

    exit_status = 5


class AgentError(RailyardError):
    """An agent on a host stopped before it had finished its program."""

    exit_status = 6


class PeerLost(AgentError):
    """An agent stopped because another agent had stopped, so the cause of the failure lies with that one."""


class VerifyError(RailyardError):
    """Received data differs from the schedule: a wrong sum or an unexpected message."""

    exit_status = 7


NOT_FAITHFUL_EXIT_STATUS = 8
"""Exit status of a run that finished but that the machine was too slow to emulate faithfully."""


_LONGEST_NAME = 100


PARTIAL_EXIT_STATUS = 9
"""Exit status for results that lack points: of ``railyard plot`` and ``railyard export`` if the run did not end or was
stopped, and of these and ``railyard run`` if it ended without an error and without all of its points."""


def shortened(text: str) -> str:
    """``text`` for an error: not more than its first ``MOST_SHOWN`` characters."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def from_os_error(error: OSError) -> MachineError:
    """The error for an ``OSError`` that nothing else explains: with the file and, on a full disk, what is used up."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return MachineError(f"the system refused an operation: {reason}")
    place = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(f"{place} cannot be used: {reason}")
    folder = Path(place).absolute()
    while not folder.is_dir():
        folder = folder.parent
    room = os.statvfs(folder)
    # What was written when the error came may be removed by now, so the scarcer of the two is named, also if some is
    # left. Some file systems have no fixed number of inodes and say 0.
    if room.f_files and room.f_favail / room.f_files < room.f_bavail / max(room.f_blocks, 1):
        count = f"{room.f_favail:,} of {room.f_files:,} inodes are free" if room.f_favail else "no inodes are left"
        left = f"{count} in {folder}: remove files there"
    else:
        free, total = (blocks * room.f_frsize / 1e6 for blocks in (room.f_bavail, room.f_blocks))
        left = f"{free:.1f} of {total:.1f} MB are free in {folder}: make room there"
    return MachineError(f"{place} cannot be written: {reason}; {left}, or name another folder")


def nearest(name: str, known: Iterable[str], before: str = "") -> str:
    """End of a sentence that names the entry of ``known`` most like ``name``: ``; did you mean "ring"?``, or "".

    ``before`` stands before all names (the dashes of options), which does not make them alike.
    """
    words = [each.removeprefix(before) for each in known]
    nearest = get_close_matches(name.removeprefix(before)[:_LONGEST_NAME], words, n=1)
    return f'; did you mean "{before}{nearest[0]}"?' if nearest else ""
